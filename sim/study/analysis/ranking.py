"""Who is first, who is told apart from the first, and by what."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import Final

from ..metrics import METRICS, Metric, preferred, values_of
from ..results import Result, Results, seeds_tried
from ..statistics import Difference, Interval, differences, exp, fisher, holm, interval, least_seen
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

# Of rows without the figure: the first number of their rank.
_UNRANKED: Final = 2

# Zero has no logarithm. Less than this part of the largest is rounding.
_RELATIVE_MIN: Final = 1e-12

# Arrivals and final figures are two tests of one pair.
_TESTS: Final = 2


class Verdict(StrEnum):
    """How a row stands to the first."""

    FIRST = "first"
    """It is the first."""

    TIE = "tie"
    """It has the same figure with every seed."""

    UNDECIDED = "not told apart"
    """The difference may be noise, which does not mean that there is none."""

    APART = "told apart"
    """It is worse by more than noise."""

    NOISE_UNKNOWN = "noise unknown"
    """The two share too few seeds."""

    NOT_COMPARED = "not compared"
    """It lacks the figure, or seeds that the first has."""


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

    arrived: Mapping[str, int] = field(default_factory=dict)
    """For each metric that is counted to the target, how many seeds reached it."""

    gap: Difference | None = None
    """To the first: a factor (1.5 takes half as much again) where the comparison's metric is a
    ratio, else a difference. Its interval is for this pair alone. None for the first itself, and
    where there is nothing to compare."""

    end_gap: Difference | None = None
    """Of rows that do not always arrive: the difference in how far they came."""

    p: float = math.nan
    """How often noise alone makes as much of a difference, corrected for there being several
    (Holm); NaN where the noise is not known."""

    verdict: Verdict = Verdict.NOT_COMPARED

    is_by_arrivals: bool = False
    """Whether the p is that of how many seeds arrived; else it is that of figures."""

    seen_from: float = math.nan
    """The power of the comparison: the smallest true difference that it would tell from noise in
    4 of 5 studies. In the unit of `gap`, or, of rows that do not always arrive, of `end_gap`."""

    @property
    def may_be_first(self) -> bool:
        """Whether nothing tells it from the first."""
        return self.verdict in (Verdict.FIRST, Verdict.TIE, Verdict.UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The points of the first axis, at one place of all others."""

    study: Study

    at: Mapping[str, str]
    """Where: a label for each further axis."""

    groups: Mapping[str, tuple[Result, ...]]
    """Results there, by the label of their point, in order."""

    metric: Metric
    """What they are ranked by. No ratio where some figure is 0 or less, as a loss may be: these
    differ by no factor."""

    rows: tuple[Row, ...]
    """In the order of their means, the first of which need not be better than the next by more
    than noise. Those that do not always reach the target come behind those that do, and those that
    lack seeds which others have behind all that have them."""

    missing: tuple[str, ...]
    """Points without any result."""

    noise_known: bool
    """Whether there is more than one seed, so that differences can be held against the noise."""

    @property
    def axis(self) -> str:
        """What is compared."""
        return self.study.axes[0].name

    @property
    def ranked(self) -> tuple[Row, ...]:
        """The first, and those whose figures can be held against it: they have one, and lack no
        seed unless the first does too. The survivors among seeds that failed are no fair sample."""
        return tuple(row for row in self._comparable if self.metric.name in row.figures)

    @property
    def late(self) -> tuple[Row, ...]:
        """Those that do not reach the target with every seed, and lack no seed: held against the
        first by how many arrive, and by how far they come."""
        return tuple(row for row in self._comparable if self.metric.name not in row.figures)

    @property
    def _comparable(self) -> tuple[Row, ...]:
        if not self.rows or self.metric.name not in self.rows[0].figures:
            return ()
        is_short = self.rows[0].missing > 0
        return tuple(
            row
            for row in self.rows
            if (row.missing > 0) == is_short
            and (self.metric.name in row.figures or self.metric.to_target)
        )

    @property
    def leaders(self) -> tuple[Row, ...]:
        """The first, and those that have the same mean to the last bits."""
        means = [row.figures[self.metric.name].mean for row in self.ranked]
        return tuple(
            row
            for row, mean in zip(self.ranked, means, strict=True)
            if math.isclose(mean, means[0], rel_tol=_RELATIVE_MIN)
        )

    @property
    def undecided(self) -> tuple[Row, ...]:
        """Those that are not told apart from the first, and do not tie with it."""
        return tuple(row for row in self.rows if row.verdict is Verdict.UNDECIDED)

    @property
    def end(self) -> Metric | None:
        """What says how far trials came that do not reach the target."""
        return METRICS[self.metric.end] if self.metric.to_target else None

    def reached(self, row: Row) -> int:
        """With how many seeds a row arrives at the target that this comparison is about."""
        return row.arrived.get(self.metric.name, row.reached)

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


