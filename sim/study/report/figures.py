"""Figures with their units and intervals, as the page shows them."""

import math

from .. import words
from ..measures import Measure
from ..statistics import Interval

__all__ = ["even", "heading", "is_part", "shown", "spread"]

_PARTS = ("accuracy", "idle")

# A part of a mean below which an interval is what adding up has left of equal values.
_ROUNDING = 1e-12

# Likewise, one that four digits of the mean do not show.
_SEEN = 5e-5

_HEADINGS = {
    "time_to_target_s": "Virtual time to target",
    "bytes_to_target": "Bytes to target",
    "steps_to_target": "Steps to target",
    "disagreement_stationary": "Stationary disagreement",
    "virtual_time_s": "Virtual time",
    "idle": "Time spent waiting",
}


def heading(measure: Measure) -> str:
    """What to call it above a column."""
    return _HEADINGS.get(measure.name) or measure.words[0].upper() + measure.words[1:]


def is_part(measure: Measure) -> bool:
    """Whether it is a part of a whole, shown in percent."""
    return measure.name in _PARTS


def shown(measure: Measure, value: float | None) -> str:
    """A value with its unit."""
    if is_part(measure):
        return words.percent(value)
    return measure.shown(value)


def even(measure: Measure, value: float) -> str:
    """A value with its unit, parts of a whole with one digit each, to stand below one another."""
    return f"{100 * value:.1f} %" if is_part(measure) else shown(measure, value)


def spread(measure: Measure, found: Interval | None) -> str:
    """A mean over seeds with its 95 % interval and its unit; a dash for none.

    >>> from ..measures import MEASURES
    >>> spread(MEASURES["bytes_sent"], Interval(mean=2e6, low=1.9e6, high=2.1e6, n=3))
    '2.00 ± 0.10 MB'
    """
    if found is None or not math.isfinite(found.mean):
        return "–"
    unit, size = _scale(measure, found.mean)
    if found.high - found.low < _ROUNDING * abs(found.mean):
        found = Interval(mean=found.mean, low=found.mean, high=found.mean, n=found.n)
    scaled = Interval(
        mean=found.mean / size, low=found.low / size, high=found.high / size, n=found.n
    )
    text = _narrow(scaled) or words.spread(scaled)
    return f"{text} {unit}" if unit else text


def _narrow(found: Interval) -> str | None:
    """With four digits, where the interval is too narrow to be seen in them; else None."""
    if found.mean == 0 or not 0 < found.half < _SEEN * abs(found.mean):
        return None
    places = max(0, 3 - math.floor(math.log10(abs(found.mean))))
    return f"{found.mean:,.{places}f} ± {0:.{places}f}"


def _scale(measure: Measure, mean: float) -> tuple[str, float]:
    """The unit that `shown` takes for a value, and how large it is."""
    if is_part(measure):
        return "%", 0.01
    if measure.unit == "s":
        if mean < 0.1:
            return "ms", 1e-3
        if mean < 120:
            return "s", 1.0
        return ("min", 60.0) if mean < 7200 else ("h", 3600.0)
    if measure.unit == "bytes":
        for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if mean >= size:
                return unit, size
        return "B", 1.0
    return "", 1.0
