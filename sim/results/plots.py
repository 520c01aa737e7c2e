"""Pictures of simulated runs, and what pictures of live runs share with them."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .figures import describe, describe_world

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "BLUE",
    "DIM",
    "FAULT_COLOR",
    "INK",
    "PALETTE",
    "STYLE",
    "Floats",
    "draw",
    "mark",
    "mark_faults",
    "new_figure",
    "plain_log_ticks",
    "say",
    "set_scale",
]

Floats = NDArray[np.float64]
Mappings = Sequence[Mapping[str, Any]]

INK, ACCENT, DIM, FAULT_COLOR = "#333333", "#B0300A", "#777777", "#AA4499"
# Okabe and Ito 2008: distinct with any form of color blindness, and on paper.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
BLUE = PALETTE[0]

STYLE: Any = {
    "font.size": 9.5,
    "axes.edgecolor": "#AAAAAA",
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    # Names of tasks and paths may hold characters that matplotlib reads as mathematics.
    "text.parse_math": False,
}

# Ratio of the greatest to the least value from which an axis is logarithmic, and from which powers
# of ten are enough ticks.
_LOG_FROM, _LOG_SPARSE_FROM = 8.0, 300.0

# A fault nearer to the last label than this part of the run has none, or labels would overlap.
_FAULTS_CLOSE, _FAULT_LETTERS_MAX = 0.03, 36

# Kinds of faults that often last for most of a run.
_NOT_SHADED = ("slow", "delay", "loss", "duplicate", "replay", "reset")


def new_figure(width: float, height: float, layout: Any, dpi: float = 150) -> "Figure":
    """Make an empty figure, in inches: without a window or state that outlives it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def mark(
    axes: "Axes", x: float, y: float, text: str, *, marker: str = "D", size: float = 5
) -> None:
    """Highlight the last point of a curve; the text is outside the panel, at its right edge."""
    axes.plot([x], [y], color=ACCENT, marker=marker, markersize=size, zorder=5, clip_on=False)
    style: Any = {"color": ACCENT, "fontweight": "bold", "annotation_clip": False}
    axes.annotate(text, (x, y), xytext=(8, 0), textcoords="offset points", va="center", **style)


def say(axes: "Axes", text: str) -> None:
    """Write words into a panel; without data, it has no vertical axis."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=DIM)
    if not axes.has_data():
        axes.set(yscale="linear", yticks=[], ylabel="")
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)


def set_scale(axes: "Axes", values: Floats) -> None:
    """Make the vertical axis logarithmic where all *values* are positive and far apart."""
    axes.yaxis.set_major_formatter("{x:g}")
    finite = values[np.isfinite(values)]
    if len(finite) and 0 < _LOG_FROM * finite.min() <= finite.max():
        axes.set_yscale("log")
        plain_log_ticks(axes, finite.max() / finite.min())


def plain_log_ticks(axes: "Axes", ratio: float) -> None:
    """Give a logarithmic vertical axis ticks in plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    # `STYLE` would show matplotlib's default labels, which are mathematics, as raw text.
    if ratio < _LOG_SPARSE_FROM:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def mark_faults(axes: "Axes", faults: Mappings, end_s: float, *, labels: bool) -> None:
    """Draw a line for each fault, in order of time, shade the time that one lasts, and label
    those that leave room for it."""
    from matplotlib.patheffects import withStroke

    before, labelled_s = axes.get_ylim(), -end_s
    for fault in faults:
        at_s, for_s = fault["at_s"], fault.get("for_s")
        if at_s > end_s:
            break
        if for_s is not None and fault["kind"] not in _NOT_SHADED:
            stop_s = min(at_s + for_s, end_s)
            axes.axvspan(at_s, stop_s, color=FAULT_COLOR, alpha=0.07, linewidth=0, zorder=0)
        axes.axvline(at_s, color=FAULT_COLOR, linewidth=0.9, linestyle=":", zorder=1)
        if labels and at_s - labelled_s >= _FAULTS_CLOSE * end_s:
            labelled_s = at_s
            place: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            around = [withStroke(linewidth=2, foreground="white")]
            text = f"{fault['kind']} {fault.get('peer') or ''}"
            axes.annotate(
                shorten(text, _FAULT_LETTERS_MAX, placeholder="…"), (at_s, 0.03), xytext=(2, 0),
                **place, rotation=90, ha="left", va="bottom", fontsize=7.5, color=FAULT_COLOR,
                path_effects=around,
            )  # fmt: skip
    axes.set_ylim(before)


