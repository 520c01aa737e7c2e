"""The charts of a report as PNG on white paper, drawn by matplotlib."""

import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from rumor.sim.results.plots import STYLE, new_figure
from rumor.sim.study.analysis.ranking import comparisons
from rumor.sim.study.analysis.search import searched
from rumor.sim.study.format import number
from rumor.sim.study.metrics import METRICS
from rumor.sim.study.report.charts import (
    curve_panels,
    graphs_of,
    heatmaps,
    number_axis,
    prediction_panels,
    ranking_panels,
    response_panel,
    sketch_of,
    standing,
)
from rumor.sim.study.report.panels import Matrix, Panel, Scale, Series
from rumor.sim.study.results import Result, Results
from rumor.topology.layout import Sketch
from rumor.train.storage.files import drafted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["apart", "draw_pictures"]

# As on the page by day: told apart with any form of color blindness.
_COLORS: Final = {
    **{f"c{i}": color for i, color in enumerate(
        ("#0072b2", "#c25200", "#00885f", "#b3478f", "#8a6d00", "#5b4bb5", "#4d5661"))},
    "ink": "#1b1f24", "dim": "#59616c", "muted": "#c3c9d1", "accent": "#0068a6",
}  # fmt: skip
_PANELS_MAX: Final = 5
"""Of a ranking, side by side; a page has them all."""

_SHADES: Final = ("#3a3f96", "#16857f", "#b98200")
_DIM, _MUTED = _COLORS["dim"], _COLORS["muted"]

_STYLE: Any = STYLE | {
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _DIM,
    "axes.spines.left": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "grid.color": "#e1e5ea",
    "text.color": _COLORS["ink"],
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": _DIM,
    "ytick.labelcolor": _DIM,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}

_DPI, _PALETTE, _WIDTH = 110, 128, 10.0
_PARTS_MAX = 6
"""Facets to a picture; the rest goes to another."""

_NAMED_MAX = 12
_CELL_LETTERS = 14
_DARK_FROM = 0.72

_Part = TypeVar("_Part")


def draw_pictures(results: Results, folder: Path) -> list[Path]:
    """Draw them all, of at least one result, and return their paths.

    The folder is made; older pictures in it that this study no longer has are removed.

    Raises:
        OSError: One cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in _pictures(results):
        path = folder / f"{name}.png"
        draw(path)
        paths.append(path)
    for path in sorted(set(folder.glob("*.png")) - set(paths)):
        path.unlink()
    return paths


def _pictures(results: Results) -> Iterator[tuple[str, Callable[[Path], None]]]:
    results, _ = searched(results)
    study, places = results.study, comparisons(results)
    colors, metric = standing(study, places), places[0].metric
    for of, several in _parted(places):
        titles = [", ".join(one.at.values()) for one in several]
        curves = [curve_panels(one, "time_s", colors) for one in several]
        yield f"curves{of}", partial(_draw_grid, titles, curves, height=2.9)
        rows = [_readable(ranking_panels(one)) for one in several]
        yield f"ranking{of}", partial(_draw_grid, titles, rows, height=None)
    for of, panels in _parted(list(prediction_panels(results, {}).values())):
        titles = [", ".join(one[0][0].at.values()) for one in panels]
        strongest = [_strongest(one) for one in panels]
        yield f"predictions{of}", partial(_draw_grid, titles, strongest, height=3.3)
    if number_axis(study) is not None:
        other = "bytes_to_target" if metric.to_target else "consensus_distance"
        responses = [response_panel(results, METRICS[name]) for name in (metric.name, other)]
        yield "response", partial(_draw_grid, [""], [responses], height=3.6)
    tables = heatmaps(results, {axis.name: axis.labels[0] for axis in study.axes[2:]})
    wanted = (metric.name, "accuracy", "consensus_distance")
    if found := [tables[name] for name in dict.fromkeys(wanted) if name in tables]:
        yield "heat", partial(_draw_heatmaps, found[:2])
    if graphs := graphs_of(results):
        yield "graphs", partial(_draw_graphs, graphs)


def _parted(several: Sequence[_Part]) -> Iterator[tuple[str, Sequence[_Part]]]:
    for number_, start in enumerate(range(0, len(several), _PARTS_MAX), 1):
        yield "" if number_ == 1 else f"-{number_}", several[start : start + _PARTS_MAX]


def _readable(panels: Sequence[Panel]) -> list[Panel]:
    """The first few, and the traffic, which is last: more of them side by side cannot be read."""
    return [*panels[: _PANELS_MAX - 1], panels[-1]] if len(panels) > _PANELS_MAX else list(panels)


def _strongest(panels: Sequence[tuple[Any, Panel]]) -> list[Panel]:
    """For each metric the panel of the fact that predicts it best."""
    first: dict[str, Panel] = {}
    for one, panel in panels:
        first.setdefault(one.metric.name, panel)
    return [first[name] for name in METRICS if name in first]


def _draw_grid(
    titles: Sequence[str], rows: Sequence[Sequence[Panel]], path: Path, *, height: float | None
) -> None:
    """A row of panels for each title; rows of labels are as high as they need to be."""
    heights = [height or 0.85 + 0.2 * len(panels[0].y.ticks) for panels in rows]
    columns = max(map(len, rows))
    with _paper(_WIDTH, sum(heights) + 0.3) as figure:
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for axes in grid.flat:
            axes.set_axis_off()
        drawn = []
        for line, where, panels in zip(grid, titles, rows, strict=True):
            for axes, panel in zip(line, panels, strict=False):
                axes.set_axis_on()
                _draw(axes, panel, where, columns, is_first=axes is line[0])
                drawn.append((axes, panel))
        # Where labels go depends on how high axes are, and that on everything else.
        figure.draw_without_rendering()
        for axes, panel in drawn:
            _name_ends(axes, panel)
        _save(figure, path)


_LETTERS: Final = {"curves": 48, "points": 26, "rows": 64}
"""Of a line of a panel's title; those of rows stand beside one another, and share them."""


