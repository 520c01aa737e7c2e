"""Ranks the points of a study, and tests which differ significantly from the first."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import Final

from .. import statistics
from ..metrics import METRICS, Metric, values_of
from ..results import Result, Results, seeds_tried
from ..study import Study

__all__ = [
    "SIGNIFICANT",
    "Comparison",
    "Row",
    "Verdict",
    "by_metric",
    "compare",
    "comparisons",
    "in_order",
]

SIGNIFICANT: Final = 0.05
"""Differences with a smaller p, corrected, are more than noise."""

# Zero has no logarithm. Values below this part of the largest are rounding.
_RELATIVE_MIN: Final = 1e-12

# A seed may miss the target by chance, as it may reach it late by chance. So rows that miss it are
# compared twice, by their arrivals and by their final figures, and the smaller p counts twice.
_TESTS: Final = 2

Values = Mapping[int, float]
"""Figures by seed."""


class Verdict(StrEnum):
    """The result of comparing a row with the first."""

    FIRST = "first"

    TIE = "tie"
    """It has the same figure with every seed."""

    UNDECIDED = "no significant difference"
    """The difference may be noise, which does not mean that both are equal."""

    WORSE = "significantly worse"

    NOISE_UNKNOWN = "noise unknown"
    """The two share too few seeds."""

    NOT_COMPARED = "not compared"
    """It lacks the figure, or seeds that the first has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The results of the trials at one point of the first axis."""

    label: str
    """Label of the point."""
    n: int
    """Number of seeds with results."""
    missing: int
    """Number of seeds that failed, or that only other points have."""
    figures: Mapping[str, statistics.Interval]
    """Figures by name of the metric, where all seeds have it."""
    arrived: Mapping[str, int] = field(default_factory=dict)
    """Number of seeds that reached the target, for each metric counted to it."""
    gap: statistics.Difference | None = None
    """Difference to the first, for this pair alone: a factor if the metric is a ratio, else a
    difference. None for the first itself, and for rows that cannot be compared."""
    end_gap: statistics.Difference | None = None
    """Difference in the final figure, for rows that do not always reach the target."""
    p: float = math.nan
    """Probability that noise alone makes such a difference, corrected for several comparisons;
    NaN if the noise is unknown."""
    verdict: Verdict = Verdict.NOT_COMPARED
    is_by_arrivals: bool = False
    """True if `p` tests how many seeds reached the target; False if it tests figures."""
    detectable: float = math.nan
    """The smallest true difference that would be significant in 4 of 5 studies, in the unit of
    `gap` or `end_gap`."""

    @property
    def may_be_first(self) -> bool:
        """True if it does not differ significantly from the first."""
        return self.verdict in (Verdict.FIRST, Verdict.TIE, Verdict.UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The points of the first axis, at one place of all others."""

    study: Study
    at: Mapping[str, str]
    """The place: a label for each further axis."""
    groups: Mapping[str, tuple[Result, ...]]
    """Results there, by the label of their point, in order."""
    metric: Metric
    """The metric of the ranking."""
    rows: tuple[Row, ...]
    """Rows in the order of their means, then those that do not always reach the target, then those
    that lack seeds."""
    missing: tuple[str, ...]
    """Points without any result."""

    @property
    def axis(self) -> str:
        """The axis whose points are compared."""
        return self.study.axes[0].name

    @property
    def noise_known(self) -> bool:
        """True with more than one seed."""
        return any(row.n > 1 for row in self.rows)

    @property
    def ranked(self) -> tuple[Row, ...]:
        """The first, and the rows whose figures can be compared with it."""
        return tuple(row for row in self._comparable if self.metric.name in row.figures)

    @property
    def late(self) -> tuple[Row, ...]:
        """The rows that miss the target with some seeds, and can be compared by that."""
        return tuple(row for row in self._comparable if self.metric.name not in row.figures)

    @property
    def _comparable(self) -> list[Row]:
        if not self.rows or self.metric.name not in self.rows[0].figures:
            return []
        # If some seeds failed, the surviving ones are not a fair sample.
        is_short = self.rows[0].missing > 0
        there = [row for row in self.rows if (row.missing > 0) == is_short]
        return [r for r in there if self.metric.to_target or self.metric.name in r.figures]

    @property
    def leaders(self) -> tuple[Row, ...]:
        """The first, and all rows with the same mean to the last bits."""
        means = [row.figures[self.metric.name].mean for row in self.ranked]
        return tuple(
            row
            for row, mean in zip(self.ranked, means, strict=True)
            if math.isclose(mean, means[0], rel_tol=_RELATIVE_MIN)
        )

    @property
    def end(self) -> Metric | None:
        """The metric that compares trials which do not reach the target."""
        return METRICS[self.metric.goal] if self.metric.to_target else None

    def reached(self, row: Row) -> int:
        """Return with how many seeds a row reaches the target of this comparison."""
        return row.arrived.get(self.metric.name, row.arrived.get("time_to_target_s", 0))

    @property
    def has_target(self) -> bool:
        """True if the task has an accuracy."""
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


