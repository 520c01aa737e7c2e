"""Who is first, who is as good within the noise, and who never gets there."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from .gaps import gaps_to_first
from .measures import MEASURES, Measure, values_of
from .naming import plain
from .result import Result, Results
from .row import SIGNIFICANT, Row
from .seeds import seeds_tried
from .statistics import Interval, holm, interval
from .words import count, listed

__all__ = ["SIGNIFICANT", "Comparison", "Row", "compare", "comparisons", "facets"]

# Of rows without the figure: the first number of their rank.
_UNRANKED: Final = 2

_AT_END: Final = ("accuracy", "disagreement_stationary", "disagreement", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The points of the first axis, at one place of all others."""

    axis: str
    """What is compared."""

    at: Mapping[str, str]
    """Where: a label for each further axis."""

    measure: Measure
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
    def best(self) -> Row | None:
        """The first; None without results."""
        return self.rows[0] if self.rows else None

    @property
    def ranked(self) -> tuple[Row, ...]:
        """The best, and those that can be held against it: they have the figure, and lack no seed
        unless the best does too. The survivors among seeds that failed are no fair sample."""
        return tuple(row for row in self.rows if _rank(row, self.measure)[0] == self._standing)

    @property
    def _standing(self) -> float:
        """The first number of the best's rank; that of those without a figure is none."""
        first = _rank(self.rows[0], self.measure)[0] if self.rows else _UNRANKED
        return first if first < _UNRANKED else math.nan

    @property
    def unknown(self) -> tuple[Row, ...]:
        """Those of which the noise is not known: they share too few seeds with the best."""
        return tuple(row for row in self.ranked[1:] if math.isnan(row.p))

    @property
    def incomplete(self) -> tuple[Row, ...]:
        """Those that lack seeds."""
        return tuple(row for row in self.rows if row.missing)

    @property
    def is_waiting(self) -> bool:
        """Whether some lack seeds, and reach the target with all that they have."""
        return any(row.missing and row.reached == row.n for row in self.rows)

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
    seeds = seeds_tried(results, at)
    rows = [
        _row(groups[label], study.target, len(seeds[groups[label][0].cell.group]))
        for label in axis.labels
        if label in groups
    ]
    by = MEASURES[measure] if measure else _measure(rows)
    rows.sort(key=lambda row: _rank(row, by))
    found = Comparison(
        axis=axis.name,
        at=at,
        measure=by,
        target=study.target,
        rows=tuple(rows),
        missing=tuple(group[0] for group in seeds if group[0] not in groups),
        noise_known=any(row.n > 1 for row in rows),
    )
    return _with_gaps(found, groups)


def _row(found: Sequence[Result], target: float, seeds: int) -> Row:
    reached = sum(result.reached(target) is not None for result in found)
    figures: dict[str, Interval] = {}
    for name, measure in MEASURES.items():
        values = values_of(found, measure, target)
        needed = len(found) if measure.curve is None else max(seeds, len(found))
        # A mean of those seeds only that happen to have one would be of the lucky.
        if len(values) == needed:
            figures[name] = interval(values.values())
    return Row(
        label=found[0].cell.group[0],
        group=found[0].cell.group,
        n=len(found),
        missing=max(0, seeds - len(found)),
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
        most = -accuracy.mean if accuracy else math.inf
        return (_UNRANKED, row.missing > 0, -row.reached, most)
    return (float(row.missing > 0), found.mean if measure.is_lower_better else -found.mean)


def _with_gaps(found: Comparison, groups: Mapping[str, Sequence[Result]]) -> Comparison:
    """Hold everyone that can be compared against the first."""
    if not found.ranked:
        return found
    measure, target = found.measure, found.target
    best, *others = found.ranked
    values = [values_of(groups[row.label], measure, target) for row in found.ranked]
    if min(value for group in values for value in group.values()) <= 0:
        # Nothing is a factor of zero, and a loss may be less.
        measure = replace(measure, is_ratio=False)
    gaps = gaps_to_first(
        values,
        is_ratio=measure.is_ratio,
        resolution=_resolution(groups[best.label], measure, target),
    )
    n = len(found.ranked)
    corrected = holm([gap.p for gap in gaps], family=n * (n - 1) // 2)
    rows = [replace(best, as_good_as_best=True)]
    for row, gap, p in zip(others, gaps, corrected, strict=True):
        # No p, no say: a comparison with NaN is False.
        rows.append(replace(row, gap=gap, p=p, as_good_as_best=p >= SIGNIFICANT))
    return replace(found, measure=measure, rows=(*rows, *found.rows[n:]))


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
    best = plain(found.best.label)
    if found.tied:
        verb = "is" if len(found.tied) == 1 else "are"
        tied = listed([plain(row.label) for row in found.tied])
        return f"{tied} {verb} as good as {best}, within the noise of {count(seeds, 'seed')}."
    if found.unknown:
        unknown = listed([plain(row.label) for row in found.unknown])
        return (
            f"Noise not known: whether {best} is ahead of {unknown} cannot be said from so few "
            "seeds in common."
        )
    compared = len(found.ranked)
    if compared < 2:
        return _alone(found, best)
    if compared == len(found.rows):
        others = "all others"
    elif found.incomplete:
        others = "the others that can be compared"
    else:
        others = "the others that always get there"
    return f"{best} is ahead of {others} by more than the noise."


def _alone(found: Comparison, best: str) -> str:
    if not found.ranked:
        return f"There is no {found.measure.words} to compare."
    if found.is_waiting or (found.incomplete and found.measure.curve is None):
        return f"{best} is the only one that can be compared: others lack seeds."
    if found.measure.curve is not None:
        return f"{best} is the only one to reach the target with every seed."
    return f"{best} is the only one with a {found.measure.words} for every seed."
