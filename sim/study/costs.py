"""Who falls behind, who never arrives, and what is sent on the way, in a sentence."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from .comparison import Comparison, Row, compare
from .naming import named, place
from .result import Results
from .winners import figure, named_row
from .words import count, listed, number, percent, seconds, size, times

__all__ = ["absent", "cost", "costs", "lacking", "traffic"]

_NAMES_MAX: Final = 4

# Amounts nearer to each other than this are called the same.
_ALIKE: Final = 1.02


def cost(results: Results, comparison: Comparison) -> str:
    """Say by how much the last is behind, who never arrives, and who needs the fewest bytes.

    Args:
        results: Of the study.
        comparison: At its one place.
    """
    parts = [*_last(comparison), *absent(comparison), *_bytes(results, comparison)]
    return _sentence(parts or ["there is nothing to compare it with"])


def costs(results: Results, found: Sequence[Comparison]) -> str:
    """Say between which factors the last is behind, how accurate all are in the end, and who needs
    the fewest bytes where.

    Args:
        results: Of the study.
        found: One comparison for each place.
    """
    return _sentence([*_spread_of_last(found), *_accuracies(found), *traffic(results, found)])


def _accuracies(found: Sequence[Comparison]) -> Iterator[str]:
    """Between whom, and where, all final accuracies lie."""
    if found[0].measure.name == "accuracy":
        return
    ends = [
        (row.figures["accuracy"].mean, f"{named_row(one, row)} with {place(one.at)}")
        for one in found
        for row in one.rows
        if "accuracy" in row.figures
    ]
    if ends:
        (least, low), (most, high) = min(ends), max(ends)
        if percent(least) == percent(most):
            yield f"final accuracies are {percent(most)} everywhere"
        else:
            lowest, highest = f"{percent(least)} ({low})", f"{percent(most)} ({high})"
            yield f"final accuracies lie between {lowest} and {highest}"


def _spread_of_last(found: Sequence[Comparison]) -> Iterator[str]:
    measure = found[0].measure
    known = [
        (*last, one)
        for one in found
        if one.measure.name == measure.name
        and one.measure.is_ratio
        and (last := _last_gap(one)) is not None
    ]
    if not known:
        return
    least, most = min(known, key=lambda one: one[0]), max(known, key=lambda one: one[0])
    title = (
        "the slowest that gets there takes"
        if measure.curve
        else f"the {measure.words} of the last is"
    )
    gap, row, where = most
    word = "long" if measure.curve else "large"
    first = "as the first" if measure.curve else "as that of the first"
    if gap <= _ALIKE:
        yield f"{title} about as {word} {first} at every place"
    elif gap <= _ALIKE * least[0]:
        yield f"{title} {times(gap)} as {word} {first}"
    else:
        low = f"{_factor(least[0], word)} {first} (with {place(least[2].at)})"
        high = f"{_factor(gap, word)} ({named_row(where, row)} with {place(where.at)})"
        yield f"{title} between {low} and {high}"


def _factor(ratio: float, word: str) -> str:
    return f"{times(ratio)} as {word}" if ratio > _ALIKE else f"about as {word}"


def absent(comparison: Comparison) -> Iterator[str]:
    """Clauses on those that never reach the target, or have no results, or not of all seeds."""
    what = f"accuracy {number(comparison.target)}"
    if comparison.measure.curve is not None:
        if comparison.never:
            run_s = max(row.figures["virtual_time_s"].mean for row in comparison.never)
            names = _names(comparison, comparison.never)
            yield f"{what} is never reached by {names} within {seconds(run_s)}"
            what = "it"
        if comparison.sometimes:
            some = [
                f"{named_row(comparison, row)} ({row.reached} of {row.n})"
                for row in comparison.sometimes
            ]
            yield f"with some seeds only {what} is reached by {listed(some, _NAMES_MAX)}"
    if comparison.incomplete:
        rows = [(named_row(comparison, row), row) for row in comparison.incomplete]
        yield lacking(rows)
    if comparison.missing:
        missing = [named(comparison.axis, label) for label in comparison.missing]
        yield f"there are no results of {listed(missing, _NAMES_MAX)}"


def lacking(rows: Sequence[tuple[str, Row]]) -> str:
    """A clause on those that lack seeds.

    Args:
        rows: At least one, each behind what to call it.
    """
    names: dict[str, list[str]] = {}
    for name, row in rows:
        names.setdefault(row.seeds, []).append(name)
    parts = [
        f"{listed(those, _NAMES_MAX)} ({seeds}{' each' if len(those) > 1 else ''})"
        for seeds, those in names.items()
    ]
    return f"results are missing of {'; '.join(parts) if len(parts) > 1 else parts[0]}"


def _last(comparison: Comparison) -> Iterator[str]:
    found = _last_gap(comparison)
    if found is None:
        return
    gap, row = found
    name = comparison.measure.name
    doubt = ", which may be noise" if row.as_good_as_best else ""
    if row in comparison.unknown and comparison.noise_known:
        doubt = ", noise not known"
    if name == "time_to_target_s":
        every = all(row.always_reached for row in comparison.rows)
        title = "the slowest" if every else "the slowest that always gets there"
        shown = f"{_factor(gap, 'long')} ({figure(comparison, row)})"
        yield f"{title}, {named_row(comparison, row)}, takes {shown}{doubt}"
    elif name == "accuracy":
        points = f"{number(100 * gap, 2)} percentage points"
        yield f"the least accurate, {named_row(comparison, row)}, ends {points} lower{doubt}"
    else:
        more = _factor(gap, "large") if comparison.measure.is_ratio else f"{number(gap)} larger"
        whose = f"whose {comparison.measure.words} is {more}{doubt}"
        yield f"the last is {named_row(comparison, row)}, {whose}"


def _last_gap(comparison: Comparison) -> tuple[float, Row] | None:
    """How far the last is behind the first, as a factor or a difference, and who it is."""
    name = comparison.measure.name
    rows = comparison.ranked
    if len(rows) < 2:
        return None
    best, last = rows[0].figures[name].mean, rows[-1].figures[name].mean
    if not comparison.measure.is_ratio:
        return abs(best - last), rows[-1]
    return (last / best, rows[-1]) if best > 0 else None


def _bytes(results: Results, comparison: Comparison) -> Iterator[str]:
    """Who sends the fewest bytes, against what the first sends."""
    at_target = comparison.measure.curve is not None
    name = "bytes_to_target" if at_target else "bytes_sent"
    by_bytes = compare(results, at=comparison.at, measure=name)
    rows = by_bytes.ranked
    if not rows:
        return
    least, most = rows[0].figures[name].mean, rows[-1].figures[name].mean
    until = " until then" if at_target else ""
    if len(rows) == 1:
        yield f"until then {size(least)} are sent" if at_target else f"{size(least)} are sent"
        return
    if most <= _ALIKE * least:
        yield f"all send about as many bytes{until}, {size(least)}"
        return
    first = comparison.rows[0]
    if all(row.as_good_as_best for row in rows):
        yield f"bytes sent{until} differ by no more than the noise, {size(least)} to {size(most)}"
        return
    if rows[0].label == first.label:
        yield (
            f"the fewest bytes{until}, {size(least)}, are also sent with "
            f"{named_row(comparison, first)}, the most with {named_row(comparison, rows[-1])}, "
            f"{size(most)}"
        )
        return
    own = next((row.figures[name].mean for row in rows if row.label == first.label), None)
    against = "" if own is None else f" against {size(own)} with {named_row(comparison, first)}"
    noise = ", within the noise" if any(r.label == first.label for r in by_bytes.tied) else ""
    yield (
        f"the fewest bytes{until} are sent with {named_row(comparison, rows[0])}, "
        f"{size(least)}{against}{noise}"
    )


def traffic(results: Results, found: Sequence[Comparison]) -> Iterator[str]:
    """Clauses on who sends the fewest bytes, place by place, and where the fewest of all.

    Args:
        results: Of the study.
        found: One comparison for each place.
    """
    at_target = found[0].measure.curve is not None
    name = "bytes_to_target" if at_target else "bytes_sent"
    by_bytes = [compare(results, at=comparison.at, measure=name) for comparison in found]
    known = [one for one in by_bytes if one.ranked]
    several = [one for one in known if len(one.rows) > 1]
    if not several:
        return
    until = " to the target" if at_target else ""
    wins = Counter(named_row(one, one.rows[0]) for one in several).most_common()
    least = min(known, key=lambda one: one.rows[0].figures[name].mean)
    amount = f"{size(least.rows[0].figures[name].mean)} with {place(least.at)}"
    if len(wins) == 1:
        where = "at every place" if len(several) == len(found) else f"at {len(several)} places"
        everywhere = f"the fewest bytes{until} are sent with {wins[0][0]}"
        yield f"{everywhere}, {amount}" if len(several) == 1 else f"{everywhere} {where}, {amount}"
        return
    said = listed([f"{label} at {count(times, 'place')}" for label, times in wins])
    winner = named_row(least, least.rows[0])
    yield f"the fewest bytes{until} are sent with {said}, the very fewest with {winner}: {amount}"


def _names(comparison: Comparison, rows: Sequence[Row]) -> str:
    return listed([named_row(comparison, row) for row in rows], _NAMES_MAX)


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