def compare(results: Results, *, at: Mapping[str, str] | None = None) -> Comparison:
    """Rank the points of the first axis, at a label of each further axis, by the first metric that
    the study names or else by the task's."""
    study, at = results.study, dict(at or {})
    groups = {group[0]: found for group, found in results.where(**at).groups().items()}
    groups = {label: groups[label] for label in study.axes[0].labels if label in groups}
    seeds = seeds_tried(results, at)
    asked = {label: len(seeds[found[0].trial.group]) for label, found in groups.items()}
    rows, by = in_order(groups, asked, study)
    missing = tuple(group[0] for group in seeds if group[0] not in groups)
    return _judged(
        Comparison(study=study, at=at, groups=groups, metric=by, rows=tuple(rows), missing=missing)
    )


def by_metric(comparison: Comparison, metric: Metric) -> Comparison:
    """Return the same points, ranked and judged by another metric."""
    rows = [
        Row(label=r.label, n=r.n, missing=r.missing, figures=r.figures, arrived=r.arrived)
        for r in comparison.rows
    ]
    rows.sort(key=lambda row: _rank(row, metric))
    return _judged(replace(comparison, metric=metric, rows=tuple(rows)))


def in_order(
    groups: Mapping[str, Sequence[Result]], asked: Mapping[str, int], study: Study
) -> tuple[list[Row], Metric]:
    """Rank groups of results that differ in the seed only, without regard to noise; also return
    the metric of the ranking.

    Args:
        asked: Number of results that each label should have.
    """
    rows = [_row(label, found, study.target, asked[label]) for label, found in groups.items()]
    by = _preferred(rows, study.metrics)
    return sorted(rows, key=lambda row: _rank(row, by)), by


def _row(label: str, found: Sequence[Result], target: float, seeds: int) -> Row:
    figures: dict[str, statistics.Interval] = {}
    arrived: dict[str, int] = {}
    for name, metric in METRICS.items():
        values = values_of(found, metric, target)
        needed = len(found)
        if metric.to_target:
            arrived[name], needed = len(values), max(seeds, len(found))
        # A mean of only the seeds that happen to have the figure would be a mean of the lucky ones.
        if len(values) == needed:
            figures[name] = statistics.interval(values.values())
    missing = max(0, seeds - len(found))
    return Row(label=label, n=len(found), missing=missing, figures=figures, arrived=arrived)


def _preferred(rows: Iterable[Row], named: Sequence[str]) -> Metric:
    """Return the metric to compare by, among the metrics that some row has."""
    known = {name for row in rows for name in row.figures}
    # If no point always reaches the target, only the final figure remains.
    wanted = [METRICS[name] for name in (named[0], METRICS[named[0]].goal) if name] if named else []
    usual = [metric for metric in METRICS.values() if metric.preference is not None]
    usual.sort(key=lambda metric: metric.preference or 0)
    return next((metric for metric in (*wanted, *usual) if metric.name in known), usual[-1])


def _rank(row: Row, metric: Metric) -> tuple[float, ...]:
    found = row.figures.get(metric.name)
    if found is None:
        name = metric.goal or "accuracy"
        end, sign = row.figures.get(name), 1 if METRICS[name].lower_is_better else -1
        arrived = row.arrived.get(metric.name, row.arrived.get("time_to_target_s", 0))
        # After all rows that have the figure, which begin with 0 or 1.
        return (2, row.missing > 0, -arrived, sign * end.mean if end else math.inf)
    return (float(row.missing > 0), found.mean if metric.lower_is_better else -found.mean)


def _judged(found: Comparison) -> Comparison:
    """Compare every comparable row with the first."""
    if not found.ranked:
        return found
    target = found.study.target
    values = [values_of(found.groups[row.label], found.metric, target) for row in found.ranked]
    if min(value for group in values for value in group.values()) <= 0:
        # No figure is a factor of zero, and a loss may be negative.
        found = replace(found, metric=replace(found.metric, is_ratio=False))
    family = _family(found)
    rows = [*_by_figures(found, values, family), *_by_arrivals(found, family)]
    corrected = statistics.holm([row.p for row in rows], family=family)
    first = found.ranked[0]
    judged = {first.label: replace(first, verdict=Verdict.FIRST)}
    for row, p in zip(rows, corrected, strict=True):
        verdict = Verdict.WORSE if p < SIGNIFICANT else Verdict.UNDECIDED
        verdict = Verdict.NOISE_UNKNOWN if math.isnan(p) else verdict
        verdict = row.verdict if row.verdict is Verdict.TIE else verdict
        judged[row.label] = replace(row, p=p, verdict=verdict)
    return replace(found, rows=tuple(judged.get(row.label, row) for row in found.rows))


