"""Who is first, in a sentence."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from .comparison import Comparison, Row
from .measures import Measure
from .naming import named, place
from .statistics import Interval
from .titles import head_of, headed, reason, title
from .words import MINUS, count, listed, number, percent, uncapitalized

__all__ = ["figure", "named_row", "winner"]

_PLACES_MAX: Final = 3
_NAMES_MAX: Final = 3

# A tie as wide as this factor comes more likely of few seeds than of likeness.
_WIDE: Final = 1.25


def winner(found: Sequence[Comparison]) -> str:
    """Say who is first at each place, by how much, and whether that is more than noise.

    Args:
        found: One for each place of the further axes, at least one.
    """
    known = [comparison for comparison in found if comparison.ranked]
    if not known:
        return "There is no figure to compare: not every result has any of them."
    text = _first(known)
    if len(known) == len(found):
        return text
    silent = [place(comparison.at) for comparison in found if not comparison.ranked]
    where = listed(silent, _PLACES_MAX)
    return f"{text.removesuffix('.')}; there is no figure to compare with {where}."


def _first(found: Sequence[Comparison]) -> str:
    if len(found) == 1:
        return _at_one_place(found[0])
    if len(found) > _PLACES_MAX:
        return _at_many_places(found)
    names = {named_row(comparison, comparison.rows[0]) for comparison in found}
    if len(names) == 1 and len({comparison.measure.name for comparison in found}) == 1:
        return _everywhere(found)
    return _at_few_places(found)


def named_row(comparison: Comparison, row: Row) -> str:
    """What to call a row in a sentence."""
    return named(comparison.axis, row.label)


def figure(comparison: Comparison, row: Row) -> str:
    """A row's figure with its unit: what the rows are ranked by."""
    return _shown(comparison, row.figures[comparison.measure.name].mean)


def _shown(comparison: Comparison, value: float) -> str:
    return (
        percent(value) if comparison.measure.name == "accuracy" else comparison.measure.shown(value)
    ).replace("-", MINUS if value < 0 else "-")


def _at_one_place(comparison: Comparison) -> str:
    best = comparison.rows[0]
    name, figured = named_row(comparison, best), _with_figure(comparison)
    head = f"{headed(comparison)} is {name}, {figured}"
    if len(comparison.rows) == 1 and comparison.measure.curve is not None:
        head = f"Accuracy {number(comparison.target)} is reached with {name} {figured}"
    if comparison.at:
        head = f"With {place(comparison.at)}, {uncapitalized(head)}"
    return f"{head}{_over_seeds(comparison, best)}{_rivals(comparison)}."


def _everywhere(found: Sequence[Comparison]) -> str:
    """The same is first at all of few places."""
    first = found[0]
    head = f"{head_of(found)} is {named_row(first, first.rows[0])} throughout"
    clauses = []
    for comparison in found:
        margin = _margin(comparison)
        beside = f"{place(comparison.at)}; {margin}" if margin else place(comparison.at)
        clauses.append(f"{_with_figure(comparison)} ({beside})")
    return f"{head}: {listed(clauses)}."


def _at_few_places(found: Sequence[Comparison]) -> str:
    """One clause for each place; those where the same is measured share their beginning."""
    first, *rest = found
    head = head_of(found)
    clauses = [f"{head} is, with {place(first.at)}, {_clause(first)}"]
    measure = first.measure
    for comparison in rest:
        clause, before = _clause(comparison), measure
        measure = comparison.measure
        if measure != before:
            titled = uncapitalized(title(comparison))
            clause = f"{reason(comparison)}{titled} is {clause}"
        clauses.append(f"with {place(comparison.at)}, {clause}")
    return f"{'; '.join(clauses)}."


def _at_many_places(found: Sequence[Comparison]) -> str:
    """Count at how many places each is first, alone or with others."""
    wins = Counter(
        named_row(comparison, row)
        for comparison in found
        for row in (comparison.rows[0], *comparison.tied)
    )
    alone = Counter(
        named_row(comparison, comparison.rows[0])
        for comparison in found
        if not comparison.tied and not comparison.unknown
    )
    noise_known = any(comparison.noise_known for comparison in found)
    alike = len({comparison.measure.name for comparison in found}) == 1
    what = head_of(found) if alike else "The best"
    within = ", or as good within the noise," if noise_known else ""
    parts: list[str] = []
    for name, times in wins.most_common(_NAMES_MAX):
        several = f"{times} of {len(found)} places" if not parts else f"{times}"
        if times == len(found):
            several = f"all {times} places" if not parts else "all"
        ahead = _alone(alone[name], len(found)) if noise_known else ""
        parts.append(f"{name} at {several}{ahead}")
    more = len(wins) - len(parts)
    rest = f" and {more} more at fewer" if more > 0 else ""
    return f"{what}{within} is {listed(parts)}{rest}; {_extremes(found)}."


