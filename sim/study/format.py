"""Numbers, units and names formatted for tables, charts and sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from .statistics import Interval
from .study import NUMBER

__all__ = [
    "count",
    "listed",
    "named",
    "number",
    "place",
    "scale_of",
    "shown",
    "spread",
]

# For each unit of the values: the least value for which a display unit is used, its name and size.
_SCALES: Final[Mapping[str, tuple[tuple[float, str, float], ...]]] = {
    "s": ((7200.0, "h", 3600.0), (120.0, "min", 60.0), (0.1, "s", 1.0), (0.0, "ms", 1e-3)),
    "bytes": (
        *((1e12, "TB", 1e12), (1e9, "GB", 1e9), (1e6, "MB", 1e6), (1e3, "kB", 1e3)),
        (0.0, "B", 1.0),
    ),
    "%": ((0.0, "%", 0.01),),
}

# An interval below the first part of the mean is rounding; four digits do not show the second.
_ROUNDING: Final = 1e-12
_SEEN: Final = 5e-5


def number(value: float | None, digits: int = 3) -> str:
    """Format with *digits* significant digits, thousands separators, and no trailing zeros.

    >>> number(0.012345), number(1234.5), number(1234567.0), number(2.0), number(1e-9), number(None)
    ('0.0123', '1,230', '1,230,000', '2', '1e-09', '—')
    """
    if value is None or not math.isfinite(value):
        return "—"
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.{digits - 1}g}" if abs(value) < 1 else f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits}g}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scale_of(unit: str, value: float) -> tuple[str, float]:
    """Return the unit to show a value in, and its size.

    >>> scale_of("bytes", 2e6), scale_of("s", 300.0), scale_of("steps", 5.0), scale_of("%", 0.5)
    (('MB', 1000000.0), ('min', 60.0), ('steps', 1.0), ('%', 0.01))
    """
    for least, name, size in _SCALES.get(unit, ()):
        if abs(value) >= least and not (name == "ms" and value == 0):
            return name, size
    return unit, 1.0


def shown(value: float | None, unit: str = "") -> str:
    """Format a value with its unit, in three significant digits.

    >>> shown(0.0123, "s"), shown(5.25, "s"), shown(300.0, "s"), shown(None, "s")
    ('12.3 ms', '5.25 s', '5 min', '—')
    >>> shown(2_410_000, "bytes"), shown(1230, "steps"), shown(0.9312, "%"), shown(0.9995, "%")
    ('2.41 MB', '1,230 steps', '93.1 %', '99.95 %')
    """
    if value is None or not math.isfinite(value):
        return "—"
    if unit == "%":
        # With three digits, a nearly perfect value would round to 100 %.
        return f"{number(100 * value, 4 if 0.99 < value < 1 else 3)} %"
    name, size = scale_of(unit, value)
    return f"{number(value / size)} {name}".strip()


def count(n: int, one: str) -> str:
    """Format a count with its noun.

    >>> count(1, "seed"), count(3000, "seed")
    ('1 seed', '3,000 seeds')
    """
    return f"1 {one}" if n == 1 else f"{n:,} {one}s"


def listed(names: Sequence[str], at_most: int = 4) -> str:
    """Join names, and count the rest beyond *at_most*.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdefg"), at_most=3)
    ('a', 'a, b and c', 'a, b, c and 4 more')
    """
    shown = list(names)
    # Counting a single name takes as much room as naming it.
    if len(shown) > at_most + 1:
        shown = [*shown[:at_most], f"{len(names) - at_most} more"]
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def spread(found: Interval | None, unit: str = "") -> str:
    """Format a mean and its 95 % interval, with no more digits than the interval supports.

    >>> spread(Interval(mean=12.3456, low=12.1, high=12.5912, n=3))
    '12.35 ± 0.25'
    >>> spread(Interval(mean=2e6, low=1.9e6, high=2.1e6, n=3), "bytes")
    '2.00 ± 0.10 MB'
    >>> spread(Interval(mean=12.3456, low=float("nan"), high=float("nan"), n=1)), spread(None)
    ('12.3', '–')
    """
    if found is None or not math.isfinite(found.mean):
        return "–"
    name, size = scale_of(unit, found.mean)
    mean, half = found.mean / size, found.half / size
    if not math.isfinite(half):
        return f"{number(mean)} {name}".strip()
    # Two digits of the interval, or four of the mean if that shows none of it.
    is_tiny = half < _SEEN * abs(mean)
    first = math.floor(math.log10(abs(mean) if is_tiny else half)) if half or mean else 0
    places = max(0, (3 if is_tiny else 1) - first)
    text = f"{mean:,.{places}f} ± {half:,.{places}f}"
    if half <= _ROUNDING * abs(mean):
        text = f"{number(mean, 4)} ± 0"
    elif places > 8:
        text = f"{number(mean, 4)} ± {number(half, 2)}"
    return f"{text} {name}".strip()


def named(axis: str, label: str) -> str:
    """Name a point, with its axis if the label alone would be unclear.

    >>> named("topology", "ring"), named("p", "0.1"), named("merge", "true")
    ('ring', 'p = 0.1', 'merge = true')
    """
    # A line break must not break the sentence around it.
    label = " ".join(label.split())
    is_bare = NUMBER.fullmatch(label) or label in ("true", "false")
    return f"{axis} = {label}" if is_bare else label


def place(at: Mapping[str, str]) -> str:
    """Name a place on the axes.

    >>> place({"partition": "dirichlet:0.1", "loss": "0.2"})
    'dirichlet:0.1 and loss = 0.2'
    """
    return " and ".join(named(axis, label) for axis, label in at.items())
