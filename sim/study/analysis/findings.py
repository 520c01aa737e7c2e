"""What came out, in three sentences: the first, who is told from it, and who never arrives."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..format import count, listed, named, number, place, sentence
from ..results import Results
from .ranking import Comparison, Row, Verdict, comparisons
from .verdicts import NONE_SEEN, p_words, seen_words, verdict_words, would_be_seen

__all__ = ["best", "findings", "margin"]

# Of more places than that, sentences count instead of naming each.
_PLACES_MAX = 3


def findings(results: Results) -> tuple[str, str, str]:
    """Say who is first, who is told apart from it, and who never reaches the target.

    Returns:
        Three sentences in plain text, also where some or all trials are missing.
    """
    found = comparisons(results)
    if not found:
        asked = count(sum(1 for _ in results.study.trials()), "trial")
        return (
            "There is nothing to say yet: no trial has a result.",
            f"The study asks for {asked}, of which {len(results.failures) or 'none'} failed.",
            "Trials that failed or have not run can be computed by --resume.",
        )
    return (
        _everywhere(found, best, _best_of_many),
        _everywhere(found, margin, _margins),
        _arrivals(found),
    )


def best(comparison: Comparison) -> str:
    """Name who has the first mean, and its figure, without a full stop.

    That somebody is first says nothing yet about whether others are worse, see `margin`.
    """
    by = _by(comparison)
    if not comparison.ranked:
        return f"nothing can be compared by {by}"
    figure = comparison.metric.spread(comparison.rows[0].figures[comparison.metric.name])
    leaders = listed([_named(comparison, row) for row in comparison.leaders])
    most = _most(comparison)
    if len(comparison.leaders) > 1:
        return f"the {most} mean {by} is shared by {leaders}: {figure}"
    return f"the {most} mean {by} is that of {leaders}: {figure}"


def _most(comparison: Comparison) -> str:
    return "lowest" if comparison.metric.lower_is_better else "highest"


def margin(comparison: Comparison) -> str:
    """Say who is told apart from the first, and what would have been; without a full stop."""
    if not comparison.ranked:
        return f"there is no {comparison.metric.words} to compare"
    first, *others = (*comparison.ranked, *comparison.late)
    name = _named(comparison, first)
    if not others:
        is_alone = len(comparison.rows) == 1
        return "there is nothing to compare with" if is_alone else f"only {name} can be compared"
    if not comparison.noise_known:
        return "one seed only: which differences are noise is not known"
    parts = [*_ties(comparison), *_undecided(comparison)]
    if comparison.unknown:
        unknown = listed([_named(comparison, row) for row in comparison.unknown])
        parts.append(f"too few seeds in common to tell {name} from {unknown}")
    if parts:
        return "; ".join(parts)
    second = others[0]
    over = f"{name} over {_named(comparison, second)}"
    if second in comparison.late:
        return f"the margin of {over}: {verdict_words(second, comparison)}"
    return f"the margin of {over} is {_gap(comparison, second)}"


def _ties(comparison: Comparison) -> Iterator[str]:
    if comparison.ties:
        names = [_named(comparison, row) for row in (comparison.rows[0], *comparison.ties)]
        yield f"a tie, the same with every seed: {listed(names)}"


def _undecided(comparison: Comparison) -> Iterator[str]:
    """Who is not told apart, and how large a difference would have been."""
    rows, first = comparison.undecided, comparison.rows[0]
    if not rows:
        return
    named = listed([_named(comparison, row) for row in rows])
    verb = "is" if len(rows) == 1 else "are"
    told = f"not told apart from {_named(comparison, first)} by {count(first.n, 'seed')} {verb}"
    yield f"{told} {named} ({_would_be_seen(comparison, rows)})"


def _would_be_seen(comparison: Comparison, rows: Sequence[Row]) -> str:
    """The smallest differences that would have been seen: from the surest row to the least sure."""
    parts = []
    for which in (comparison.ranked, comparison.late):
        known = [row for row in rows if row in which and not math.isnan(row.seen_from)]
        known.sort(key=lambda row: row.seen_from)
        if known:
            ends = [seen_words(row, comparison) for row in (known[0], known[-1])]
            parts.append(" to ".join(dict.fromkeys(end for end in ends if end != NONE_SEEN)))
    if not parts:
        return "what would have been seen is not known"
    known_parts = " or ".join(filter(None, parts))
    seen = f"a difference of {known_parts}" if known_parts else NONE_SEEN
    return would_be_seen(seen)


def _gap(comparison: Comparison, row: Row) -> str:
    """A gap with its interval and p, as in ``1.5 times (95 %: 1.2 to 1.9, p = 0.01)``."""
    gap, metric = row.gap, comparison.metric
    assert gap is not None
    # The first is ahead: its gap to the others is told as positive.
    mean, low, high = gap.mean, gap.low, gap.high
    if metric.is_ratio and not metric.lower_is_better:
        mean, low, high = 1 / mean, 1 / high, 1 / low
    elif not metric.is_ratio and not metric.lower_is_better:
        mean, low, high = -mean, -high, -low
    scale, unit = comparison.gap_unit
    between = f"{number(low * scale, 2)} to {number(high * scale, 2)}"
    times = "times" if metric.is_ratio else unit
    return f"{number(mean * scale)} {times}".strip() + f" (95 %: {between}, {p_words(row.p)})"


def _everywhere(
    found: Sequence[Comparison],
    clause: Callable[[Comparison], str],
    summary: Callable[[Sequence[Comparison]], str],
) -> str:
    """A clause for each place, or, of many places, a summary."""
    if len(found) > _PLACES_MAX:
        return sentence(summary(found))
    return sentence("; ".join(_where(one) + clause(one) for one in found))


def _best_of_many(found: Sequence[Comparison]) -> str:
    """Who is first at how many places, by metric."""
    parts = []
    for by in dict.fromkeys((_most(one), _by(one)) for one in found):
        here = [one for one in found if (_most(one), _by(one)) == by]
        firsts = [_named(one, row) for one in here for row in one.leaders]
        if firsts:
            parts.append(f"the {by[0]} mean {by[1]} is that of {_counted(firsts, len(found))}")
        else:
            parts.append(f"nothing can be compared by {by[1]}")
    return "; ".join(parts)


def _margins(found: Sequence[Comparison]) -> str:
    """At how many places the first is alone."""
    alone = sum(
        len(one.ranked) + len(one.late) > 1 and not (one.ties or one.undecided or one.unknown)
        for one in found
    )
    text = (
        f"the first is ahead of all others by more than the noise at {alone} of {len(found)} places"
    )
    ties = [_named(one, row) for one in found for row in one.ties]
    undecided = [_named(one, row) for one in found for row in one.undecided]
    if ties:
        text += f"; ties with it: {_counted(ties, len(found))}"
    if undecided:
        text += f"; not told apart from it: {_counted(undecided, len(found))}"
    return text


def _arrivals(found: Sequence[Comparison]) -> str:
    """Who never reaches the target, who does with some seeds only, and who lacks results."""
    told = []
    if any(one.has_target for one in found):
        metric = found[0].metric
        # Of single workers, if that is what is counted to the target.
        whose = metric.words.partition("to target")[2] if metric.to_target else ""
        goal = "a loss of" if metric.goal == "loss" else "accuracy"
        target = f"{goal} {number(found[0].study.target)}{whose}"
        never = [_named(one, row) for one in found for row in one.never]
        some = [_named(one, row) for one in found for row in one.sometimes]
        if never:
            told.append(f"{target} is never reached by {_counted(never, len(found))}")
        if some:
            told.append(f"{target} is not reached with every seed by {_counted(some, len(found))}")
        if not told:
            told.append(f"all reach {target} with every seed")
        told += _are_late_by_chance(found)
    else:
        told.append("the task has no accuracy to reach")
    lacking = [_named(one, row) for one in found for row in one.incomplete]
    lacking += [named(one.axis, label) for one in found for label in one.missing]
    if lacking:
        told.append(f"results are missing of {_counted(lacking, len(found))}")
    return sentence("; ".join(told))


def _are_late_by_chance(found: Sequence[Comparison]) -> Iterator[str]:
    """Of those that do not always arrive: who may do so by chance."""
    late = [(one, row) for one in found for row in one.late if one.noise_known]
    apart = [_named(one, row) for one, row in late if row.verdict is Verdict.APART]
    if not late:
        return
    if not apart:
        yield "that may be chance: none of them is told apart from the first"
    elif len(apart) < len(late):
        yield f"that is more than chance of {_counted(apart, len(found))} alone"
    else:
        yield "that is more than chance"


def _counted(names: Iterable[str], places: int) -> str:
    """Names, each with the number of places that it stands for."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    if places == 1:
        return listed(list(counts))
    return listed([f"{name} (at {times} of {places} places)" for name, times in counts.items()])


def _by(comparison: Comparison) -> str:
    words, target = comparison.metric.words, number(comparison.study.target)
    return words.replace("to target", f"to target {target}", 1)


def _named(comparison: Comparison, row: Row) -> str:
    return named(comparison.axis, row.label)


def _where(comparison: Comparison) -> str:
    return f"with {place(comparison.at)}, " if comparison.at else ""
