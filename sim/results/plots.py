"""The picture of a simulated run: a panel for each thing that there is to see over virtual time."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from .curves import (
    ACCENT,
    BLUE,
    DIM,
    INK,
    STYLE,
    Floats,
    band,
    has_any,
    line,
    mark,
    mark_faults,
    new_figure,
    rate,
    set_scale,
    spaced,
)
from .title import describe, describe_world

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

# Inches.
WIDTH, PANEL_HEIGHT, HEADER_LINE = 11.0, 2.6, 0.22

TITLE_MAX, WORLD_MAX = 95, 140
"""Letters of a line above the panels, where it says what is run and in what world."""

MARGIN = 0.17
"""Room at the right for what came out at the end, as a part of the time."""

MILESTONES_MAX = 3
"""Accuracies whose time is marked, the best ones."""

MILESTONE_LINE = 9
"""How far below the next better one an accuracy's time is written, points."""

WEIGHTS_APART = 0.05
"""Founders that a picture of weights spans at least, to either side."""

GROUPS_MAX = 6
"""Parts of a partition whose own curves are drawn."""

RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))

Summary = Mapping[str, Any]
Series = Mapping[str, Floats]
Panel = Callable[["Axes", Summary, Series], None]


def draw(summary: Summary, series: Series) -> "Figure":
    """Draw a run.

    Args:
        summary: Of a run.
        series: Of the same run.

    Returns:
        A figure with a panel for everything that the run has something to say on.
    """
    from matplotlib import rc_context
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels, header = _panels(summary, series), _header(summary)
    below = HEADER_LINE * (len(header) + 0.7)
    height = below + PANEL_HEIGHT * -(-len(panels) // 2)
    with rc_context(STYLE):
        rect = (0.0, 0.0, 1.0, 1 - below / height)
        layout = ConstrainedLayoutEngine(rect=rect, hspace=0.06, wspace=0.03)
        figure = new_figure(WIDTH, height, layout)
        for index, (text, style) in enumerate(header):
            y = 1 - HEADER_LINE * (index + 0.35) / height
            figure.text(0.01, y, text, va="top", **style)
        _place(figure, panels, summary, series)
    return figure


def _panels(summary: Summary, series: Series) -> list[Panel]:
    """Those with something to show, the most telling first."""
    several, has_model = summary["workers"] > 1, "disagreement" not in series
    known: list[tuple[Panel, bool]] = [
        (_draw_accuracy, has_any(series.get("accuracy"))),
        (_draw_loss, len(series.get("loss", ())) > 0),
        (_draw_disagreement, has_any(series.get("disagreement"))),
        (_draw_consensus, several and has_model and has_any(series.get("consensus_distance"))),
        (_draw_weights, several and has_any(series.get("weight_quantiles"))),
        (_draw_traffic, several and has_any(series.get("bytes_sent"))),
        (_draw_members, has_any(series.get("members"))),
        (_draw_staleness, several and _is_ever(series.get("staleness_steps"))),
        (_draw_idle, several and _is_ever(series.get("idle"))),
    ]
    return [panel for panel, is_shown in known if is_shown] or [_draw_nothing]


def _place(figure: "Figure", panels: Sequence[Panel], summary: Summary, series: Series) -> None:
    """Two in a row; of an odd number, the first has a row of its own."""
    odd = len(panels) % 2
    grid = figure.add_gridspec(-(-len(panels) // 2), 2)
    end_s = float(np.nanmax(series["time_s"], initial=0.0)) or 1.0
    for index, panel in enumerate(panels):
        row, column = divmod(index + odd, 2)
        axes = figure.add_subplot(grid[0, :] if odd and index == 0 else grid[row, column])
        axes.set_xlim(0, end_s * (1 + MARGIN / (2 if odd and index == 0 else 1)))
        axes.xaxis.set_major_formatter("{x:g}")
        panel(axes, summary, series)
        if summary.get("faults"):
            mark_faults(axes, summary["faults"], end_s, labels=index == 0)
        if index >= len(panels) - 2:
            axes.set_xlabel("virtual time, s")


def _draw_accuracy(axes: "Axes", summary: Summary, series: Series) -> None:
    _draw_quality(axes, summary, series, "accuracy")
    time_s, accuracy = series["time_s"], series["accuracy"]
    reached = [(level, at_s) for level, at_s in _milestones(summary) if at_s < time_s[-1]]
    for index, (level, at_s) in enumerate(sorted(reached, reverse=True)[:MILESTONES_MAX]):
        place = at_s, float(np.interp(at_s, time_s, accuracy))
        axes.plot(*place, color=ACCENT, marker="o", markersize=4.5, zorder=5)
        axes.annotate(
            f"{level:g} after {at_s:.3g} s",
            place,
            xytext=(6, -8 - MILESTONE_LINE * index),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=ACCENT,
        )


def _milestones(summary: Summary) -> list[tuple[float, float]]:
    """Accuracies that were reached, and the virtual times at which they were."""
    reached = (summary.get("time_to") or {}).items()
    return [(float(level), at_s) for level, at_s in reached if at_s is not None]


def _draw_loss(axes: "Axes", summary: Summary, series: Series) -> None:
    _draw_quality(axes, summary, series, "loss")


def _draw_quality(axes: "Axes", summary: Summary, series: Series, name: str) -> None:
    time_s, merged, quantiles = series["time_s"], series[name], series.get(f"{name}_quantiles")
    axes.set_ylabel(name)
    title = f"Held-out {name} of the merged model"
    if summary["workers"] > 1 and quantiles is not None and has_any(quantiles):
        title += ", and of single workers'"
        band(axes, time_s, quantiles, whose="workers")
    axes.set_title(title)
    if name == "loss":
        set_scale(axes, merged if quantiles is None else np.column_stack([merged, quantiles]))
    if not has_any(merged):
        _say(axes, "that of the merged model is finite at no point")
        return
    groups = series.get(f"{name}_of_groups")
    for values in () if groups is None else groups.T[:GROUPS_MAX]:
        axes.plot(time_s, values, color=INK, linewidth=1.1, linestyle="--")
    line(axes, time_s, merged, color=ACCENT, label="merged")
    if groups is not None:
        axes.plot([], [], color=INK, linewidth=1.1, linestyle="--", label="merged in each part")
    _mark_last(axes, time_s, merged, "{:.4g}")
    # The panels of both look alike: one legend will do.
    if name == "accuracy" or not has_any(series.get("accuracy")):
        axes.legend(loc="lower right" if name == "accuracy" else "upper right", ncols=2)


def _draw_disagreement(axes: "Axes", summary: Summary, series: Series) -> None:
    axes.set_title("Disagreement: squared distances from the mean, per coordinate")
    axes.set_ylabel("sum over the workers")
    time_s, values = series["time_s"], _positive(series["disagreement"])
    if not has_any(values):
        _say(axes, "all workers agree at every point")
        return
    line(axes, time_s, values, color=INK, label="disagreement")
    set_scale(axes, values)
    stationary = summary.get("disagreement_stationary")
    if stationary is None:
        _mark_last(axes, time_s, values, "{:.3g}", zero=series["disagreement"][-1] == 0)
    else:
        axes.axhline(stationary, color=BLUE, linestyle="--", label=f"stationary: {stationary:.4g}")
        axes.legend(loc="best")


def _draw_consensus(axes: "Axes", summary: Summary, series: Series) -> None:
    axes.set_title("Consensus distance: how far models are from their mean")
    axes.set_ylabel("|x_i - mean| / |mean|, rms")
    time_s, values = series["time_s"], _positive(series["consensus_distance"])
    if not has_any(values):
        _say(axes, "all models are identical at every point")
        return
    line(axes, time_s, values, color=INK, label="consensus distance")
    set_scale(axes, values)
    _mark_last(axes, time_s, values, "{:.2g}", zero=series["consensus_distance"][-1] == 0)


def _draw_weights(axes: "Axes", summary: Summary, series: Series) -> None:
    axes.set_title("Weights of the workers")
    axes.set_ylabel("founders")
    quantiles = series["weight_quantiles"]
    band(axes, series["time_s"], quantiles, whose="workers")
    set_scale(axes, quantiles)
    least, most = axes.get_ylim()
    if most - least < WEIGHTS_APART:
        # Rules that push all alike differ by units: to scale, that would look like much.
        axes.set_ylim(least - WEIGHTS_APART, most + WEIGHTS_APART)
    if "disagreement" in series:
        axes.legend(loc="best")


def _draw_members(axes: "Axes", summary: Summary, series: Series) -> None:
    axes.set_title("Members of the swarm")
    axes.set_ylabel("workers")
    axes.step(series["time_s"], series["members"], where="post", color=INK, linewidth=1.4)
    axes.set_ylim(bottom=0)


def _draw_traffic(axes: "Axes", summary: Summary, series: Series) -> None:
    axes.set_title("Traffic of all workers together")
    chosen = spaced(series["time_s"])
    time_s = series["time_s"][chosen]
    values = _per_second(time_s, series["bytes_sent"][chosen])
    most = np.nanmax(values, initial=0.0)
    unit, name = next((pair for pair in RATES if most >= pair[0]), RATES[-1])
    axes.set_ylabel(name)
    rate(axes, time_s, values / unit, color=INK)
    axes.set_ylim(bottom=0)


def _draw_staleness(axes: "Axes", summary: Summary, series: Series) -> None:
    axes.set_title("Staleness of shares when they are mixed in (below 0: ahead)")
    axes.set_ylabel("steps behind")
    axes.axhline(0, color=DIM, linewidth=0.8)
    chosen = spaced(series["time_s"])
    rate(axes, series["time_s"][chosen], series["staleness_steps"][chosen], color=INK)


def _draw_idle(axes: "Axes", summary: Summary, series: Series) -> None:
    axes.set_title("Part of the workers' time that is spent waiting")
    axes.set_ylabel("idle")
    chosen = spaced(series["time_s"])
    rate(axes, series["time_s"][chosen], series["idle"][chosen], color=INK)
    axes.yaxis.set_major_formatter(lambda part, _: f"{100 * part:g} %")
    axes.set_ylim(bottom=0)


def _draw_nothing(axes: "Axes", summary: Summary, series: Series) -> None:
    _say(axes, "nothing was measured")


def _mark_last(
    axes: "Axes", time_s: Floats, values: Floats, form: str, *, zero: bool = False
) -> None:
    """Stress the last value that there is; *zero* says that it is 0 after that."""
    finite = np.flatnonzero(np.isfinite(values))
    if len(finite):
        last = finite[-1]
        then = "" if last == len(values) - 1 else ",\nthen 0" if zero else ",\nthen not finite"
        mark(axes, float(time_s[last]), float(values[last]), form.format(values[last]) + then)


def _say(axes: "Axes", text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=DIM)
    if not axes.has_data():
        axes.set_yticks([])


def _is_ever(values: Floats | None) -> bool:
    """Whether there is anything but zeros and gaps."""
    return values is not None and bool(np.any(np.isfinite(values) & (values != 0)))


def _positive(values: Floats) -> Floats:
    return np.where(values > 0, values, np.nan)


def _per_second(time_s: Floats, total: Floats) -> Floats:
    """Growth since the point before, by the second; NaN where no time has passed."""
    lasted = np.diff(time_s, prepend=0.0)
    grown = np.diff(total, prepend=0.0)
    rates = np.full(len(time_s), np.nan)
    rates[lasted > 0] = grown[lasted > 0] / lasted[lasted > 0]
    return rates


def _header(summary: Summary) -> list[tuple[str, dict[str, Any]]]:
    """Lines above the panels, which say what was run, with their style."""
    bold: dict[str, Any] = {"fontsize": 12, "fontweight": "bold"}
    dim: dict[str, Any] = {"fontsize": 9.5, "color": DIM}
    return [
        *((text, bold) for text in wrap(describe(summary), TITLE_MAX)),
        *((text, dim) for text in wrap(describe_world(summary), WORLD_MAX)),
    ]