def compare(results: Results, *, at: Mapping[str, str] | None = None) -> Comparison:
    """Rank the points of the first axis.

    That is by the first metric that the study names, or else by time to the target where any of
    them always reaches it, else by final accuracy, and for tasks without accuracy by what they
    have: disagreement, loss or consensus distance.

    Args:
        at: A label for each further axis; may be left out where there is none.
    """
    study, at = results.study, dict(at or {})
    groups = {group[0]: found for group, found in results.where(**at).groups().items()}
    groups = {label: groups[label] for label in study.axes[0].labels if label in groups}
    seeds = seeds_tried(results, at)
    asked = {label: len(seeds[found[0].trial.group]) for label, found in groups.items()}
    rows, by = in_order(groups, asked, study)
    found = Comparison(
        study=study,
        at=at,
        groups=groups,
        metric=by,
        rows=tuple(rows),
        missing=tuple(group[0] for group in seeds if group[0] not in groups),
        noise_known=any(row.n > 1 for row in rows),
    )
    return _with_gaps(found)


def by_metric(comparison: Comparison, metric: Metric) -> Comparison:
    """The same points, ranked by another metric and judged by it."""
    rows = [
        Row(
            label=row.label,
            n=row.n,
            missing=row.missing,
            reached=row.reached,
            figures=row.figures,
            arrived=row.arrived,
        )
        for row in comparison.rows
    ]
    rows.sort(key=lambda row: _rank(row, metric))
    return _with_gaps(replace(comparison, metric=metric, rows=tuple(rows)))


def in_order(
    groups: Mapping[str, Sequence[Result]], asked: Mapping[str, int], study: Study
) -> tuple[list[Row], Metric]:
    """Rank groups of results, without a word on noise.

    Args:
        groups: Results that differ in the seed only, by label.
        asked: For each label, how many there should be.
        study: Names the target, and perhaps metrics.

    Returns:
        Rows, the first first, and the metric that they are ranked by.
    """
    rows = [_row(label, found, study.target, asked[label]) for label, found in groups.items()]
    by = _preferred(rows, study.metrics)
    return sorted(rows, key=lambda row: _rank(row, by)), by


def _row(label: str, found: Sequence[Result], target: float, seeds: int) -> Row:
    reached = sum(result.reached(target) is not None for result in found)
    figures: dict[str, Interval] = {}
    arrived: dict[str, int] = {}
    for name, metric in METRICS.items():
        values = values_of(found, metric, target)
        needed = len(found) if not metric.to_target else max(seeds, len(found))
        if metric.to_target:
            arrived[name] = len(values)
        # A mean of those seeds only that happen to have one would be of the lucky.
        if len(values) == needed:
            figures[name] = interval(values.values())
    return Row(
        label=label,
        n=len(found),
        missing=max(0, seeds - len(found)),
        reached=reached,
        figures=figures,
        arrived=arrived,
    )


def _preferred(rows: Iterable[Row], named: Sequence[str]) -> Metric:
    """Of the metrics that some row has, the one to compare by."""
    known = {name for row in rows for name in row.figures}
    if named:
        # Where nobody always arrives there is nothing but how far they came.
        first = METRICS[named[0]]
        if (wanted := {first.name, first.end} & known) and wanted:
            return first if first.name in wanted else METRICS[first.end]
    *others, last = preferred()
    return next((metric for metric in others if metric.name in known), last)


def _rank(row: Row, metric: Metric) -> tuple[float, ...]:
    found = row.figures.get(metric.name)
    if found is None:
        name = metric.end or "accuracy"
        end, sign = row.figures.get(name), 1 if METRICS[name].lower_is_better else -1
        arrived = row.arrived.get(metric.name, row.reached)
        return (_UNRANKED, row.missing > 0, -arrived, sign * end.mean if end else math.inf)
    return (float(row.missing > 0), found.mean if metric.lower_is_better else -found.mean)


def _with_gaps(found: Comparison) -> Comparison:
    """Hold everyone that can be compared against the first."""
    if not found.ranked:
        return found
    target = found.study.target
    values = [values_of(found.groups[row.label], found.metric, target) for row in found.ranked]
    if min(value for group in values for value in group.values()) <= 0:
        # Nothing is a factor of zero, and a loss may be less.
        found = replace(found, metric=replace(found.metric, is_ratio=False))
    first, *others = found.ranked
    reference = found.study.reference if found.study.reference in found.groups else ""
    pairs = _chosen_from(len(others) + 1 + len(found.late), first.label, reference)
    rows = [*_held_by_figures(found, others, values, pairs), *_held_by_arrivals(found, pairs)]
    corrected = holm([row.p for row in rows], family=pairs)
    judged = {
        row.label: replace(row, p=p, verdict=_verdict(row, p))
        for row, p in zip(rows, corrected, strict=True)
    }
    judged[first.label] = replace(first, verdict=Verdict.FIRST)
    return replace(found, rows=tuple(judged.get(row.label, row) for row in found.rows))


