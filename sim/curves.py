"""Curves over virtual time: lines, bands of quantiles, rates, and what each comes to at the end."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "ACCENT",
    "BLUE",
    "INK",
    "Floats",
    "band",
    "has_any",
    "line",
    "mark",
    "rate",
    "set_scale",
    "spaced",
]

Floats = NDArray[np.float64]

INK = "#333333"
ACCENT = "#B0300A"
# Okabe and Ito 2008: told apart with any form of color blindness, and on paper.
BLUE = "#0072B2"

POINTS_MARKED_MAX = 30
"""Points of a curve that has a dot for each."""

GAP_MIN = 0.1
"""Least time between two points that a rate is computed from, over the median of these times."""

LOG_FROM = 8.0
"""Greatest value over least from which an axis is logarithmic."""

LOG_SPARSE_FROM = 300.0
"""Likewise, from which powers of ten are marks enough."""


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


def mark(axes: "Axes", x: float, y: float, text: str) -> None:
    """Stress what a curve came to at its end."""
    axes.plot([x], [y], color=ACCENT, marker="D", markersize=5, zorder=5)
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
