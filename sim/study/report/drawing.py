"""What all pictures have in common: paper, colors, labels that keep apart, and how to save."""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....train.durable import drafted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "COLORS",
    "DIM",
    "INK",
    "MUTED",
    "apart",
    "colors_of",
    "label_ends",
    "log_ticks",
    "logarithmic",
    "paper",
    "save",
]

# As on the page by day: told apart with any form of color blindness.
COLORS = ("#0072b2", "#c25200", "#00885f", "#b3478f", "#8a6d00", "#5b4bb5", "#4d5661")
_ORDER = ("#3a3f96", "#16857f", "#b98200")
INK, DIM, MUTED, GRID, ACCENT = "#1b1f24", "#59616c", "#c3c9d1", "#e1e5ea", "#0068a6"

_STYLE: Any = {
    "font.size": 9.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": DIM,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": DIM,
    "ytick.labelcolor": DIM,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
}

_DPI = 110
_PALETTE = 128
_TICKS_MIN, _TICKS_MAX = 3, 7


def colors_of(count: int, *, ordered: bool = False) -> list[str]:
    """A color for each of so many lines.

    Args:
        count: How many.
        ordered: Whether they are numbers: shades of one scale, from the first to the last.
    """
    if not ordered or count < 3:
        return [COLORS[i % len(COLORS)] for i in range(count)]
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    ramp = LinearSegmentedColormap.from_list("order", _ORDER)
    return [to_hex(ramp(i / (count - 1))) for i in range(count)]


@contextmanager
def paper(width: float, height: float) -> "Iterator[Figure]":
    """An empty figure, inches wide and high; what is drawn on it is in the style of all."""
    # The object-oriented way: no backend, no state that outlives the call.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def logarithmic(axes: "Axes", which: str) -> None:
    """Make an axis logarithmic, with plain figures: 0.02 says more than 2 times a power.

    Args:
        axes: With everything drawn already.
        which: ``x`` or ``y``.
    """
    axes.set(**{f"{which}scale": "log"})
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    ticks = log_ticks(low, high)
    axes.set(**{f"{which}ticks": ticks, f"{which}ticklabels": [_short(tick) for tick in ticks]})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks([], minor=True)
    axes.set(**{f"{which}lim": (low, high)})


def _short(tick: float) -> str:
    """In few letters, so that ticks do not touch."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if 10 * size <= tick < 1000 * size:
            return f"{tick / size:g}{letter}"
    return f"{tick:g}"


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis: three at least where there is room for them.

    >>> log_ticks(0.03, 0.6), log_ticks(0.2, 5000)
    ([0.05, 0.1, 0.2, 0.5], [1.0, 10.0, 100.0, 1000.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = (float(f"{step}e{power}") for power in powers for step in steps)
        found = [tick for tick in ticks if low <= tick <= high]
        if len(found) >= _TICKS_MIN:
            break
    return found[:: -(-len(found) // _TICKS_MAX)] if found else found


def save(figure: "Figure", path: Path) -> None:
    """Write a PNG, all of it or nothing, the same to the bit whenever it is written."""
    from PIL import Image

    with warnings.catch_warnings():
        # A name that is very long, or in letters that no font here has, is still a name.
        warnings.simplefilter("ignore", UserWarning)
        figure.canvas.draw()
    drawn = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]
    # A chart has few colors: as a palette they take a third of the bytes, and look the same.
    few = drawn.quantize(_PALETTE, dither=Image.Dither.NONE)
    with drafted(path) as draft:
        few.save(draft, format="PNG", optimize=True)


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Move labels that would cover one another: each as near to its place as the others let it."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = [places[index] for index in order]
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    # What was pushed up only goes back by half, so that a heap stays around its middle.
    excess = sum(new - places[index] for new, index in zip(moved, order, strict=True))
    shift = excess / max(1, len(moved))
    found = [0.0] * len(places)
    for new, index in zip(moved, order, strict=True):
        found[index] = new - shift
    return found


def label_ends(axes: "Axes", ends: Sequence[tuple[str, float, str]], *, size: float = 8.5) -> None:
    """Write names at the right of lines, at their last values, in their colors.

    Args:
        axes: Where it is to stay, with the limits that it is to have.
        ends: Name, last value and color of each.
        size: Of the letters, points.
    """
    height = axes.get_window_extent().height * 72 / axes.figure.dpi
    places = [
        float(axes.transAxes.inverted().transform(axes.transData.transform((0, y)))[1]) * height
        for _, y, _ in ends
    ]
    for (name, _, color), at in zip(ends, apart(places, size * 1.25), strict=True):
        axes.annotate(
            name,
            (1, 0),
            xycoords="axes fraction",
            xytext=(5, at),
            textcoords="offset points",
            color=color,
            fontsize=size,
            va="center",
            annotation_clip=False,
        )
