"""Numbers and lists as people read them; what is written in a report has these forms."""

import math
from collections.abc import Sequence
from typing import Final

from .statistics import Interval

__all__ = [
    *("MINUS", "count", "listed", "number", "percent", "seconds", "size", "spread", "times"),
    "uncapitalized",
]

MINUS: Final = "\N{MINUS SIGN}"
"""As it is printed; a hyphen is shorter than a plus."""

_SIZES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_MINUTES_S: Final = 120.0
_HOURS_S: Final = 7200.0


def number(value: float | None, digits: int = 3) -> str:
    """With so many significant digits, thousands apart, without zeros that say nothing.

    >>> number(0.012345), number(1234.5), number(1234567.0), number(2.0), number(1e-9), number(None)
    ('0.0123', '1,230', '1,230,000', '2', '1e-09', '—')
    """
    if value is None or not math.isfinite(value):
        return "—"
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.{digits - 1}g}" if abs(value) < 1 else f"{value:.{digits}g}"
    exponent = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - exponent)
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def seconds(value: float | None) -> str:
    """A duration.

    >>> seconds(0.0123), seconds(5.25), seconds(300.0), seconds(9000.0), seconds(None)
    ('12.3 ms', '5.25 s', '5 min', '2.5 h', '—')
    """
    if value is None or not math.isfinite(value):
        return "—"
    if 0 < value < 0.1:
        return f"{number(value * 1e3)} ms"
    if value < _MINUTES_S:
        return f"{number(value)} s"
    if value < _HOURS_S:
        return f"{number(value / 60)} min"
    return f"{number(value / 3600)} h"


def size(value: float | None) -> str:
    """An amount of bytes.

    >>> size(512), size(2_410_000), size(3.2e9), size(None)
    ('512 B', '2.41 MB', '3.2 GB', '—')
    """
    if value is None or not math.isfinite(value):
        return "—"
    for unit, name in _SIZES:
        if value >= unit:
            return f"{number(value / unit)} {name}"
    return f"{number(value)} B"


def percent(value: float | None) -> str:
    """A part of a whole.

    >>> percent(0.9312), percent(0.0004), percent(0.9995), percent(1.0), percent(None)
    ('93.1 %', '0.04 %', '99.95 %', '100 %', '—')
    """
    if value is None or not math.isfinite(value):
        return "—"
    # With three digits, what is all but perfect would be called perfect.
    return f"{number(100 * value, 4 if 0.99 < value < 1 else 3)} %"


def times(ratio: float) -> str:
    """How many times as much; two digits do, but near 1.

    >>> times(1.034), times(1.234), times(14.4), times(1043.0)
    ('1.03 times', '1.2 times', '14 times', '1,000 times')
    """
    return f"{number(ratio, 3 if 0.9 < ratio < 1.1 else 2)} times"


def count(n: int, one: str, several: str | None = None) -> str:
    """So many of something.

    >>> count(1, "seed"), count(3, "seed"), count(2, "study", "studies")
    ('1 seed', '3 seeds', '2 studies')
    """
    return f"1 {one}" if n == 1 else f"{n:,} {several or one + 's'}"


def listed(names: Sequence[str], at_most: int = 4) -> str:
    """Names one after the other; of more than there may be the rest are counted.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdefg"), at_most=3)
    ('a', 'a, b and c', 'a, b, c and 4 more')
    """
    shown = list(names)
    # To count a single one takes as much room as to name it.
    if len(shown) > at_most + 1:
        shown = [*shown[:at_most], f"{len(names) - at_most} more"]
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def spread(found: Interval, digits: int = 3) -> str:
    """A mean and its 95 % interval, the mean with no more digits than the interval bears out.

    >>> spread(Interval(mean=12.3456, low=12.1, high=12.5912, n=3))
    '12.35 ± 0.25'
    >>> spread(Interval(mean=12.3456, low=float("nan"), high=float("nan"), n=1))
    '12.3'
    """
    if found.n < 2 or not math.isfinite(found.half):
        return number(found.mean, digits)
    if found.half == 0:
        return f"{number(found.mean, digits + 1)} ± 0"
    places = max(0, 1 - math.floor(math.log10(found.half)))
    if places > 8:
        return f"{number(found.mean, digits + 1)} ± {number(found.half, 2)}"
    return f"{found.mean:,.{places}f} ± {found.half:,.{places}f}"


def uncapitalized(text: str) -> str:
    """A sentence as it goes on behind another.

    >>> uncapitalized("The fastest")
    'the fastest'
    """
    return text[:1].lower() + text[1:]
