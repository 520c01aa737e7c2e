"""Who is first, who is as good within the noise, and who never gets there."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from ..metrics import METRICS, Metric, values_of
from ..results import Result, Results, seeds_tried
from ..statistics import Difference, Interval, differences, holm, interval

__all__ = ["SIGNIFICANT", "Comparison", "Row", "compare", "comparisons"]

SIGNIFICANT: Final = 0.05
"""Differences with a smaller p, corrected, are more than noise."""

# Of rows without the figure: the first number of their rank.
_UNRANKED: Final = 2

# Zero has no logarithm. Less than this part of the largest is rounding.
_RELATIVE_MIN: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of the trials at one point of the first axis."""

    label: str
    """Of the point."""

    n: int
    """Seeds that there are results of."""

    missing: int
    """Seeds that there are none of, though there are of others, or they failed. Those that nobody
    has run yet count for nobody: a study that was interrupted is one with fewer seeds."""

    reached: int
    """Seeds that reached the target."""

    figures: Mapping[str, Interval]
    """By name of the metric (`METRICS`), where all results have it. Those to the target are here
    only where no seed is missing and all reached it: the mean of the lucky ones would say too
    little."""

    gap: Difference | None = None
    """To the best: a factor (1.5 takes half as much again) where the comparison's metric is a
    ratio, else a difference. Its interval is for this pair alone. None for the best itself, and
    where there is nothing to compare."""

    p: float = math.nan
    """Of the gap, corrected for there being several (Holm); NaN where the noise is not known."""

    as_good_as_best: bool = False
    """Whether the gap is within the noise, or there is none; always False where one seed only
    says nothing about noise, but for the best."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The points of the first axis, at one place of all others."""

    axis: str
    """What is compared."""

    at: Mapping[str, str]
    """Where: a label for each further axis."""

    groups: Mapping[str, tuple[Result, ...]]
    """Results there, by the label of their point, in order."""

    metric: Metric
    """What they are ranked by. No ratio where some figure is 0 or less, as a loss may be: these
    differ by no factor."""

    target: float
    """Accuracy."""

    rows: tuple[Row, ...]
    """The best first; those that do not always reach the target behind those that do, and those
    that lack seeds which others have behind all that have them."""

    missing: tuple[str, ...]
    """Points without any result."""

    noise_known: bool
    """Whether there is more than one seed, so that differences can be held against the noise."""

    @property
    def ranked(self) -> tuple[Row, ...]:
        """The best, and those that can be held against it: they have the figure, and lack no seed
        unless the best does too. The survivors among seeds that failed are no fair sample."""
        firsts = [_rank(row, self.metric)[0] for row in self.rows]
        return tuple(
            row
            for row, first in zip(self.rows, firsts, strict=True)
            if first == firsts[0] != _UNRANKED
        )

    @property
    def unknown(self) -> tuple[Row, ...]:
        """Those of which the noise is not known: they share too few seeds with the best."""
        return tuple(row for row in self.ranked[1:] if math.isnan(row.p))

    @property
    def incomplete(self) -> tuple[Row, ...]:
        """Those that lack seeds."""
        return tuple(row for row in self.rows if row.missing)

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
    def gap_unit(self) -> tuple[float, str]:
        """What to multiply gaps by to show them, and their unit; none for factors."""
        if self.metric.is_ratio:
            return 1.0, ""
        return (100.0, "points") if self.metric.unit == "%" else (1.0, self.metric.unit)

    @property
    def has_target(self) -> bool:
        """Whether the task has an accuracy at all."""
        return any("accuracy" in row.figures for row in self.rows)


def comparisons(results: Results) -> tuple[Comparison, ...]:
    """Compare the points of the first axis at every place of the others that has results."""
    axes = results.study.axes[1:]
    there = {result.trial.group[1:] for result in results.results}
    return tuple(
        compare(results, at=dict(zip([axis.name for axis in axes], place, strict=True)))
        for place in product(*(axis.labels for axis in axes))
        if place in there
    )


