"""What going from one point of an axis to another does, all else alike."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .measures import MEASURES, Measure, values_of
from .result import Result, Results
from .row import SIGNIFICANT
from .seeds import seeds_tried
from .statistics import Difference, difference, holm
from .study import Axis

__all__ = ["Effect", "effect", "effects"]

# The first of which there are any pairs is what an effect is on.
_MEASURES: Final = (
    *("time_to_target_s", "accuracy", "disagreement_stationary", "disagreement"),
    *("loss", "consensus_distance"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What going from one point of an axis to another does, all else alike."""

    axis: str

    start: str
    """Label of its first point."""

    end: str
    """Label of another."""

    measure: Measure
    """What changes; no ratio where some figure is 0 or less."""

    by: Mapping[str, float]
    """For each point of the first axis, a factor where the measure is a ratio, else a difference;
    means over seeds and all other axes. Only those that have the figure at both."""

    overall: Difference
    """Of the mean over those, seed by seed; on the logarithm where the measure is a ratio."""

    p: float
    """Of that, corrected for the axis having several points to go to (Holm)."""

    lost: tuple[str, ...]
    """Points of the first axis that always reach the target at the start, and not at the end."""

    gained: tuple[str, ...]
    """The other way round."""

    @property
    def size(self) -> float:
        """A factor, or a difference; NaN without any pair."""
        return math.exp(self.overall.mean) if self.measure.is_ratio else self.overall.mean

    @property
    def is_noise(self) -> bool:
        """Whether it may be none at all: False too where one seed says nothing about noise."""
        return self.p >= SIGNIFICANT


def effect(results: Results, axis: Axis) -> Effect | None:
    """The largest that going from the first point of an axis to another one has.

    Args:
        results: Of a study.
        axis: One behind the first.

    Returns:
        None where there is nothing to compare.
    """
    return max(effects(results, axis), key=_weight, default=None)


def effects(results: Results, axis: Axis) -> list[Effect]:
    """What going from the first point of an axis to each other one does.

    Args:
        results: Of a study.
        axis: One behind the first.

    Returns:
        In the order of its points; those without anything to compare are missing.
    """
    start, *others = axis.labels
    every = (_effect(results, axis, start, label) for label in others)
    found = [one for one in every if one is not None]
    corrected = holm([one.p for one in found])
    return [replace(one, p=p) for one, p in zip(found, corrected, strict=True)]


def _weight(found: Effect) -> tuple[int, float]:
    change = abs(found.overall.mean)
    return len(found.lost) + len(found.gained), 0.0 if math.isnan(change) else change


def _effect(results: Results, axis: Axis, start: str, end: str) -> Effect | None:
    before, after = _cells(results, axis, start), _cells(results, axis, end)
    reached, then = _always(before, results), _always(after, results)
    target = results.study.target
    for measure in map(MEASURES.__getitem__, _MEASURES):
        found = list(_pairs(before, after, measure, target))
        if found:
            if not all(pair.before > 0 and pair.after > 0 for pair in found):
                # No factor leads to zero or below: a loss may be there.
                measure = replace(measure, is_ratio=False)
            pairs = [_changed(pair, measure) for pair in found]
            overall = _overall(pairs)
            return Effect(
                axis=axis.name,
                start=start,
                end=end,
                measure=measure,
                by=_by_label(pairs, measure),
                overall=overall,
                p=overall.p,
                # Who was left out at one of them was not lost, and not won.
                lost=tuple(label for label in reached if reached[label] and not then.get(label, 1)),
                gained=tuple(label for label in then if then[label] and not reached.get(label, 1)),
            )
    return None


@dataclass(frozen=True, slots=True)
class _Pair:
    label: str
    seed: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class _Change:
    label: str
    seed: int
    change: float


def _cells(results: Results, axis: Axis, label: str) -> dict[tuple[str, ...], list[Result]]:
    """Groups at a point of an axis, by their labels on all others, the first axis first."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for result in results.where(**{axis.name: label}).results:
        labels = dict(result.cell.labels)
        del labels[axis.name]
        found.setdefault(tuple(labels.values()), []).append(result)
    return found


def _always(cells: Mapping[tuple[str, ...], Sequence[Result]], results: Results) -> dict[str, bool]:
    """For each point of the first axis, whether every cell there reached the target.

    Those of which that is not known are left out: they lack seeds, and reached it with the others.
    """
    seeds = seeds_tried(results, {})
    found: dict[str, bool] = {}
    unknown: set[str] = set()
    for (label, *_), group in cells.items():
        reached = all(result.reached(results.study.target) is not None for result in group)
        found[label] = found.get(label, True) and reached
        if len(group) < len(seeds[group[0].cell.group]):
            unknown.add(label)
    return {
        label: reached for label, reached in found.items() if not reached or label not in unknown
    }


def _pairs(
    before: Mapping[tuple[str, ...], Sequence[Result]],
    after: Mapping[tuple[str, ...], Sequence[Result]],
    measure: Measure,
    target: float,
) -> Iterator[_Pair]:
    for group, cells in before.items():
        first = values_of(cells, measure, target)
        then = values_of(after.get(group, ()), measure, target)
        # Of seeds that reach the target here and not there, only the lucky would be compared.
        if len(first) < len(cells) or len(then) < len(after.get(group, ())):
            continue
        for seed, value in first.items():
            if seed in then:
                yield _Pair(group[0], seed, value, then[seed])


def _changed(pair: _Pair, measure: Measure) -> _Change:
    """On the logarithm where the measure is a ratio."""
    if measure.is_ratio:
        return _Change(pair.label, pair.seed, math.log(pair.after / pair.before))
    return _Change(pair.label, pair.seed, pair.after - pair.before)


def _by_label(pairs: Sequence[_Change], measure: Measure) -> dict[str, float]:
    changes: dict[str, list[float]] = {}
    for pair in pairs:
        changes.setdefault(pair.label, []).append(pair.change)
    means = {label: math.fsum(found) / len(found) for label, found in changes.items()}
    return {label: math.exp(mean) if measure.is_ratio else mean for label, mean in means.items()}


def _overall(pairs: Sequence[_Change]) -> Difference:
    """Of the means of each seed: cells of one seed share their luck.

    Seeds that lack a pair are left out, as their means would be of other cells.
    """
    changes: dict[int, list[float]] = {}
    for pair in pairs:
        changes.setdefault(pair.seed, []).append(pair.change)
    most = max(len(found) for found in changes.values())
    means = {seed: math.fsum(found) / most for seed, found in changes.items() if len(found) == most}
    return difference(means, dict.fromkeys(means, 0.0))
