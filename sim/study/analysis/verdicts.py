"""Who leads a ranking, how a row stands to the first, and what that could have seen, in words."""

import math
from typing import Final

from ..format import listed, named, number, of_seeds, place, sentence
from ..metrics import Metric
from ..results import Results
from .ranking import Comparison, Row, Verdict, comparisons

__all__ = [
    "headlines",
    "p_words",
    "seen_words",
    "verdict_words",
]

# Places that have a headline; tables and charts have them all.
_PLACES_MAX: Final = 3

# Above such a factor people say how many times, below it how many percent.
_TIMES_FROM = 3.0

# In place of a difference, where not even the largest would have been seen.
_NONE_SEEN: Final = "none"


def headlines(results: Results) -> tuple[str, ...]:
    """Who leads, and who is not told apart from that: a sentence for each of the first places."""
    found = comparisons(results)
    lines = [
        sentence(f"with {place(one.at)}, {_headline(one)}" if one.at else _headline(one))
        for one in found[:_PLACES_MAX]
    ]
    more = len(found) - _PLACES_MAX
    return (*lines, f"And {more} more such rankings.") if more > 0 else tuple(lines)


def _headline(comparison: Comparison) -> str:
    metric = comparison.metric
    if not comparison.ranked:
        return f"there is no {metric.words} to compare"
    leaders = listed([named(comparison.axis, row.label) for row in comparison.leaders])
    most = "lowest" if metric.lower_is_better else "highest"
    by = metric.words.replace("to target", f"to target {number(comparison.study.target)}", 1)
    figure = metric.spread(comparison.rows[0].figures[metric.name])
    text = f"the {most} mean {by} is that of {leaders}: {figure}"
    if not comparison.noise_known:
        return f"{text}; with one seed the noise is not known"
    others = [named(comparison.axis, row.label) for row in comparison.undecided]
    return f"{text}; not told apart: {listed(others)}" if others else text


def verdict_words(row: Row, comparison: Comparison) -> str:
    """What is known of a row beside the first: one cell of a table."""
    if row.missing:
        return of_seeds(row.n, row.n + row.missing)
    if row.verdict is Verdict.FIRST:
        return _first(comparison)
    if row.verdict is Verdict.TIE:
        return "tie: the same with every seed" if row.n > 1 else "tie"
    if row.verdict is Verdict.NOT_COMPARED:
        return "target not always reached" if comparison.metric.to_target else "no figure"
    if row in comparison.late:
        return _late(row, comparison)
    if row.verdict is Verdict.APART:
        return f"{_gap_words(row, comparison)}, {p_words(row.p)}"
    if row.verdict is Verdict.NOISE_UNKNOWN:
        return f"{_gap_words(row, comparison)}; noise unknown"
    return f"not told apart; {_would_be_seen(seen_words(row, comparison))}"


def _first(comparison: Comparison) -> str:
    """The best only where all others are told apart from it."""
    others = comparison.rows[1:]
    is_best = bool(others) and all(row.verdict is Verdict.APART for row in others)
    return "the best" if is_best else "first"


def _late(row: Row, comparison: Comparison) -> str:
    arrived = f"{comparison.reached(row)} of {row.n} arrive"
    if row.verdict is Verdict.NOISE_UNKNOWN:
        return f"{arrived}; noise unknown"
    if row.verdict is Verdict.UNDECIDED:
        return f"{arrived}: not told apart; {_would_be_seen(seen_words(row, comparison))}"
    if row.is_by_arrivals:
        return f"{arrived}, {p_words(row.p)}"
    return f"{arrived}; {_end_words(row, comparison)}, {p_words(row.p)}"


def _gap_words(row: Row, comparison: Comparison) -> str:
    """The difference to the first, with its interval: ``1.5 × (1.2 to 1.9)``."""
    if row.gap is None:
        return ""
    scale, unit = comparison.gap_unit
    low, high = row.gap.low * scale, row.gap.high * scale
    around = f" ({number(low)} to {number(high)})" if math.isfinite(low) else ""
    return f"{number(row.gap.mean * scale)} {unit or '×'}".strip() + around


def _end_words(row: Row, comparison: Comparison) -> str:
    """How much less far a row came that does not always arrive."""
    gap, end = row.end_gap, comparison.end
    assert gap is not None and end is not None
    scale, unit = _unit_of(end)
    less = sorted(abs(value) * scale for value in (gap.low, gap.high))
    shown = f"{number(abs(gap.mean) * scale)} {unit}".strip()
    return f"ends {shown} lower ({number(less[0])} to {number(less[1])})"


def seen_words(row: Row, comparison: Comparison) -> str:
    """The smallest difference that would have been told from noise in 4 of 5 studies.

    ``none`` where a fraction would have to differ by more than all of it.
    """
    if math.isnan(row.seen_from):
        return "—"
    end = comparison.end
    metric = end if end is not None and row in comparison.late else comparison.metric
    if metric.unit == "%" and row.seen_from >= 1:
        return _NONE_SEEN
    if metric is end:
        scale, unit = _unit_of(end)
        return f"{number(row.seen_from * scale, 2)} {unit} of {end.words}"
    if not metric.is_ratio:
        scale, unit = comparison.gap_unit
        return f"{number(row.seen_from * scale, 2)} {unit}".strip()
    if row.seen_from < _TIMES_FROM:
        return f"{number(100 * (row.seen_from - 1), 2)} %"
    return f"{number(row.seen_from, 2)} times"


def _would_be_seen(seen: str) -> str:
    return f"{'no difference' if seen == _NONE_SEEN else seen} would have been seen"


def p_words(p: float, least: float = 1e-4) -> str:
    """A probability as people write it, for whom smaller ones are of no use."""
    return f"p < {least:g}" if p < least else f"p = {number(p, 2)}"


def _unit_of(metric: Metric) -> tuple[float, str]:
    return (100.0, "points") if metric.unit == "%" else (1.0, metric.unit)