def compare(
    results: Results, *, at: Mapping[str, str] | None = None, metric: str | None = None
) -> Comparison:
    """Rank the points of the first axis.

    Args:
        results: Of a study.
        at: A label for each further axis; may be left out where there is none.
        metric: What by, a name of `METRICS`; unless given, time to the target where any of
            them always reaches it, else final accuracy, and for tasks without accuracy what
            they have: disagreement, loss or consensus distance.
    """
    study, at = results.study, dict(at or {})
    groups = {group[0]: found for group, found in results.where(**at).groups().items()}
    groups = {label: groups[label] for label in study.axes[0].labels if label in groups}
    seeds = seeds_tried(results, at)
    rows = [
        _row(found, study.target, len(seeds[found[0].trial.group])) for found in groups.values()
    ]
    by = METRICS[metric] if metric else _preferred(rows)
    rows.sort(key=lambda row: _rank(row, by))
    found = Comparison(
        axis=study.axes[0].name,
        at=at,
        groups=groups,
        metric=by,
        target=study.target,
        rows=tuple(rows),
        missing=tuple(group[0] for group in seeds if group[0] not in groups),
        noise_known=any(row.n > 1 for row in rows),
    )
    return _with_gaps(found)


def _row(found: Sequence[Result], target: float, seeds: int) -> Row:
    reached = sum(result.reached(target) is not None for result in found)
    figures: dict[str, Interval] = {}
    for name, metric in METRICS.items():
        values = values_of(found, metric, target)
        needed = len(found) if not metric.to_target else max(seeds, len(found))
        # A mean of those seeds only that happen to have one would be of the lucky.
        if len(values) == needed:
            figures[name] = interval(values.values())
    return Row(
        label=found[0].trial.group[0],
        n=len(found),
        missing=max(0, seeds - len(found)),
        reached=reached,
        figures=figures,
    )


def _preferred(rows: Iterable[Row]) -> Metric:
    """Of the metrics that some row has, the one to compare by."""
    known = {name for row in rows for name in row.figures}
    ranked = [metric for metric in METRICS.values() if metric.preference is not None]
    ranked.sort(key=lambda metric: metric.preference or 0)
    return next((metric for metric in ranked if metric.name in known), ranked[-1])


def _rank(row: Row, metric: Metric) -> tuple[float, ...]:
    found = row.figures.get(metric.name)
    accuracy = row.figures.get("accuracy")
    if found is None:
        most = -accuracy.mean if accuracy else math.inf
        return (_UNRANKED, row.missing > 0, -row.reached, most)
    return (float(row.missing > 0), found.mean if metric.lower_is_better else -found.mean)


def _with_gaps(found: Comparison) -> Comparison:
    """Hold everyone that can be compared against the first."""
    if not found.ranked:
        return found
    metric, target, groups = found.metric, found.target, found.groups
    best, *others = found.ranked
    values = [values_of(groups[row.label], metric, target) for row in found.ranked]
    if min(value for group in values for value in group.values()) <= 0:
        # Nothing is a factor of zero, and a loss may be less.
        metric = replace(metric, is_ratio=False)
    resolution = _resolution(groups[best.label], metric, target)
    gaps = _gaps_to_first(values, is_ratio=metric.is_ratio, resolution=resolution)
    n = len(found.ranked)
    corrected = holm([gap.p for gap in gaps], family=n * (n - 1) // 2)
    rows = [replace(best, as_good_as_best=True)]
    for row, gap, p in zip(others, gaps, corrected, strict=True):
        # No p, no say: a comparison with NaN is False.
        rows.append(replace(row, gap=gap, p=p, as_good_as_best=p >= SIGNIFICANT))
    return replace(found, metric=metric, rows=(*rows, *found.rows[n:]))


def _resolution(found: Sequence[Result], metric: Metric, target: float) -> float:
    """How far apart two evaluations are where the target is reached, as part of the time."""
    if not metric.to_target:
        return 0.0
    parts: list[float] = []
    for result in found:
        index, curve = result.reached(target), result.series[metric.target_curve]
        now = None if index is None else curve[index]
        before = curve[index - 1] if index else 0.0
        if now and before is not None:
            parts.append((now - before) / now)
    return sum(parts) / len(parts) if parts else 0.0


def _gaps_to_first(
    values: Sequence[Mapping[int, float]], *, is_ratio: bool, resolution: float
) -> tuple[Difference, ...]:
    """Compare groups with the first; values of p are not corrected yet.

    Args:
        values: For each group, at least one, a value for each seed.
        is_ratio: Whether they differ by factors; all values must be positive then.
        resolution: Values are known to this part of them only; for factors.
    """
    largest = max(abs(value) for group in values for value in group.values())
    least = max(largest * _RELATIVE_MIN, math.ulp(0.0))
    if not is_ratio:
        return differences(values[1:], values[0], resolution=least)
    first, *others = [
        {seed: math.log(max(value, least)) for seed, value in group.items()} for group in values
    ]
    return tuple(
        replace(gap, mean=math.exp(gap.mean), low=math.exp(gap.low), high=math.exp(gap.high))
        for gap in differences(others, first, resolution=resolution)
    )