_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))

# Longer curves have no dot for each point.
_POINTS_MARKED_MAX = 30

Summary = Mapping[str, Any]
Series = Mapping[str, Floats]


def draw(summary: Summary, series: Series) -> "Figure":
    """Draw a simulated run: a panel for everything that was measured."""
    from matplotlib import rc_context

    panels = list(_panels(series))
    rows = max(1, -(-len(panels) // 2))
    with rc_context(STYLE):
        figure = new_figure(11.0, 2.6 * rows + 0.7, "constrained")
        header = (fill(text, 110) for text in (describe(summary), describe_world(summary)))
        figure.suptitle("\n".join(header), x=0.01, ha="left", fontsize=11)
        grid = list(figure.subplots(rows, 2, squeeze=False).flat)
        for axes in grid[max(1, len(panels)) :]:
            axes.remove()
        if not panels:
            say(grid[0], "nothing was measured")
        end_s = float(np.nanmax(series["time_s"], initial=0.0)) or 1.0
        for axes, name in zip(grid, panels, strict=False):
            axes.set_xlim(0, end_s)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_xlabel("virtual time, s")
            title, label, draw_panel = _PANELS[name]
            axes.set_title(title)
            axes.set_ylabel(label)
            draw_panel(axes, name, summary, series)
            if summary.get("faults"):
                mark_faults(axes, summary["faults"], end_s, labels=axes is grid[0])
    return figure


def _panels(series: Series) -> Iterator[str]:
    """Yield the curves that have something to show: all others stay as they are."""
    for name in _PANELS:
        values = series.get(name, np.empty(0))
        finite = values[np.isfinite(values)]
        changes = len(finite) and finite.min() < finite.max()
        hidden = name == "consensus_distance" and "disagreement" in series
        if len(finite) and (changes or name in ("accuracy", "loss")) and not hidden:
            yield name


def _has_any(values: Floats | None) -> bool:
    return values is not None and bool(np.isfinite(values).any())


def _draw_quality(axes: "Axes", name: str, summary: Summary, series: Series) -> None:
    time_s, merged, quantiles = series["time_s"], series[name], series.get(f"{name}_quantiles")
    axes.set_ylabel(name)
    title = f"Held-out {name} of the merged model"
    if summary["workers"] > 1 and quantiles is not None and _has_any(quantiles):
        title += " and of each worker's"
        _draw_quantiles(axes, time_s, quantiles)
    axes.set_title(title)
    if name == "loss":
        set_scale(axes, merged if quantiles is None else np.column_stack([merged, quantiles]))
    groups = series.get(f"{name}_of_groups", np.empty((0, 0)))
    for index, values in enumerate(groups.T[:6]):
        label = None if index else "merged in each part"
        axes.plot(time_s, values, color=INK, linewidth=1.1, linestyle="--", label=label)
    _line(axes, time_s, merged, color=ACCENT, label="merged")
    _mark_last(axes, time_s, merged, "{:.4g}")
    # Both panels have the same legend: one will do. Labels of faults stand at the bottom.
    if name == "accuracy":
        axes.legend(loc="upper left" if summary.get("faults") else "lower right", ncols=2)
    elif not _has_any(series.get("accuracy")):
        axes.legend(loc="upper right", ncols=2)


def _draw_distance(axes: "Axes", name: str, summary: Summary, series: Series) -> None:
    time_s, stationary = series["time_s"], None
    values = np.where(series[name] > 0, series[name], np.nan)
    _line(axes, time_s, values, color=INK, label=name.replace("_", " "))
    set_scale(axes, values)
    if name == "disagreement":
        stationary = summary.get("disagreement_stationary")
    if stationary is None:
        _mark_last(axes, time_s, values, "{:.2g}")
    else:
        axes.axhline(stationary, color=BLUE, linestyle="--", label=f"stationary: {stationary:.4g}")
        axes.legend(loc="best")


def _draw_weights(axes: "Axes", name: str, summary: Summary, series: Series) -> None:
    quantiles = series[name]
    _draw_quantiles(axes, series["time_s"], quantiles)
    set_scale(axes, quantiles)
    least, most = axes.get_ylim()
    if most - least < 0.05:
        # Weights may differ by a few quanta only, which would look large if drawn to scale.
        axes.set_ylim(least - 0.05, most + 0.05)
    if "disagreement" in series:
        axes.legend(loc="best")


def _draw_traffic(axes: "Axes", name: str, summary: Summary, series: Series) -> None:
    time_s, total = series["time_s"], series[name]
    lasted, grown = np.diff(time_s, prepend=0.0), np.diff(total, prepend=0.0)
    # A run may end just after a measurement: a rate over almost no time means nothing.
    usable = lasted > 0.1 * float(np.median(lasted[1:])) if len(lasted) > 1 else lasted > 0
    values = np.divide(grown, lasted, out=np.full(len(time_s), np.nan), where=usable)
    most = np.nanmax(values, initial=0.0)
    size, label = next((pair for pair in _RATES if most >= pair[0]), _RATES[-1])
    axes.set_ylabel(label)
    _stairs(axes, time_s, values / size)


def _draw_steps(axes: "Axes", name: str, summary: Summary, series: Series) -> None:
    _stairs(axes, series["time_s"], series[name])
    if name == "idle":
        axes.yaxis.set_major_formatter(lambda part, _: f"{100 * part:g} %")


_PANELS: Mapping[str, tuple[str, str, Any]] = {
    "accuracy": ("", "", _draw_quality),
    "loss": ("", "", _draw_quality),
    "disagreement": ("Disagreement: squared distances from the mean, per coordinate",
        "sum over the workers", _draw_distance),
    "consensus_distance": ("Consensus distance: how far models are from their mean",
        "|x_i - mean| / |mean|, rms", _draw_distance),
    "weight_quantiles": ("Averaging weights of the workers", "founders", _draw_weights),
    "bytes_sent": ("Traffic of all workers together", "", _draw_traffic),
    "members": ("Members of the swarm", "workers", _draw_steps),
    "staleness_steps": ("Staleness of shares when they are mixed in", "steps behind", _draw_steps),
    "idle": ("Part of the workers' time that is spent waiting", "idle", _draw_steps),
}  # fmt: skip
"""Panels by the name of their curve, the most telling first: title, label of the vertical axis,
and what draws them."""


def _mark_last(axes: "Axes", time_s: Floats, values: Floats, form: str) -> None:
    """Highlight the last value that is finite."""
    last = np.flatnonzero(np.isfinite(values))[-1]
    mark(axes, float(time_s[last]), float(values[last]), form.format(values[last]))


def _line(axes: "Axes", time_s: Floats, values: Floats, *, color: str, label: str) -> None:
    """Draw a curve, with a dot for each point where they are few."""
    marker = "o" if len(time_s) <= _POINTS_MARKED_MAX else None
    axes.plot(time_s, values, color=color, linewidth=1.6, marker=marker, markersize=3, label=label)


def _draw_quantiles(axes: "Axes", time_s: Floats, quantiles: Floats) -> None:
    """Draw quantiles over the workers: all, the middle half, and the median."""
    least, quarter, median, three_quarters, most = quantiles.T
    for low, high, alpha, label in (
        (least, most, 0.13, "all workers"),
        (quarter, three_quarters, 0.28, "middle 50 %"),
    ):
        # The outline shows a single point, too, which spans no area.
        style: Any = {"color": BLUE, "alpha": alpha, "linewidth": 1, "label": label}
        axes.fill_between(time_s, low, high, **style)
    marker = "." if len(time_s) <= _POINTS_MARKED_MAX else None
    line: Any = {"color": BLUE, "linewidth": 1.0, "marker": marker, "markersize": 3}
    axes.plot(time_s, median, label="median worker", **line)


def _stairs(axes: "Axes", time_s: Floats, values: Floats) -> None:
    """Draw values that each stand for the time since the point before."""
    later = time_s > 0
    if later.any():
        edges = np.concatenate([[0.0], time_s[later]])
        axes.stairs(values[later], edges, baseline=None, color=INK, linewidth=1.4)
    axes.set_ylim(bottom=0)
