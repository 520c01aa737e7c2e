"""Rankings in words: the leader, comparisons with it, and detectable differences."""

import math
from typing import Final

from ..format import count, listed, named, number, place, spread
from ..metrics import Metric
from ..results import Results
from .ranking import Comparison, Row, Verdict, comparisons

__all__ = ["detectable_words", "figure_words", "headlines", "verdict_words"]

# Number of places that have a headline; tables and charts have all of them.
_PLACES_MAX: Final = 3

# Factors above this are written as "times", factors below it in percent.
_TIMES_FROM = 3.0


def headlines(results: Results) -> tuple[str, ...]:
    """Return a sentence for each of the first places: who leads, and by which figure."""
    found = comparisons(results)
    lines = [f"{_headline(one)}." for one in found[:_PLACES_MAX]]
    more = len(found) - _PLACES_MAX
    return (*lines, f"And {more} more such rankings.") if more > 0 else tuple(lines)


def _headline(comparison: Comparison) -> str:
    metric = comparison.metric
    where = f"With {place(comparison.at)}, " if comparison.at else ""
    if not comparison.ranked:
        text = f"{where}there is no {metric.words} to compare"
        return text[:1].upper() + text[1:]
    first = [row for row in comparison.rows if row.verdict in (Verdict.FIRST, Verdict.TIE)]
    leaders = listed([named(comparison.axis, row.label) for row in first])
    most = "lowest" if metric.lower_is_better else "highest"
    by = metric.words.replace("to target", f"to target {number(comparison.study.target)}", 1)
    figure = spread(comparison.rows[0].figures[metric.name], metric.unit)
    text = f"{where}{'the' if where else 'The'} {most} mean {by} is that of {leaders}: {figure}"
    if not comparison.noise_known:
        return f"{text}; with one seed the noise is not known"
    others = [row for row in comparison.rows if row.verdict is Verdict.UNDECIDED]
    labels = listed([named(comparison.axis, row.label) for row in others])
    return f"{text}; {Verdict.UNDECIDED} from {labels}" if others else text


def figure_words(row: Row, metric: Metric) -> str:
    """Format a row's figure, or how often it reaches the target, for a cell of a table."""
    found = row.figures.get(metric.name)
    if found is None and metric.to_target and not row.missing:
        return f"{row.arrived.get(metric.name, 0)} of {row.n} arrive"
    return spread(found, metric.unit)


def verdict_words(row: Row, comparison: Comparison) -> str:
    """Describe how a row compares with the first, for a cell of a table."""
    verdict = row.verdict
    if row.missing:
        asked = row.n + row.missing
        return f"{row.n} of {count(asked, 'seed')} {'has' if asked == 1 else 'have'} a result"
    if verdict is Verdict.FIRST:
        # "Best" only if all others are significantly worse.
        others = [other.verdict for other in comparison.rows[1:]]
        return "the best" if set(others) == {Verdict.WORSE} else "first"
    if verdict is Verdict.TIE:
        return "tie: the same with every seed" if row.n > 1 else "tie"
    is_late = comparison.metric.to_target and comparison.metric.name not in row.figures
    if verdict is Verdict.NOT_COMPARED and not is_late:
        return "no figure"
    gap = _gap_words(row, comparison)
    if is_late:
        gap = f"{comparison.reached(row)} of {row.n} arrive"
    if verdict is Verdict.NOT_COMPARED:
        return gap
    if verdict is Verdict.NOISE_UNKNOWN or (verdict is Verdict.UNDECIDED and is_late):
        return f"{gap}; {verdict}"
    if verdict is Verdict.UNDECIDED:
        return f"{verdict} (detectable: {detectable_words(row, comparison)})"
    return f"{gap}, {'p < 0.0001' if row.p < 1e-4 else f'p = {number(row.p, 2)}'}"


def _gap_words(row: Row, comparison: Comparison) -> str:
    """Format the difference to the first, with its interval: ``1.5 × (1.2 to 1.9)``."""
    if row.gap is None:
        return ""
    scale, unit = (1.0, "×") if comparison.metric.is_ratio else _unit_of(comparison.metric)
    low, high = row.gap.low * scale, row.gap.high * scale
    around = f" ({number(low)} to {number(high)})" if math.isfinite(low) else ""
    return f"{number(row.gap.mean * scale)} {unit}".strip() + around


def detectable_words(row: Row, comparison: Comparison) -> str:
    """Format the smallest difference that would be significant in 4 of 5 studies."""
    if math.isnan(row.detectable):
        return "—"
    metric = comparison.metric
    # A fraction cannot differ by more than all of it.
    if metric.unit == "%" and row.detectable >= 1:
        return "none"
    if metric.is_ratio:
        if row.detectable < _TIMES_FROM:
            return f"{number(100 * (row.detectable - 1), 2)} %"
        return f"{number(row.detectable, 2)} times"
    scale, unit = _unit_of(metric)
    return f"{number(row.detectable * scale, 2)} {unit}".strip()


def _unit_of(metric: Metric) -> tuple[float, str]:
    return (100.0, "points") if metric.unit == "%" else (1.0, metric.unit)
