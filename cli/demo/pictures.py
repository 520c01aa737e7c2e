"""A demo as a terminal shows it while it runs, and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .story import NAMES, Story

__all__ = ["draw", "screen_of"]

_COLORS: Final = {"rumor": "cyan", "all-reduce": "yellow"}
_DOTS: Final = {"rumor": "•", "all-reduce": "×"}
_WHOSE: Final = {"rumor": "peer-0's own model", "all-reduce": "the model of all"}
_BARS: Final = " ▁▂▃▄▅▆▇█"
_NEWS_WIDTH: Final = 34
_CHART_LINES: Final = 8
_BINS: Final = 60


def screen_of(story: Story, news: Sequence[str], now_s: float, width: int) -> RenderableType:
    """Return the screen: what happened, next to it the speed of each process, below the losses."""
    time = f"{min(now_s, story.seconds):.0f} of {story.seconds:.0f} s"
    head = "all processes start" if story.began_unix_s is None else time
    title = Text.assemble(("One model, the same faults, two ways to train", "bold"), f"   {head}")
    speeds = _speeds(story, now_s, max(10, width - _NEWS_WIDTH - 18))
    lines = [part for line in news for part in wrap(line, _NEWS_WIDTH, subsequent_indent="  ")]
    upper = Table.grid(padding=(0, 2, 0, 0))
    upper.add_column(width=_NEWS_WIDTH, no_wrap=True)
    upper.add_row(Text("\n".join(lines[-speeds.row_count :]), style="dim"), speeds)
    return Group(title, "", upper, "", *_chart(story, max(20, width - 8)))


def _speeds(story: Story, now_s: float, columns: int) -> Table:
    """One line for each process: a bar of each part of the demo, and the speed of the last one."""
    table = Table.grid(padding=(0, 1, 0, 0))
    edges = np.linspace(0.0, story.seconds, columns + 1)
    past = int(np.searchsorted(edges, now_s, "right")) - 1
    speeds = {id: story.speeds(id, edges)[:past] for id in story.rows}
    top = max((each.max(initial=0.0) for each in speeds.values()), default=0.0) or 1.0
    for way, name in NAMES.items():
        table.add_row("", Text(name, style=f"bold {_COLORS[way]}"), "steps/s" * (way == "rumor"))
        for id in story.of(way):
            levels = np.ceil(speeds[id] / top * (len(_BARS) - 1)).astype(int)
            bars = Text("".join(_BARS[level] for level in levels), style=_COLORS[way])
            table.add_row(id, bars, f"{speeds[id][-1]:7.1f}" if past > 0 else "")
    table.columns[1].width, table.columns[1].no_wrap = columns, True
    return table


def _chart(story: Story, columns: int) -> list[Text]:
    """Draw both losses over time, as lines of text."""
    curves = {way: story.losses(way) for way in NAMES}
    title = Text("held-out loss", style="bold")
    for way in NAMES:
        title.append(f"   {_DOTS[way]} {way}: {_WHOSE[way]}", _COLORS[way])
    if not (values := [losses for _, losses in curves.values() if len(losses)]):
        return [title]
    low, high = np.min(np.concatenate(values)), np.max(np.concatenate(values))
    cells = [[(" ", "")] * columns for _ in range(_CHART_LINES)]
    grid = np.linspace(0.0, story.seconds, columns)
    for way, (times_s, losses) in curves.items():
        for column in np.flatnonzero(
            (grid >= times_s.min(initial=np.inf)) & (grid <= times_s.max(initial=0.0))
        ):
            part = (high - np.interp(grid[column], times_s, losses)) / ((high - low) or 1.0)
            cells[round(part * (_CHART_LINES - 1))][column] = (_DOTS[way], _COLORS[way])
    lines = zip(np.linspace(high, low, _CHART_LINES), cells, strict=True)
    return [title, *(Text.assemble(f"{value:6.2f} ", *line) for value, line in lines)]


def draw(story: Story, title: str, path: Path) -> None:
    """Draw the speed of each process, and the loss of both ways, as PNG."""
    from matplotlib import rc_context

    from ...sim.results.plots import ACCENT, BLUE, DIM, PALETTE, STYLE, new_figure
    from ...train.storage.files import drafted

    with rc_context(STYLE):
        figure = new_figure(9.6, 7.4, "constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.0, 1.1))
        upper = [figure.add_subplot(grid[0, 0])]
        upper.append(figure.add_subplot(grid[0, 1], sharey=upper[0]))
        lower = figure.add_subplot(grid[1, :])
        edges = np.linspace(0.0, story.seconds, _BINS + 1)
        for axes, (way, name), color in zip(upper, NAMES.items(), (BLUE, ACCENT), strict=True):
            axes.set_title(name)
            for id, own_color in zip(story.of(way), PALETTE, strict=False):
                speeds = story.speeds(id, edges)
                # A newcomer has no speed before it is there.
                speeds[edges[1:] <= story.times([id])[0][0]] = np.nan
                line: Any = {"color": own_color, "linewidth": 1.6, "label": id}
                axes.stairs(speeds, edges, **line, baseline=None)
            style: Any = {"color": color, "linewidth": 2, "marker": "o", "markersize": 3}
            lower.plot(*story.losses(way), **style, label=f"{way}: {_WHOSE[way]}")
        upper[0].set_ylabel("steps per second of each process")
        # Above the curves there is room for the legends.
        upper[0].set_ylim(0.0, 1.3 * upper[0].get_ylim()[1])
        for number, id in enumerate(story.of("rumor")[1:]):
            thin: Any = {"color": BLUE, "alpha": 0.35, "linewidth": 1}
            label = "_" * bool(number) + "rumor: those of the other peers"
            lower.plot(*story.times([id], "test_loss"), **thin, label=label)
        lower.set_ylabel("loss on held-out text, nats per byte")
        lower.set_xlabel("time since all processes trained, s")
        for name, begin_s in list(story.phases.items())[1:]:
            for axes in (*upper, lower):
                axes.axvline(begin_s, color=DIM, linewidth=0.9, linestyle=":")
            lower.annotate(name, (begin_s, 1.01), xycoords=("data", "axes fraction"), color=DIM)
        for axes in (*upper, lower):
            axes.set_xlim(0.0, story.seconds)
            names = axes.get_legend_handles_labels()
            axes.legend(*names, loc="upper right", ncols=1 if axes is lower else 3)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        with drafted(path) as draft:
            figure.savefig(draft, format="png")
