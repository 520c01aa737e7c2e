"""What came out, in three sentences: the best, its margin, and who never arrives."""

from collections.abc import Callable, Iterable, Sequence

from ..format import count, listed, named, number, place, sentence
from ..results import Results
from .ranking import Comparison, Row, comparisons

__all__ = ["best", "findings", "margin"]

# Of more places than that, sentences count instead of naming each.
_PLACES_MAX = 3


def findings(results: Results) -> tuple[str, str, str]:
    """Say who is best, by how much, and who never reaches the target.

    Args:
        results: Of a study; some or all trials may be missing.

    Returns:
        Three sentences in plain text.
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
    """Name the first and its figure, without a full stop."""
    by = _by(comparison)
    if not comparison.ranked:
        return f"nothing can be compared by {by}"
    first = comparison.rows[0]
    figure = comparison.metric.spread(first.figures[comparison.metric.name])
    return f"the best by {by} is {_named(comparison, first)}: {figure}"


def margin(comparison: Comparison) -> str:
    """Say how far ahead the first is, and whether that is more than noise; without a full stop."""
    if not comparison.ranked:
        return f"there is no {comparison.metric.words} to compare"
    first, *others = comparison.ranked
    name = _named(comparison, first)
    if not others:
        is_alone = len(comparison.rows) == 1
        return "there is nothing to compare with" if is_alone else f"only {name} can be compared"
    if not comparison.noise_known:
        return "one seed only: which differences are noise is not known"
    if comparison.tied:
        verb = "is" if len(comparison.tied) == 1 else "are"
        tied = listed([_named(comparison, row) for row in comparison.tied])
        return f"as good as {name} within the noise of {count(first.n, 'seed')} {verb} {tied}"
    if comparison.unknown:
        unknown = listed([_named(comparison, row) for row in comparison.unknown])
        return f"too few seeds in common to tell {name} from {unknown}"
    second = others[0]
    over = f"{name} over {_named(comparison, second)}"
    return f"the margin of {over} is {_gap(comparison, second)}"


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
    return f"{number(mean * scale)} {times}".strip() + f" (95 %: {between}, p = {number(row.p, 2)})"


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
    """Who is best at how many places, by metric."""
    parts = []
    for by in dict.fromkeys(map(_by, found)):
        here = [one for one in found if _by(one) == by]
        firsts = [_named(one, one.rows[0]) for one in here if one.ranked]
        parts.append(f"the best by {by} is {_counted(firsts, len(found))}")
    return "; ".join(parts)


def _margins(found: Sequence[Comparison]) -> str:
    """At how many places the first is alone."""
    alone = sum(len(one.ranked) > 1 and not one.tied and not one.unknown for one in found)
    tied = [_named(one, row) for one in found for row in one.tied]
    text = (
        f"the best is ahead of the others by more than the noise at {alone} of {len(found)} places"
    )
    return f"{text}; as good within the noise: {_counted(tied, len(found))}" if tied else text


def _arrivals(found: Sequence[Comparison]) -> str:
    """Who never reaches the target, who does with some seeds only, and who lacks results."""
    told = []
    if any(one.has_target for one in found):
        target = f"accuracy {number(found[0].target)}"
        never = [_named(one, row) for one in found for row in one.never]
        some = [_named(one, row) for one in found for row in one.sometimes]
        if never:
            told.append(f"{target} is never reached by {_counted(never, len(found))}")
        if some:
            told.append(f"{target} is not reached with every seed by {_counted(some, len(found))}")
        if not told:
            told.append(f"all reach {target} with every seed")
    else:
        told.append("the task has no accuracy to reach")
    lacking = [_named(one, row) for one in found for row in one.incomplete]
    lacking += [named(one.axis, label) for one in found for label in one.missing]
    if lacking:
        told.append(f"results are missing of {_counted(lacking, len(found))}")
    return sentence("; ".join(told))


def _counted(names: Iterable[str], places: int) -> str:
    """Names, each with the number of places that it stands for."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    if places == 1:
        return listed(list(counts))
    return listed([f"{name} (at {times} of {places} places)" for name, times in counts.items()])


def _by(comparison: Comparison) -> str:
    words = comparison.metric.words
    return f"{words} {number(comparison.target)}" if comparison.metric.to_target else words


def _named(comparison: Comparison, row: Row) -> str:
    return named(comparison.axis, row.label)


def _where(comparison: Comparison) -> str:
    return f"with {place(comparison.at)}, " if comparison.at else ""
