"""What pictures of runs share: colors, curves, bands, and marks of faults and of final values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "BLUE",
    "DIM",
    "INK",
    "PALETTE",
    "STYLE",
    "Floats",
    "Mark",
    "band",
    "has_any",
    "line",
    "mark",
    "mark_faults",
    "mark_lines",
    "marks",
    "new_figure",
    "rate",
    "set_scale",
    "spaced",
]

Floats = NDArray[np.float64]

INK = "#333333"
ACCENT = "#B0300A"
DIM = "#777777"
# Okabe and Ito 2008: told apart with any form of color blindness, and on paper.
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
    # Names of tasks and paths may hold what would be mathematics to matplotlib.
    "text.parse_math": False,
}

FAULT_COLOR = "#AA4499"

CLOSE = 0.02
"""Faults nearer to one another than this part of the run share a line."""

LABELS_MAX = 16
"""Lines that are labelled; of more, none could be read."""

PLURALS = {"crash": "crashes", "mass-restart": "mass restarts", "pause": "pauses", "loss": "loss"}

NOT_SHADED = ("slow", "delay", "loss", "duplicate", "replay", "reset")
"""Kinds that often last for most of a run."""

POINTS_MARKED_MAX = 30
"""Points of a curve that has a dot for each."""

GAP_MIN = 0.1
"""Least time between two points that a rate is computed from, over the median of these times."""

LOG_FROM = 8.0
"""Greatest value over least from which an axis is logarithmic."""

LOG_SPARSE_FROM = 300.0
"""Likewise, from which powers of ten are marks enough."""


def new_figure(width: float, height: float, layout: Any) -> "Figure":
    """Make a figure, the object-oriented way: no backend, no window, no state that outlives it.

    Args:
        width: Inches.
        height: Likewise.
        layout: Of matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def has_any(values: Floats | None) -> bool:
    """Whether there is anything to draw."""
    return values is not None and bool(np.isfinite(values).any())


def line(axes: "Axes", time_s: Floats, values: Floats, *, color: str, label: str) -> None:
    """Draw a curve, with a dot for each point where they are few."""
    marker = "o" if len(time_s) <= POINTS_MARKED_MAX else None
    axes.plot(time_s, values, color=color, linewidth=1.6, marker=marker, markersize=3, label=label)


def band(axes: "Axes", time_s: Floats, quantiles: Floats, *, whose: str) -> None:
    """Draw quantiles: the range of all, that of the half in the middle, and the median.

    Args:
        axes: Where.
        time_s: float64, ``(n_points,)``.
        quantiles: float64, ``(n_points, 5)``: least, a quarter, median, three quarters, most.
        whose: What the legend calls them.
    """
    least, quarter, median, three_quarters, most = quantiles.T
    for low, high, alpha, label in (
        (least, most, 0.13, f"all {whose}"),
        (quarter, three_quarters, 0.28, "the half in the middle"),
    ):
        if np.isfinite(low).sum() == 1:
            # Of one point, an area is nothing.
            axes.vlines(time_s, low, high, color=BLUE, alpha=alpha, linewidth=7, label=label)
        else:
            style: Any = {"color": BLUE, "alpha": alpha, "linewidth": 0, "label": label}
            axes.fill_between(time_s, low, high, **style)
    axes.plot(
        time_s,
        median,
        color=BLUE,
        linewidth=1.0,
        marker="." if len(time_s) <= POINTS_MARKED_MAX else None,
        markersize=3,
        label=f"median of {whose}",
    )


def rate(axes: "Axes", time_s: Floats, values: Floats, *, color: str) -> None:
    """Draw values that each stand for the time since the point before.

    Args:
        axes: Where.
        time_s: float64, ``(n_points,)``, increasing.
        values: Likewise; what belongs to a point at 0.0 stands for no time and is not drawn.
        color: Of the line.
    """
    later = time_s > 0
    if later.any():
        edges = np.concatenate([[0.0], time_s[later]])
        style: Any = {"baseline": None, "color": color, "linewidth": 1.4}
        axes.stairs(values[later], edges, **style)


