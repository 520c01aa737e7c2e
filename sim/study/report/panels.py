"""What charts are made of: declared once, drawn by plotly and by matplotlib."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "COLORS",
    "Matrix",
    "Panel",
    "Scale",
    "Series",
    "finite",
    "is_wide",
    "log_ticks",
    "scale_over",
    "shades",
    "short",
]

COLORS: Final = 7
"""Lines that colors tell apart: ``c0`` to ``c6``."""

_TICKS_MIN, _TICKS_MAX = 3, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis of a panel."""

    title: str
    low: float
    high: float
    is_log: bool = False
    suffix: str = ""
    """Behind the figures of its ticks."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Where ticks are and what they say; left to the drawing library if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line, or points, with intervals."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    """Ends of intervals, along y, or along x where the panel is one of rows."""
    high: tuple[float | None, ...] = ()
    color: str = "dim"
    """``c0`` to ``c6``, ``shade:`` and a part of a scale of colors, or a color's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart."""

    kind: str
    """``curves`` (lines with bands), ``points``, ``linked`` (points on a line with error bars) or
    ``rows`` (labels down, values across)."""
    title: str
    note: str = ""
    """Beside the title."""
    x: Scale
    y: Scale
    series: tuple[Series, ...]
    target: float | None = None
    """Where the target lies on the y axis."""
    falls: bool = False
    """Whether curves come to it from above."""
    remarks: tuple[tuple[float, str], ...] = ()
    """Words in place of values: at which row, or, of curves, at the bottom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A table of colors with a figure in each."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    shades: tuple[tuple[float | None, ...], ...]
    """From 0 to 1; None where there is no figure."""
    texts: tuple[tuple[str, ...], ...]


def scale_over(
    title: str,
    values: Sequence[float],
    *,
    is_log: bool = False,
    suffix: str = "",
    ticks: tuple[tuple[float, str], ...] = (),
    room: float = 0.06,
) -> Scale:
    """An axis that all values are on, with some room around them."""
    usable = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)]
    if not usable:
        # Nothing to draw to scale, as where all is 0: plain numbers.
        return Scale(title=title, low=0.0, high=1.0, ticks=ticks)
    low, high = min(usable), max(usable)
    if is_log:
        factor = max((high / low) ** room, 1.1 if room else 1.0)
        low, high = low / factor, high * factor
        ticks = ticks or tuple((tick, _tick(tick)) for tick in log_ticks(low, high))
    else:
        extra = room * (high - low) or (0.1 * abs(high) or 0.1)
        low, high = (low if low == 0 or not room else low - extra), high + (extra if room else 0)
        high = high if high > low else low + 1
    return Scale(title=title, low=low, high=high, is_log=is_log, suffix=suffix, ticks=ticks)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis.

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


def _tick(value: float) -> str:
    """In few letters, so that ticks do not touch."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if 10 * size <= value < 1000 * size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def shades(count: int, *, ordered: bool) -> list[str]:
    """Names of colors; numbers have shades of one scale, from the first to the last."""
    if ordered and count > 2:
        return [f"shade:{i / (count - 1):.3f}" for i in range(count)]
    return [f"c{i % COLORS}" for i in range(count)]


def is_wide(values: Sequence[float], times: float = 10.0) -> bool:
    """Whether they span more than a linear axis shows: the largest is so many times the least."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > times


def short(value: float) -> float:
    """Nobody sees more digits, and they are most of the page's data."""
    return float(f"{value:.4g}")


def finite(value: float, size: float = 1.0) -> float | None:
    """A value in a unit of this size; None for what has no place on an axis."""
    return short(value / size) if math.isfinite(value) else None