def _draw(axes: "Axes", panel: Panel, where: str, columns: int, *, is_first: bool) -> None:
    title = f"{panel.title}, {where}" if where else panel.title
    letters = _LETTERS.get(panel.kind, 48) // (columns if panel.kind == "rows" else 1)
    axes.set_title("\n".join(textwrap.wrap(title, letters)))
    if not panel.series and panel.kind != "rows":
        words = "\n".join(text for _, text in panel.remarks) or "nothing was measured"
        axes.set_axis_off()
        place: Any = "axes fraction"
        axes.annotate(words, (0.01, 0.9), xycoords=place, fontsize=8.5, color=_DIM, va="top")
        return
    for one in panel.series:
        _draw_series(axes, panel, one)
    for at, text in panel.remarks:
        if panel.kind == "rows":
            _write(axes, text, (0.02, at), va="center")
        else:
            text = textwrap.fill(text, 2 * _LETTERS["curves"] // columns)
            at_bottom: Any = {"xycoords": "axes fraction", "va": "bottom"}
            axes.annotate(text, (0.01, 0.02), fontsize=8, color=_DIM, **at_bottom)
    if panel.target is not None:
        axes.axhline(panel.target, color=_DIM, linewidth=0.8, linestyle=":")
        place = (0.01, panel.target)
        _write(
            axes,
            f"target {panel.target:g}{panel.y.suffix}",
            place,
            # Where curves fall to it they come from above.
            va="top" if panel.falls else "bottom",
            xytext=(0, -2 if panel.falls else 2),
            textcoords="offset points",
        )
    _scale(axes, "x", panel.x)
    _scale(axes, "y", panel.y)
    if panel.kind == "rows":
        axes.grid(axis="y", visible=False)
        if not is_first:
            axes.set_yticklabels([])


def _write(axes: "Axes", text: str, place: tuple[float, float], **style: Any) -> None:
    """Write something at a part of the width and a value of the y axis."""
    coordinates: Any = ("axes fraction", "data")
    axes.annotate(text, place, xycoords=coordinates, fontsize=8, color=_DIM, **style)


def _draw_series(axes: "Axes", panel: Panel, one: Series) -> None:
    color = _color(one.color)
    if panel.kind == "curves":
        stands = one.color != "muted"
        axes.plot(one.x, one.y, color=color, linewidth=1.8 if stands else 0.7)
        if stands and one.low:
            low, high = (np.array(ends, np.float64) for ends in (one.low, one.high))
            axes.fill_between(one.x, low, high, color=color, alpha=0.12, linewidth=0)
        return
    middles = one.x if panel.kind == "rows" else one.y
    bars = [
        (0.0 if low is None else max(0.0, at - low), 0.0 if high is None else max(0.0, high - at))
        for at, low, high in zip(middles, one.low, one.high, strict=True)
    ]
    ends: Any = {"xerr" if panel.kind == "rows" else "yerr": np.array(bars).T}
    bar = _MUTED if one.color == "dim" else color
    style = "o-" if panel.kind == "linked" else "o"
    axes.errorbar(one.x, one.y, fmt=style, color=color, ecolor=bar, markersize=4.5, **ends)
    _mark_cuts(axes, panel, one, bar)


def _mark_cuts(axes: "Axes", panel: Panel, one: Series, color: str) -> None:
    """Draw an arrow where an interval extends beyond the panel."""
    is_row = panel.kind == "rows"
    scale = panel.x if is_row else panel.y
    for across, low, high in zip(one.y if is_row else one.x, one.low, one.high, strict=True):
        for edge, is_cut, marker in (
            (scale.low, low is not None and low < scale.low, "<" if is_row else "v"),
            (scale.high, high is not None and high > scale.high, ">" if is_row else "^"),
        ):
            if is_cut:
                place = ([edge], [across]) if is_row else ([across], [edge])
                axes.plot(*place, color=color, marker=marker, markersize=6, clip_on=False)


def _scale(axes: "Axes", which: str, scale: Scale) -> None:
    """Limits and ticks as they were declared."""
    if scale.is_log:
        axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    if scale.ticks:
        axis.set_ticks([at for at, _ in scale.ticks], [text for _, text in scale.ticks])
        axis.set_ticks([], minor=True)
    elif scale.suffix:
        axis.set_major_formatter("{x:g}" + scale.suffix)
    axes.set(**{f"{which}lim": (scale.low, scale.high), f"{which}label": scale.title})


def _name_ends(axes: "Axes", panel: Panel) -> None:
    """Write names at the right of lines, at their last values, or beside points."""
    height = axes.get_window_extent().height * 72 / axes.figure.dpi
    if panel.kind == "points" and len(panel.series) <= _NAMED_MAX:
        spots = [(one.x[0], one.y[0]) for one in panel.series]
        parts = [axes.transAxes.inverted().transform(axes.transData.transform(at)) for at in spots]
        places = apart([float(part[1]) * height + 7 for part in parts], 8.5, height)
        for one, part, at in zip(panel.series, parts, places, strict=True):
            # Toward the middle, where there is room for them.
            is_right = part[0] > 0.5
            axes.annotate(
                one.label, (part[0], 0), xycoords="axes fraction",
                xytext=(-4 if is_right else 4, at), textcoords="offset points",
                ha="right" if is_right else "left", va="center", fontsize=7.5, color=_DIM,
            )  # fmt: skip
    if panel.kind not in ("curves", "linked"):
        return
    named = [one for one in panel.series if one.color not in ("muted", "dim")]
    ends = [axes.transAxes.inverted().transform(axes.transData.transform((0, one.y[-1])))[1]
            for one in named]  # fmt: skip
    places = apart([float(end) * height for end in ends], 10.5, height)
    for one, at in zip(named if len(named) > 1 else (), places, strict=False):
        axes.annotate(
            textwrap.shorten(one.label, 40, placeholder="…"), (1, 0), xycoords="axes fraction",
            xytext=(5, at), textcoords="offset points", color=_color(one.color), fontsize=8.5,
            va="center", annotation_clip=False,
        )  # fmt: skip


def apart(places: Sequence[float], gap: float, most: float) -> list[float]:
    """Move labels that would cover one another: each as near to its place as the others let it.

    Args:
        places: Where they belong.
        gap: Between the middles of two; less where there is no room for it.
        most: They stay between 0 and this: beyond lie titles.
    """
    gap = min(gap, most / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = [places[index] for index in order]
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    # What was pushed up only goes back by half, so that a heap stays around its middle.
    shift = sum(moved) / max(1, len(moved)) - sum(places) / max(1, len(places))
    moved = [max(one - shift, i * gap) for i, one in enumerate(moved)]
    found = [0.0] * len(places)
    for i, (new, index) in enumerate(zip(moved, order, strict=True)):
        found[index] = min(new, most - (len(moved) - 1 - i) * gap)
    return found


def _draw_heatmaps(found: Sequence[Matrix], path: Path) -> None:
    """One table beside the other."""
    columns, rows = found[0].columns, found[0].rows
    texts = [text for one in found for row in one.texts for text in row]
    # As wide as the longest word, and as high as the most lines, at the size of the letters.
    heads, cells = (
        1 + max(_wrapped(word).count("\n") for word in words) for words in (columns, texts)
    )
    letters = max(len(line) for word in (*columns, *texts) for line in _wrapped(word).split("\n"))
    across = max(0.85, 0.085 * letters + 0.12)
    beside = 0.4 + 0.085 * max(map(len, rows))
    width = beside + len(found) * (len(columns) * across + 0.2)
    height = 0.5 + 0.16 * heads + len(rows) * (0.12 + 0.15 * cells)
    with _paper(max(6.0, width), height) as figure:
        grid = figure.subplots(1, len(found), squeeze=False, sharey="row")
        for axes, one in zip(grid[0], found, strict=True):
            _draw_matrix(axes, one)
        _save(figure, path)


def _wrapped(words: str) -> str:
    """In several lines where it is long."""
    return "\n".join(textwrap.wrap(words, _CELL_LETTERS, break_long_words=False)) or words


def _draw_matrix(axes: "Axes", found: Matrix) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    ramp = LinearSegmentedColormap.from_list("ramp", ["#eef4f9", "#0a4f86"])
    shades = np.array(found.shades, dtype=np.float64)
    axes.set_facecolor("#f4f6f8")
    axes.imshow(np.ma.masked_invalid(shades), cmap=ramp, vmin=0, vmax=1, aspect="auto")
    for (row, column), shade in np.ndenumerate(shades):
        is_there = math.isfinite(shade)
        dark = "white" if shade > _DARK_FROM else _COLORS["ink"]
        axes.text(
            column, row, _wrapped(found.texts[row][column]), ha="center", va="center",
            color=dark if is_there else _DIM, fontsize=8.5 if is_there else 7,
        )  # fmt: skip
    axes.set_xticks(range(len(found.columns)), [_wrapped(name) for name in found.columns])
    axes.set_yticks(range(len(found.rows)), found.rows)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.set_xticks(np.arange(1, len(found.columns)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(found.rows)) - 0.5, minor=True)
    axes.tick_params(which="minor", length=0)
    axes.grid(visible=False)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.spines[:].set_visible(False)
    axes.set_title(found.title, pad=8)


def _draw_graphs(found: Mapping[str, Result], path: Path) -> None:
    """All graphs, each with its name and its spectral gap."""
    columns = min(6, len(found))
    rows = -(-len(found) // columns)
    with _paper(max(columns, 2) * 1.6, rows * 2.15) as figure:
        for axes in figure.subplots(rows, columns, squeeze=False).flat:
            axes.set_axis_off()
        for axes, (name, result) in zip(figure.axes, found.items(), strict=False):
            axes.set(xlim=(0, 100), ylim=(114, 0), aspect="equal")
            if (drawn := sketch_of(result)) is None:
                nodes = f"{int(result.facts['n']):,} nodes"
                axes.text(50, 50, nodes, fontsize=8, color=_DIM, ha="center")
            else:
                _draw_graph(axes, drawn)
            gap = number(result.facts["spectral_gap"])
            axes.set_title(name, fontsize=8.5, loc="center")
            axes.text(50, 112, f"spectral gap {gap}", fontsize=7.5, color=_DIM, ha="center")
        _save(figure, path)


def _draw_graph(axes: "Axes", drawn: Sketch) -> None:
    from matplotlib.collections import LineCollection

    for lines, color in ((drawn.later, _MUTED), (drawn.first, _COLORS["accent"])):
        if lines:
            axes.add_collection(
                LineCollection(list(lines), colors=color, linewidths=drawn.width, alpha=0.8)
            )
    x, y = zip(*drawn.nodes, strict=True)
    axes.scatter(x, y, s=drawn.dot**2, color=_COLORS["ink"], linewidths=0, zorder=3)


def _color(name: str) -> str:
    """A color by its name on the page."""
    kind, colon, part = name.partition(":")
    if not colon:
        return _COLORS[kind]
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    return to_hex(LinearSegmentedColormap.from_list("order", _SHADES)(float(part)))


@contextmanager
def _paper(width: float, height: float) -> "Iterator[Figure]":
    """An empty figure, inches wide and high."""
    from matplotlib import rc_context

    with rc_context(_STYLE), warnings.catch_warnings():
        # A name that is very long, or in letters that no font here has, is still a name.
        warnings.simplefilter("ignore", UserWarning)
        figure = new_figure(width, height, "constrained", dpi=_DPI)
        yield figure


def _save(figure: "Figure", path: Path) -> None:
    """Write a PNG, all of it or nothing, the same to the bit whenever it is written."""
    from PIL import Image

    figure.canvas.draw()
    drawn = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]
    # A chart has few colors: as a palette they take a third of the bytes, and look the same.
    few = drawn.quantize(_PALETTE, dither=Image.Dither.NONE)
    with drafted(path) as draft:
        few.save(draft, format="PNG", optimize=True)
