"""Who is first, who is as good within the noise, and who never gets there."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from .measures import MEASURES, Measure, values_of
from .result import Result, Results
from .statistics import Difference, Interval, differences, holm, interval
from .words import count, listed

__all__ = ["Comparison", "Row", "compare", "comparisons", "facets"]

_SIGNIFICANT: Final = 0.05

# Zero has no logarithm. Less than this part of the largest is rounding.
_RELATIVE_MIN: Final = 1e-12

_AT_END: Final = ("accuracy", "disagreement_stationary", "disagreement", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of the cells at one point of the first axis."""

    label: str
    """Of the point."""

    group: tuple[str, ...]
    """Its key in `Results.groups`."""

    n: int
    """Seeds that there are results of."""

    missing: int
    """Seeds that there are none of: they failed, or have not run."""

    reached: int
    """Seeds that reached the target."""

    figures: Mapping[str, Interval]
    """By name of the measure (`MEASURES`), as far as there is any. Those to the target are here
    only where all seeds reached it: the mean of the lucky ones would say too little."""

    gap: Difference | None = None
    """To the best: a factor (1.5 takes half as much again) where the measure is a ratio, else a
    difference. Its interval is for this pair alone. None for the best itself, and where there is
    nothing to compare."""

    p: float = math.nan
    """Of the gap, corrected for there being several (Holm)."""

    as_good_as_best: bool = False
    """Whether the gap is within the noise, or there is none; always False where one seed only
    says nothing about noise, but for the best."""

    @property
    def always_reached(self) -> bool:
        """Whether all seeds that ran reached the target."""
        return 0 < self.n == self.reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The points of the first axis, at one place of all others."""

    axis: str
    """What is compared."""

    at: Mapping[str, str]
    """Where: a label for each further axis."""

    measure: Measure
    """What they are ranked by."""

    target: float
    """Accuracy."""

    rows: tuple[Row, ...]
    """The best first; those that do not always reach the target behind those that do."""

    missing: tuple[str, ...]
    """Points without any result."""

    noise_known: bool
    """Whether there is more than one seed, so that differences can be held against the noise."""

    @property
    def best(self) -> Row | None:
        """The first; None without results."""
        return self.rows[0] if self.rows else None

    @property
    def tied(self) -> tuple[Row, ...]:
        """Those that are as good as the best within the noise, without the best."""
        return tuple(row for row in self.rows[1:] if row.as_good_as_best)

    @property
    def never(self) -> tuple[Row, ...]:
        """Those of which no seed reached the target; none where the task has no accuracy."""
        if not self.has_target:
            return ()
        return tuple(row for row in self.rows if row.n and not row.reached)

    @property
    def sometimes(self) -> tuple[Row, ...]:
        """Those of which some seeds reached the target and some did not."""
        return tuple(row for row in self.rows if 0 < row.reached < row.n)

    @property
    def has_target(self) -> bool:
        """Whether the task has an accuracy at all."""
        return any("accuracy" in row.figures for row in self.rows)

    @property
    def ties(self) -> str:
        """How far the order can be trusted, in a sentence."""
        return _ties(self)


def facets(results: Results) -> tuple[dict[str, str], ...]:
    """Every place of the axes behind the first at which there are results, in order."""
    axes = results.study.axes[1:]
    there = {tuple(result.cell.group[1:]) for result in results.results}
    places = product(*(axis.labels for axis in axes))
    return tuple(
        {axis.name: label for axis, label in zip(axes, place, strict=True)}
        for place in places
        if place in there
    )


def comparisons(results: Results) -> tuple[Comparison, ...]:
    """Compare the points of the first axis at every place of the others."""
    return tuple(compare(results, at=at) for at in facets(results))


def compare(
    results: Results, *, at: Mapping[str, str] | None = None, measure: str | None = None
) -> Comparison:
    """Rank the points of the first axis.

    Args:
        results: Of a study.
        at: A label for each further axis; may be left out where there is none.
        measure: What by, a name of `MEASURES`; unless given, time to the target where any of
            them always reaches it, else final accuracy, and for tasks without accuracy what
            they have: disagreement, loss or consensus distance.
    """
    study, at = results.study, dict(at or {})
    groups = {group[0]: found for group, found in results.where(**at).groups().items()}
    axis = study.axes[0]
    rows = [
        _row(label, groups[label], study.target, len(study.seeds))
        for label in axis.labels
        if label in groups
    ]
    by = MEASURES[measure] if measure else _measure(rows)
    rows.sort(key=lambda row: _rank(row, by))
    wanted = _wanted(results, at)
    return Comparison(
        axis=axis.name,
        at=at,
        measure=by,
        target=study.target,
        rows=tuple(_with_gaps(rows, groups, by, study.target)),
        missing=tuple(label for label in wanted if label not in groups),
        noise_known=any(row.n > 1 for row in rows),
    )


def _wanted(results: Results, at: Mapping[str, str]) -> list[str]:
    """Points of the first axis that the study has cells for, at this place."""
    first = results.study.axes[0].name
    found = (
        cell.labels[first]
        for cell in results.study.cells()
        if all(cell.labels[axis] == label for axis, label in at.items())
    )
    return list(dict.fromkeys(found))


def _row(label: str, found: Sequence[Result], target: float, seeds: int) -> Row:
    reached = sum(result.reached(target) is not None for result in found)
    figures: dict[str, Interval] = {}
    for name, measure in MEASURES.items():
        values = values_of(found, measure, target)
        if values and (measure.curve is None or reached == len(found)):
            figures[name] = interval(values.values())
    return Row(
        label=label,
        group=found[0].cell.group,
        n=len(found),
        missing=seeds - len(found),
        reached=reached,
        figures=figures,
    )


def _measure(rows: Iterable[Row]) -> Measure:
    names = {name for row in rows for name in row.figures}
    wanted = ("time_to_target_s", *_AT_END)
    return MEASURES[next((name for name in wanted if name in names), "consensus_distance")]


def _rank(row: Row, measure: Measure) -> tuple[float, ...]:
    found = row.figures.get(measure.name)
    accuracy = row.figures.get("accuracy")
    if found is None:
        return (1, -row.reached, -accuracy.mean if accuracy else math.inf)
    return (0, found.mean if measure.is_lower_better else -found.mean)


def _with_gaps(
    rows: Sequence[Row],
    groups: Mapping[str, Sequence[Result]],
    measure: Measure,
    target: float,
) -> Iterable[Row]:
    """Hold everyone that can be compared against the first."""
    if not rows or measure.name not in rows[0].figures:
        yield from rows
        return
    best, *others = (row for row in rows if measure.name in row.figures)
    values = {row.label: values_of(groups[row.label], measure, target) for row in (best, *others)}
    if measure.is_ratio:
        values = _logarithms(values)
    n = 1 + len(others)
    found = differences(
        [values[row.label] for row in others],
        values[best.label],
        resolution=_resolution(groups[best.label], measure, target),
    )
    yield replace(best, as_good_as_best=True)
    corrected = holm([gap.p for gap in found], family=n * (n - 1) // 2)
    for row, gap, p in zip(others, found, corrected, strict=True):
        shown = _as_ratio(gap) if measure.is_ratio else gap
        # No p, no say: a comparison with NaN is False.
        yield replace(row, gap=shown, p=p, as_good_as_best=p >= _SIGNIFICANT)
    yield from rows[n:]


def _logarithms(values: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    largest = max(value for group in values.values() for value in group.values())
    least = max(largest * _RELATIVE_MIN, math.ulp(0.0))
    return {
        label: {seed: math.log(max(value, least)) for seed, value in group.items()}
        for label, group in values.items()
    }


def _as_ratio(gap: Difference) -> Difference:
    return Difference(
        mean=math.exp(gap.mean),
        low=math.exp(gap.low),
        high=math.exp(gap.high),
        p=gap.p,
        pairs=gap.pairs,
    )


def _resolution(found: Sequence[Result], measure: Measure, target: float) -> float:
    """How far apart two evaluations are where the target is reached, as part of the time."""
    if measure.curve is None:
        return 0.0
    parts: list[float] = []
    for result in found:
        index, curve = result.reached(target), result.series[measure.curve]
        now = None if index is None else curve[index]
        before = curve[index - 1] if index else 0.0
        if now and before is not None:
            parts.append((now - before) / now)
    return sum(parts) / len(parts) if parts else 0.0


def _ties(found: Comparison) -> str:
    if found.best is None:
        return "There are no results."
    seeds = max(row.n for row in found.rows)
    if not found.noise_known:
        return "One seed only: which differences are noise cannot be said."
    if len(found.rows) == 1:
        return "There is nothing to compare with."
    names = [row.label for row in found.tied]
    if names:
        verb = "is" if len(names) == 1 else "are"
        return (
            f"{listed(names)} {verb} as good as {found.best.label}, within the noise of "
            f"{count(seeds, 'seed')}."
        )
    compared = sum(found.measure.name in row.figures for row in found.rows)
    if compared == 1:
        return f"{found.best.label} is the only one to reach the target with every seed."
    others = "all others" if compared == len(found.rows) else "the others that always get there"
    return f"{found.best.label} is ahead of {others} by more than the noise."