def _alone(times: int, places: int) -> str:
    if times == places:
        return " (alone at each)"
    return f" (alone at {times})" if times else ""


def _extremes(found: Sequence[Comparison]) -> str:
    """The places at which whoever is best there has the least and the most."""
    measure = found[0].measure
    alike = [one for one in found if one.measure.name == measure.name]
    ranked = sorted(alike, key=lambda one: one.rows[0].figures[measure.name].mean)
    first, last = ranked[0], ranked[-1]
    text = (
        f"{_best_there(measure)} between {figure(first, first.rows[0])} (with {place(first.at)}) "
        f"and {figure(last, last.rows[0])} (with {place(last.at)})"
    )
    others = len(found) - len(alike)
    if measure.curve is None or not others:
        return text
    return f"{text}, and at {count(others, 'place')} none gets there with every seed"


def _best_there(measure: Measure) -> str:
    return "whoever is fastest takes" if measure.curve else f"the best {measure.words} is"


def _clause(comparison: Comparison) -> str:
    name = named_row(comparison, comparison.rows[0])
    margin = _margin(comparison)
    return f"{name} {_with_figure(comparison)}{f' ({margin})' if margin else ''}"


def _margin(comparison: Comparison) -> str:
    """Whether the first is first by more than noise, in few words."""
    tied = comparison.tied
    if tied:
        return f"{_names(comparison, tied)} {_as_good(comparison, len(tied))}"
    if comparison.unknown:
        return "noise not known"
    if len(comparison.ranked) > 1:
        return "ahead of all others"
    if len(comparison.rows) == 1:
        return ""
    if comparison.measure.curve is None or comparison.is_waiting:
        return "no other has results of all seeds"
    return "no other gets there with every seed"


def _with_figure(comparison: Comparison) -> str:
    value = figure(comparison, comparison.rows[0])
    name = comparison.measure.name
    if name == "time_to_target_s":
        return f"after {value} of virtual time"
    return (
        f"with {value}" if name == "accuracy" else f"with a {comparison.measure.words} of {value}"
    )


def _over_seeds(comparison: Comparison, row: Row) -> str:
    """What the figure is the mean of, and how sure it is."""
    found = row.figures[comparison.measure.name]
    if row.missing:
        return f" ({row.seeds}{_bounds(comparison, found)})"
    if found.n < 2:
        return ""
    return f" (mean of {count(found.n, 'seed')}{_bounds(comparison, found)})"


def _bounds(comparison: Comparison, found: Interval) -> str:
    if not math.isfinite(found.low) or found.low == found.high:
        return ""
    most = 1.0 if comparison.measure.name == "accuracy" else math.inf
    # A loss may be less than nothing, and no other figure.
    is_signed = comparison.measure.name == "loss" and not comparison.measure.is_ratio
    low = _shown(comparison, found.low if is_signed else max(0.0, found.low))
    high = _shown(comparison, min(most, found.high))
    unit = high.partition(" ")[2]
    # The unit once is enough where both have the same.
    return f", 95 % interval {low.removesuffix(f' {unit}') if unit else low} to {high}"


def _rivals(comparison: Comparison) -> str:
    """How the best stands to those behind."""
    others = comparison.ranked[1:]
    if not others:
        return ""
    following = _with_its_figure(comparison, others[0])
    if not comparison.noise_known:
        return f", then comes {following}; from one seed it cannot be told what is noise"
    tied = comparison.tied
    if not tied and comparison.unknown:
        return f", then comes {following}, noise not known: they share too few seeds"
    if not tied:
        is_close = figure(comparison, comparison.rows[0]) == figure(comparison, others[0])
        margin = "by little, but by more than the noise" if is_close else "by more than the noise"
        return f", ahead of the next, {following}, {margin}"
    names = _names(comparison, tied) if len(tied) > 1 else _with_its_figure(comparison, tied[0])
    if len(tied) == len(comparison.rows) - 1 > 1:
        names = f"all others, up to {_with_its_figure(comparison, tied[-1])},"
    return f"; {names} {_as_good(comparison, len(tied))}{_doubt(comparison)}"


def _with_its_figure(comparison: Comparison, row: Row) -> str:
    return f"{named_row(comparison, row)} ({figure(comparison, row)})"


def _names(comparison: Comparison, rows: Sequence[Row]) -> str:
    return listed([named_row(comparison, row) for row in rows], _NAMES_MAX)


def _as_good(comparison: Comparison, n: int) -> str:
    verb = "is" if n == 1 else "are"
    word = "fast" if comparison.measure.name == "time_to_target_s" else "good"
    return f"{verb} as {word} within the noise"


def _doubt(comparison: Comparison) -> str:
    """Of ties that are wide: it is the noise that is large."""
    gaps = [row.gap.mean for row in comparison.tied if row.gap is not None]
    if not comparison.measure.is_ratio or not gaps or max(gaps) < _WIDE:
        return ""
    return f", though up to {number(max(gaps), 2)} times as much in the mean: more seeds would tell"