def _chosen_from(n: int, first: str, reference: str) -> int:
    """How many comparisons those of n points with the first were chosen from.

    Whoever is compared with the best of n, and learns from the same data which one that is, has
    chosen from all pairs. A reference that was named beforehand has been chosen from none: where it
    is first, there are n - 1, of which only the side counts that says "worse". That takes half of
    the level, so where another is first, the other half is left for all pairs.
    """
    pairs = max(1, n * (n - 1) // 2)
    if not reference:
        return pairs
    return max(1, n - 1) if first == reference else 2 * pairs


def _verdict(row: Row, p: float) -> Verdict:
    if row.verdict is Verdict.TIE:
        return row.verdict
    if math.isnan(p):
        return Verdict.NOISE_UNKNOWN
    return Verdict.APART if p < SIGNIFICANT else Verdict.UNDECIDED


def _held_by_figures(
    found: Comparison, others: Sequence[Row], values: Sequence[Mapping[int, float]], pairs: int
) -> list[Row]:
    """Rows that have the figure: a paired t test each, p not corrected yet."""
    metric, first = found.metric, found.ranked[0]
    resolution = _resolution(found.groups[first.label], metric, found.study.target)
    gaps = _gaps_to_first(values, is_ratio=metric.is_ratio, resolution=resolution)
    rows = []
    for row, gap, own in zip(others, gaps, values[1:], strict=True):
        least = least_seen(gap, SIGNIFICANT / pairs)
        seen_from = exp(least) if metric.is_ratio else least
        verdict = Verdict.TIE if _same(own, values[0]) else row.verdict
        gap = _as_factor(gap) if metric.is_ratio else gap
        rows.append(replace(row, gap=gap, p=gap.p, verdict=verdict, seen_from=seen_from))
    return rows


def _same(values: Mapping[int, float], others: Mapping[int, float]) -> bool:
    """Whether two groups have the same figure with every seed."""
    return values.keys() == others.keys() and all(
        math.isclose(value, others[seed], rel_tol=_RELATIVE_MIN) for seed, value in values.items()
    )


def _held_by_arrivals(found: Comparison, pairs: int) -> list[Row]:
    """Rows that do not always arrive: by how many do, and by how far they come; p not corrected.

    That a seed does not arrive may be chance as well as a late arrival. So the counts are tested by
    Fisher's exact test, and the ends by a paired t test. These are two tests of one pair, so the
    smaller p counts twice.
    """
    first, end = found.ranked[0], found.end
    if not found.late or end is None:
        return []
    compared = [row for row in (*found.ranked[1:], *found.late)]
    target = found.study.target
    ends = [values_of(found.groups[row.label], end, target) for row in (first, *compared)]
    largest = max((abs(value) for group in ends for value in group.values()), default=0.0)
    resolution = max(largest * _RELATIVE_MIN, math.ulp(0.0))
    gaps = differences(ends[1:], ends[0], resolution=resolution, at_least_common=True)
    rows = []
    for row, gap in zip(compared, gaps, strict=True):
        if row not in found.late:
            continue
        arrived, of = found.reached(first), first.n
        by_arrivals = fisher(found.reached(row), row.n, arrived, of) if found.noise_known else 1.0
        is_less_far = gap.mean < 0 if not end.lower_is_better else gap.mean > 0
        # Who comes farther is not behind for it, whatever the noise.
        by_ends = math.nan if math.isnan(gap.p) else gap.p if is_less_far else 1.0
        is_by_arrivals = math.isnan(by_ends) or by_arrivals <= by_ends
        p = min(1.0, _TESTS * (by_arrivals if is_by_arrivals else by_ends))
        rows.append(
            replace(
                row,
                end_gap=gap,
                p=p if found.noise_known else math.nan,
                is_by_arrivals=is_by_arrivals,
                seen_from=least_seen(gap, SIGNIFICANT / pairs / _TESTS),
            )
        )
    return rows


def _resolution(found: Sequence[Result], metric: Metric, target: float) -> float:
    """How far apart two evaluations are where the target is reached, as part of the time."""
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


def _gaps_to_first(
    values: Sequence[Mapping[int, float]], *, is_ratio: bool, resolution: float
) -> tuple[Difference, ...]:
    """Compare groups with the first; values of p are not corrected yet.

    Args:
        values: For each group, at least one, a value for each seed.
        is_ratio: Whether they differ by factors; all values must be positive then, and differences
            are those of logarithms.
        resolution: Values are known to this part of them only; for factors.
    """
    largest = max(abs(value) for group in values for value in group.values())
    least = max(largest * _RELATIVE_MIN, math.ulp(0.0))
    if not is_ratio:
        return differences(values[1:], values[0], resolution=least)
    first, *others = [
        {seed: math.log(max(value, least)) for seed, value in group.items()} for group in values
    ]
    return differences(others, first, resolution=resolution)


def _as_factor(gap: Difference) -> Difference:
    """A difference of logarithms as a factor; its error stays that of the logarithms."""
    mean, low, high = map(exp, (gap.mean, gap.low, gap.high))
    return replace(gap, mean=mean, low=low, high=high)