def spaced(time_s: Floats) -> NDArray[np.int64]:
    """Choose points that are far enough apart for rates between them to mean something.

    The last one is always chosen: a run may end just after a measurement.

    Args:
        time_s: float64, ``(n_points,)``, not decreasing.

    Returns:
        Indices, int64, increasing.

    >>> spaced(np.array([0.0, 1.0, 2.0, 3.0, 3.001])).tolist()
    [0, 1, 2, 4]
    """
    gap_s = GAP_MIN * float(np.median(np.diff(time_s))) if len(time_s) > 1 else 0.0
    chosen: list[int] = []
    for index in reversed(range(len(time_s))):
        if not chosen or time_s[chosen[-1]] - time_s[index] > gap_s:
            chosen.append(index)
    return np.array(chosen[::-1], np.int64)


def mark(
    axes: "Axes", x: float, y: float, text: str, *, marker: str = "D", size: float = 5
) -> None:
    """Stress what a curve came to at its end."""
    axes.plot([x], [y], color=ACCENT, marker=marker, markersize=size, zorder=5)
    axes.annotate(
        text,
        (x, y),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=ACCENT,
        fontweight="bold",
        annotation_clip=False,
    )


def set_scale(axes: "Axes", values: Floats) -> None:
    """Make the vertical axis logarithmic where all *values* are positive and far apart."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.yaxis.set_major_formatter("{x:g}")
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() <= 0 or finite.max() < LOG_FROM * finite.min():
        return
    axes.set_yscale("log")
    if finite.max() < LOG_SPARSE_FROM * finite.min():
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


class Mark(NamedTuple):
    """A vertical line through a panel, and what is written beside it."""

    x: float
    text: str


def mark_faults(
    axes: "Axes", faults: Sequence[Mapping[str, Any]], end_s: float, *, labels: bool
) -> None:
    """Draw a line for each fault, and shade the time that one lasts.

    Args:
        axes: Where.
        faults: As a file of them has them.
        end_s: When the run ended, virtual seconds; what comes after it is not drawn.
        labels: Whether to write what they are.
    """
    before = axes.get_ylim()
    for fault in faults:
        start_s, for_s = fault["at_s"], fault.get("for_s")
        if for_s is not None and start_s < end_s and fault["kind"] not in NOT_SHADED:
            stop_s = min(start_s + for_s, end_s)
            axes.axvspan(start_s, stop_s, color=FAULT_COLOR, alpha=0.07, linewidth=0, zorder=0)
    mark_lines(axes, marks(faults, end_s), labels=labels)
    axes.set_ylim(before)


def mark_lines(axes: "Axes", found: Sequence[Mark], *, labels: bool) -> None:
    """Draw vertical lines, and where they are few, what they are.

    Args:
        axes: Where.
        found: The lines.
        labels: Whether anything is written beside them.
    """
    for x, text in found:
        axes.axvline(x, color=FAULT_COLOR, linewidth=0.9, linestyle=":", zorder=1)
        if labels and len(found) <= LABELS_MAX:
            axes.annotate(
                text,
                (x, 0.03),
                xycoords=("data", "axes fraction"),
                xytext=(-2, 0),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="bottom",
                fontsize=7.5,
                color=FAULT_COLOR,
            )


def marks(faults: Sequence[Mapping[str, Any]], end_s: float) -> list[Mark]:
    """Say what is written where; faults that are close to one another share a line.

    Args:
        faults: As a file of them has them, in order of time.
        end_s: When the run ended.

    >>> marks([{"at_s": 1.0, "kind": "crash", "peer": 2}, {"at_s": 1.5, "kind": "crash", "peer": 3},
    ...        {"at_s": 50.0, "kind": "heal"}], 100.0)
    [Mark(x=1.0, text='2 crashes'), Mark(x=50.0, text='heal')]
    """
    groups: list[list[Mapping[str, Any]]] = []
    for fault in faults:
        if fault["at_s"] > end_s:
            break
        if groups and fault["at_s"] - groups[-1][0]["at_s"] < CLOSE * end_s:
            groups[-1].append(fault)
        else:
            groups.append([fault])
    return [Mark(group[0]["at_s"], _words(group)) for group in groups]


def _words(group: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter[str]()
    for fault in group:
        counts[fault["kind"]] += fault.get("count", 1)
    if len(group) == 1 and "peer" in group[0]:
        return f"{group[0]['kind']} {group[0]['peer']}"
    parts = [
        kind if count == 1 else f"{count} {PLURALS.get(kind, kind + 's')}"
        for kind, count in counts.items()
    ]
    return ", ".join(parts)
