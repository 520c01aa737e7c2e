"""What the outcome depends on: facts about graphs, or a number that is varied, in a sentence."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from .comparison import Comparison, Row
from .naming import place, values_on
from .predictions import FACTS, Prediction
from .row import SIGNIFICANT
from .statistics import holm
from .winners import figure, named_row
from .words import MINUS, count, listed, number, size

__all__ = ["foretold", "trend"]

_PLACES_MAX: Final = 3

# Correlations nearer to each other than this are called alike.
_ALIKE: Final = 0.05

# Amounts nearer to each other than this factor are called the same.
_SAME: Final = 1.02

_WAYS: Final = (
    *("grows", "falls", "is best in between", "changes unsteadily"),
    "stays the same within the noise",
)


def foretold(found: Sequence[Prediction], comparisons: Sequence[Comparison]) -> str | None:
    """Say which fact about the graphs foretells best what they are compared by.

    Args:
        found: All predictions of a study.
        comparisons: Of it, which say what is looked at.

    Returns:
        None where there is nothing to say.
    """
    measure = comparisons[0].measure.name
    looked_at = [one for one in found if one.measure.name == measure and not math.isnan(one.rho)]
    places = _places(looked_at)
    if not places:
        return None
    ranked = _ranked(places)
    if not ranked:
        return None
    what = _observed(comparisons[0])
    steady = [fact for fact in ranked if _is_steady(places, fact)]
    if not steady:
        return (
            f"No fact about the graphs foretells {what} the same way everywhere; the best, "
            f"{FACTS[ranked[0]]}, has rank correlations of {_rhos(places, ranked[0])}."
        )
    best, worst = steady[0], ranked[-1]
    n = max(one.n for one in looked_at)
    p, top = _surest(places, best)
    if not p < SIGNIFICANT:
        tried = count(len(ranked), "fact")
        tried += f" tried at {len(places)} places" if len(places) > 1 else " tried"
        return (
            f"No fact about the graphs foretells {what} more surely than chance might; the best, "
            f"{FACTS[best]}, has a rank correlation of {_signed(top.rho)} over "
            f"{count(n, 'graph')} (p = {number(p, 2)}, for {tried})."
        )
    alike = [fact for fact in steady[1:] if _mean(places, best) - _mean(places, fact) < _ALIKE]
    second = ""
    if alike:
        verb = "does" if len(alike) == 1 else "do"
        second = f"; {listed([FACTS[fact] for fact in alike])} {verb} about as well"
    rest = (
        "" if worst in (best, *alike) else f"; {FACTS[worst]} does worst ({_bare(places, worst)})"
    )
    return (
        f"Of the facts about the graphs, {FACTS[best]} foretells {what} best: "
        f"{_direction(places, best)}, with a rank correlation of {_rhos(places, best)} over "
        f"{count(n, 'graph')}{second}{rest}."
    )


def trend(comparisons: Sequence[Comparison]) -> str | None:
    """Say how the outcome moves along a first axis of numbers.

    Args:
        comparisons: One for each place of the further axes.

    Returns:
        None where the first axis is not one of numbers, or too little is known.
    """
    if len(comparisons) > _PLACES_MAX:
        return _trends(comparisons)
    clauses = []
    for comparison in comparisons:
        clause = _trend(comparison)
        if clause is not None:
            where = f"with {place(comparison.at)}, " if comparison.at else ""
            clauses.append(f"{where}{clause}")
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}." if text else None


def _trends(comparisons: Sequence[Comparison]) -> str | None:
    """Of many places, how many there are at which it moves which way."""
    ways: dict[str, int] = {}
    for comparison in comparisons:
        rows = _along(comparison)
        if len(rows) > 1:
            way = _way(comparison, rows)
            ways[way] = ways.get(way, 0) + 1
    if not ways:
        return None
    ranked = sorted(ways.items(), key=lambda one: -one[1])
    if len(ranked) == 1 and ranked[0][1] == len(comparisons):
        said = f"{ranked[0][0]} at all {ranked[0][1]} places"
    else:
        said = listed([f"{way} at {count(times, 'place')}" for way, times in ranked], len(_WAYS))
    axis = comparisons[0].axis
    return f"As {axis} grows, {_observed(comparisons[0])} {said}."


def _way(comparison: Comparison, rows: Sequence[Row]) -> str:
    """How what is observed moves along rows, one of `_WAYS`."""
    if comparison.noise_known and all(row.as_good_as_best for row in rows):
        return "stays the same within the noise"
    means = [row.figures[comparison.measure.name].mean for row in rows]
    if all(after >= before for before, after in pairwise(means)):
        return "grows"
    if all(after <= before for before, after in pairwise(means)):
        return "falls"
    return (
        "changes unsteadily" if comparison.rows[0] in (rows[0], rows[-1]) else "is best in between"
    )


def _trend(comparison: Comparison) -> str | None:
    rows = _along(comparison)
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    way, what = _way(comparison, rows), _observed(comparison)
    start, end = figure(comparison, first), figure(comparison, last)
    ends = f"from {named_row(comparison, first)} to {named_row(comparison, last)} {what}"
    if way in ("grows", "falls"):
        return f"{ends} {way} from {start} to {end}{_bytes(comparison, first, last)}"
    if way == "changes unsteadily":
        return f"{ends} goes from {start} to {end}, not steadily{_bytes(comparison, first, last)}"
    if way == "is best in between":
        best = comparison.rows[0]
        return (
            f"{ends} is best in between, {figure(comparison, best)} at "
            f"{named_row(comparison, best)}, against {start} and {end} at the ends"
        )
    return f"{ends} {way}"


def _along(comparison: Comparison) -> list[Row]:
    """Rows that can be compared, by the number that their label is."""
    rows = comparison.ranked
    values = values_on(tuple(row.label for row in rows))
    if values is None:
        return []
    return [row for _, row in sorted(zip(values, rows, strict=True), key=lambda one: one[0])]


def _bytes(comparison: Comparison, first: Row, last: Row) -> str:
    name = "bytes_to_target" if comparison.measure.curve is not None else "bytes_sent"
    if name not in first.figures or name not in last.figures:
        return ""
    start, end = first.figures[name].mean, last.figures[name].mean
    if max(start, end) <= _SAME * min(start, end):
        return ""
    until = " until then" if comparison.measure.curve is not None else ""
    return f", and the bytes sent{until} go from {size(start)} to {size(end)}"


def _observed(comparison: Comparison) -> str:
    if comparison.measure.name == "time_to_target_s":
        return f"the time to accuracy {number(comparison.target)}"
    return f"the {comparison.measure.words}"


def _places(found: Sequence[Prediction]) -> list[dict[str, Prediction]]:
    places: dict[str, dict[str, Prediction]] = {}
    for one in found:
        places.setdefault(place(one.at), {})[one.fact] = one
    return list(places.values())


def _ranked(places: Sequence[dict[str, Prediction]]) -> list[str]:
    """Facts that are known at all places, those that foretell best first."""
    facts = [fact for fact in FACTS if all(fact in found for found in places)]
    return sorted(facts, key=lambda fact: -_mean(places, fact))


def _mean(places: Sequence[dict[str, Prediction]], fact: str) -> float:
    return sum(abs(found[fact].rho) for found in places) / len(places)


def _is_steady(places: Sequence[dict[str, Prediction]], fact: str) -> bool:
    """Whether it points the same way at all places."""
    rhos = [found[fact].rho for found in places]
    return not min(rhos) < 0 < max(rhos)


def _surest(places: Sequence[dict[str, Prediction]], fact: str) -> tuple[float, Prediction]:
    """The least p of a fact at any place, for so many facts and places having been tried."""
    corrected = holm([_corrected(facts, fact) for facts in places])
    at = min(range(len(places)), key=corrected.__getitem__)
    return corrected[at], places[at][fact]


def _corrected(facts: dict[str, Prediction], fact: str) -> float:
    """The p of a fact, for so many having been tried."""
    names = list(facts)
    return holm([facts[name].p for name in names])[names.index(fact)]


def _rhos(places: Sequence[dict[str, Prediction]], fact: str) -> str:
    shown = [found[fact] for found in places][:_PLACES_MAX]
    if len(places) == 1:
        return _signed(shown[0].rho)
    return listed([f"{_signed(one.rho)} with {place(one.at)}" for one in shown])


def _direction(places: Sequence[dict[str, Prediction]], fact: str) -> str:
    measure = places[0][fact].measure
    rhos = [found[fact].rho for found in places]
    grows = sum(rhos) > 0
    if measure.curve is not None:
        return f"the larger it is, the {'later' if grows else 'sooner'}"
    return f"the larger it is, the {'larger' if grows else 'smaller'} that is"


def _bare(places: Sequence[dict[str, Prediction]], fact: str) -> str:
    return listed([_signed(found[fact].rho) for found in places[:_PLACES_MAX]])


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS)
