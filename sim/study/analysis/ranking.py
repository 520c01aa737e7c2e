"""Ranks the points of a study, and tests which differ significantly from the first."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import Final

from .. import statistics
from ..metrics import METRICS, Metric, values_of
from ..results import Result, Results
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
    p: float = math.nan
    """Probability that noise alone makes such a difference, corrected for several comparisons;
    NaN if the noise is unknown."""
    verdict: Verdict = Verdict.NOT_COMPARED
    detectable: float = math.nan
    """The smallest true difference that would be significant in 4 of 5 studies, in the unit of
    `gap`."""

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
        """The rows that miss the target with some seeds, and can be compared by how many."""
        there = self._comparable if self.ranked and self.metric.to_target else []
        return tuple(row for row in there if self.metric.name not in row.figures)

    @property
    def _comparable(self) -> list[Row]:
        # If some seeds failed, the surviving ones are not a fair sample.
        return [row for row in self.rows if row.missing == self.rows[0].missing]

    def reached(self, row: Row) -> int:
        """Return with how many seeds a row reaches the target of this comparison."""
        return row.arrived.get(self.metric.name, row.arrived.get("time_to_target_s", 0))


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
    asked = [trial for trial in study.trials() if at.items() <= trial.labels.items()]
    there = {str(result.trial): result for result in results.where(**at).results}
    # A stopped study has only begun some seeds. They count if none is finished.
    known = there.keys() | results.failures.keys()
    begun = {trial.seed for trial in asked if str(trial) not in known}
    seeds = set(study.seeds) - begun or {trial.seed for trial in asked if str(trial) in known}
    groups: dict[str, list[Result]] = {trial.group[0]: [] for trial in asked}
    for trial in asked:
        if trial.seed in seeds and str(trial) in there:
            groups[trial.group[0]].append(there[str(trial)])
    found = {label: tuple(group) for label, group in groups.items() if group}
    rows, by = in_order(found, len(seeds), study)
    missing = tuple(label for label, group in groups.items() if not group)
    return _judged(
        Comparison(study=study, at=at, groups=found, metric=by, rows=tuple(rows), missing=missing)
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
    groups: Mapping[str, Sequence[Result]], seeds: int, study: Study
) -> tuple[list[Row], Metric]:
    """Rank groups of results that differ in the seed only, without regard to noise; also return
    the metric of the ranking.

    Args:
        seeds: Number of results that each group should have.
    """
    rows = [_row(label, found, study.target, seeds) for label, found in groups.items()]
    by = _preferred(rows, study.metrics)
    return sorted(rows, key=lambda row: _rank(row, by)), by


def _row(label: str, found: Sequence[Result], target: float, seeds: int) -> Row:
    figures: dict[str, statistics.Interval] = {}
    arrived: dict[str, int] = {}
    for name, metric in METRICS.items():
        values = values_of(found, metric, target)
        if metric.to_target:
            arrived[name] = len(values)
        # A mean of only the seeds that happen to have the figure would be a mean of the lucky ones.
        if len(values) == (seeds if metric.to_target else len(found)):
            figures[name] = statistics.interval(values.values())
    missing = seeds - len(found)
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
    first, *others = found.ranked
    target = found.study.target
    figures = [values_of(found.groups[row.label], found.metric, target) for row in found.ranked]
    every = [value for values in figures for value in values.values()]
    resolution = least = max(max(map(abs, every)) * _RELATIVE_MIN, math.ulp(0.0))
    if min(every) <= 0:
        # No figure is a factor of zero, and a loss may be negative.
        found = replace(found, metric=replace(found.metric, is_ratio=False))
    is_ratio, values = found.metric.is_ratio, figures
    if is_ratio:
        # Factors are differences of logarithms.
        resolution = _resolution(found.groups[first.label], found.metric, target)
        values = [
            {seed: math.log(max(value, least)) for seed, value in group.items()}
            for group in figures
        ]
    gaps = statistics.differences(values[1:], values[0], resolution=resolution)
    family = _family(found)
    arrivals = [
        statistics.fisher(found.reached(row), row.n, found.reached(first), first.n)
        for row in found.late
    ]
    corrected = statistics.holm([*(gap.p for gap in gaps), *arrivals], family=family)
    judged = {first.label: replace(first, verdict=Verdict.FIRST)}
    for row, p in zip(found.late, corrected[len(gaps) :], strict=True):
        judged[row.label] = replace(row, p=p, verdict=_verdict(p))
    for row, group, gap, p in zip(others, figures[1:], gaps, corrected, strict=False):
        detectable = statistics.minimum_detectable(gap, SIGNIFICANT / family)
        if is_ratio:
            # Its standard error stays that of the logarithms.
            mean, low, high = map(statistics.exp, (gap.mean, gap.low, gap.high))
            gap = replace(gap, mean=mean, low=low, high=high)
            detectable = statistics.exp(detectable)
        verdict = Verdict.TIE if _are_alike(group, figures[0]) else _verdict(p)
        judged[row.label] = replace(row, gap=gap, p=p, verdict=verdict, detectable=detectable)
    return replace(found, rows=tuple(judged.get(row.label, row) for row in found.rows))


def _verdict(p: float) -> Verdict:
    if math.isnan(p):
        return Verdict.NOISE_UNKNOWN
    return Verdict.WORSE if p < SIGNIFICANT else Verdict.UNDECIDED


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


def _are_alike(values: Values, others: Values) -> bool:
    """True if two groups have the same figure with every seed."""
    return values.keys() == others.keys() and all(
        math.isclose(value, others[seed], rel_tol=_RELATIVE_MIN) for seed, value in values.items()
    )


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
