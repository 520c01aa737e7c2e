"""What pictures of runs share: colors, a style, marks of faults and of final values."""

from collections.abc import Sequence
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
    "FAULT_COLOR",
    "INK",
    "PALETTE",
    "STYLE",
    "Floats",
    "Mark",
    "mark",
    "mark_lines",
    "new_figure",
    "plain_log_ticks",
    "say",
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


LOG_SPARSE_FROM = 300.0
"""Greatest value over least from which powers of ten are marks enough."""

LABELS_MAX = 16
"""Lines that are labelled; of more, none could be read."""


def new_figure(width: float, height: float, layout: Any, dpi: float = 150) -> "Figure":
    """An empty figure, inches wide and high: without a window or state that outlives it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def mark(
    axes: "Axes", x: float, y: float, text: str, *, marker: str = "D", size: float = 5
) -> None:
    """Stress what a curve came to at its end, at the right edge: the text is outside the panel."""
    axes.plot([x], [y], color=ACCENT, marker=marker, markersize=size, zorder=5, clip_on=False)
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


def plain_log_ticks(axes: "Axes", ratio: float) -> None:
    """Give a logarithmic vertical axis ticks in plain numbers.

    Args:
        axes: Their labels are never mathematics, which `STYLE` would show as it is written.
        ratio: Of the greatest value to the least: where there are few powers of ten, there are
            ticks between them, too.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    if ratio < LOG_SPARSE_FROM:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def say(axes: "Axes", text: str) -> None:
    """Write words into a panel; without data, it has no vertical axis."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=DIM)
    if not axes.has_data():
        axes.set_yscale("linear")
        axes.set_yticks([])
        axes.set_ylabel("")
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)


class Mark(NamedTuple):
    """A vertical line through a panel, and its label."""

    x: float
    text: str


def mark_lines(axes: "Axes", found: Sequence[Mark], *, labels: bool) -> None:
    """Draw vertical lines, and, if asked for and where they are few, what they are."""
    from matplotlib.patheffects import withStroke

    for x, text in found:
        axes.axvline(x, color=FAULT_COLOR, linewidth=0.9, linestyle=":", zorder=1)
        if labels and len(found) <= LABELS_MAX:
            axes.annotate(
                text,
                (x, 0.03),
                xycoords=("data", "axes fraction"),
                xytext=(2, 0),
                textcoords="offset points",
                rotation=90,
                ha="left",
                va="bottom",
                fontsize=7.5,
                color=FAULT_COLOR,
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