def _family(found: Comparison) -> int:
    """Return how many comparisons those with the first were chosen from."""
    n, reference = len(found.ranked) + len(found.late), found.study.reference
    # The best of n points follows from the data that it is compared by: it was chosen from all
    # pairs.
    pairs = max(1, n * (n - 1) // 2)
    if reference not in found.groups:
        return pairs
    # A reference named beforehand was chosen from none, and only the side "worse" counts. That
    # takes half of the level; the other half is left for all pairs, if another point is first.
    return max(1, n - 1) if found.ranked[0].label == reference else 2 * pairs


def _by_figures(found: Comparison, values: Sequence[Values], family: int) -> list[Row]:
    """Compare rows that have the figure; p is not corrected yet."""
    is_ratio, first = found.metric.is_ratio, found.ranked[0]
    alike = [_are_alike(group, values[0]) for group in values[1:]]
    resolution = least = _rounding(values)
    if is_ratio:
        # Factors are differences of logarithms.
        resolution = _resolution(found.groups[first.label], found.metric, found.study.target)
        values = [
            {seed: math.log(max(value, least)) for seed, value in group.items()} for group in values
        ]
    gaps = statistics.differences(values[1:], values[0], resolution=resolution)
    rows = []
    for row, gap, is_tie in zip(found.ranked[1:], gaps, alike, strict=True):
        detectable = statistics.minimum_detectable(gap, SIGNIFICANT / family)
        if is_ratio:
            # Its standard error stays that of the logarithms.
            mean, low, high = map(statistics.exp, (gap.mean, gap.low, gap.high))
            gap = replace(gap, mean=mean, low=low, high=high)
            detectable = statistics.exp(detectable)
        verdict = Verdict.TIE if is_tie else row.verdict
        rows.append(replace(row, gap=gap, p=gap.p, verdict=verdict, detectable=detectable))
    return rows


def _are_alike(values: Values, others: Values) -> bool:
    """True if two groups have the same figure with every seed."""
    return values.keys() == others.keys() and all(
        math.isclose(value, others[seed], rel_tol=_RELATIVE_MIN) for seed, value in values.items()
    )


def _by_arrivals(found: Comparison, family: int) -> list[Row]:
    """Compare rows that do not always reach the target, by Fisher's exact test of their arrivals
    and a paired t test of their final figures; p is not corrected yet."""
    first, end, target = found.ranked[0], found.end, found.study.target
    if not found.late or end is None:
        return []
    compared = (*found.ranked[1:], *found.late)
    ends = [values_of(found.groups[row.label], end, target) for row in (first, *compared)]
    gaps = statistics.differences(
        ends[1:], ends[0], resolution=_rounding(ends), at_least_common=True
    )
    rows = []
    for row, gap in list(zip(compared, gaps, strict=True))[len(found.ranked) - 1 :]:
        by_arrivals = statistics.fisher(found.reached(row), row.n, found.reached(first), first.n)
        is_less_far = gap.mean > 0 if end.lower_is_better else gap.mean < 0
        # A row that ends better than the first is not worse, whatever the noise.
        by_ends = gap.p if is_less_far or math.isnan(gap.p) else 1.0
        is_by_arrivals = math.isnan(by_ends) or by_arrivals <= by_ends
        p = min(1.0, _TESTS * (by_arrivals if is_by_arrivals else by_ends))
        rows.append(
            replace(
                row,
                end_gap=gap,
                p=p if found.noise_known else math.nan,
                is_by_arrivals=is_by_arrivals,
                detectable=statistics.minimum_detectable(gap, SIGNIFICANT / family / _TESTS),
            )
        )
    return rows


def _rounding(values: Sequence[Values]) -> float:
    """Return the size of difference that is only rounding."""
    largest = max((abs(value) for group in values for value in group.values()), default=0.0)
    return max(largest * _RELATIVE_MIN, math.ulp(0.0))


def _resolution(found: Sequence[Result], metric: Metric, target: float) -> float:
    """Return the mean gap between evaluations where the target is reached, as part of the time."""
    if not metric.to_target:
        return 0.0
    parts: list[float] = []
    for result in found:
        index = result.reached(target, metric.goal)
        curve = result.series[metric.target_curve]
        now = None if index is None else curve[index]
        before = curve[index - 1] if index else 0.0
        if now and before is not None:
            parts.append((now - before) / now)
    return sum(parts) / len(parts) if parts else 0.0
