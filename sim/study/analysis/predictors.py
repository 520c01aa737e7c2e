"""What facts about graphs predict: rank correlations of facts with outcomes."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..metrics import FACTS, Metric, preferred, values_of
from ..results import Result, Results, seeds_tried
from ..statistics import Interval, interval
from ..study import Axis, Point, Study

__all__ = ["Prediction", "Spot", "graph_axis", "predictions"]

# What changes outcomes by itself: between points that differ in it, graphs are not compared.
_CONFOUNDING: Final = (
    *("task", "workers", "rule", "p", "emission", "wire", "shards"),
    *("lr", "optimizer", "momentum", "precision", "batch_size"),
    *("partition", "pace", "speeds", "slow", "network", "latency_s", "bandwidth_mbit"),
    *("downlink_mbit", "loss", "faults", "steps", "time_s", "total_steps"),
)

_GROUPS_MIN: Final = 4
_EXACT_MAX: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One group of a scatter plot."""

    label: str
    """Of its graph's point."""
    x: float
    """The fact, mean over seeds."""
    found: Interval | None
    """What was observed, over seeds; None where some seed never reached the target, has no such
    figure, or, of figures at the target, no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How well one fact about graphs predicts one figure."""

    fact: str
    """A key of `FACTS`."""
    metric: Metric
    """What was observed."""
    at: Mapping[str, str]
    """Where: a label for each other axis."""
    rho: float
    """Spearman's rank correlation. Groups that did not always reach the target count as the
    slowest, and those without a figure as the worst, all alike."""
    p: float
    """How often chance alone gives one as large, with two sides."""
    spots: tuple[Spot, ...]
    """In the order of the axis."""

    @property
    def words(self) -> str:
        """What to call the fact."""
        return FACTS[self.fact].words

    @property
    def censored(self) -> tuple[str, ...]:
        """Groups that did not always reach the target."""
        return tuple(spot.label for spot in self.spots if spot.found is None)


def graph_axis(study: Study) -> Axis | None:
    """The axis that changes graphs; None where there is none.

    Of its points only those that are alike in all else that matters: most of them, if others have
    another rule, or other workers. So what differs between them is the graph.
    """
    for axis in study.axes:
        values = [{p.settings.get(name) for p in axis.points} for name in ("topology", "mixing")]
        if any(len(each) > 1 for each in values):
            alike = Counter(_else(point) for point in axis.points)
            most = alike.most_common(1)[0][0]
            return Axis(axis.name, tuple(point for point in axis.points if _else(point) == most))
    return None


def _else(point: Point) -> tuple[str, ...]:
    """What a point sets besides its graph that changes outcomes, in a form to compare."""
    found = {name: repr(point.settings.get(name)) for name in _CONFOUNDING}
    # To average with all others is to take the mean of all, whatever messages it takes.
    if point.settings.get("rule") == "allreduce" and point.settings.get("topology") == "complete":
        found["rule"] = repr("dpsgd")
    return tuple(found.values())


def predictions(results: Results) -> tuple[Prediction, ...]:
    """Correlate every fact with what was observed, at every place of the other axes.

    Returns:
        By place, then by figure, then by fact; nothing where no axis changes graphs, or there are
        fewer than four of them that differ in nothing else.
    """
    axis, target = graph_axis(results.study), results.study.target
    if axis is None:
        return ()
    places: dict[tuple[tuple[str, str], ...], dict[str, list[Result]]] = {}
    for result in results.results:
        labels = dict(result.trial.labels)
        label = labels.pop(axis.name)
        if label in axis.labels:
            groups = places.setdefault(tuple(labels.items()), {})
            groups.setdefault(label, []).append(result)
    found: list[Prediction] = []
    for at, groups in places.items():
        seeds = seeds_tried(results, dict(at))
        for metric in preferred():
            observed: dict[str, Interval | None] = {}
            for label, group in groups.items():
                values = values_of(group, metric, target)
                needed = len(seeds[group[0].trial.group]) if metric.to_target else len(group)
                observed[label] = interval(values.values()) if len(values) >= needed else None
            if any(observed.values()):
                found += _of_facts(groups, observed, metric, dict(at))
    return tuple(found)


def _of_facts(
    groups: Mapping[str, Sequence[Result]],
    observed: Mapping[str, Interval | None],
    metric: Metric,
    at: Mapping[str, str],
) -> Iterator[Prediction]:
    for fact, source in FACTS.items():
        spots = [
            Spot(label=label, x=x, found=observed[label])
            for label, found in groups.items()
            if (x := _fact(found, source)) is not None
        ]
        if len(spots) < _GROUPS_MIN or len({spot.x for spot in spots}) < 2:
            continue
        facts = np.array([spot.x for spot in spots])
        # Without a figure is the worst, and that is the least where more is better.
        worst = math.inf if metric.lower_is_better else -math.inf
        means = np.array([worst if spot.found is None else spot.found.mean for spot in spots])
        rho, p = _spearman(facts, means)
        yield Prediction(fact=fact, metric=metric, at=at, rho=rho, p=p, spots=tuple(spots))


def _fact(found: Sequence[Result], fact: Metric) -> float | None:
    """Mean over seeds; None where a graph has no such thing, as the diameter of one in pieces."""
    known = [value for one in found if (value := fact.of(one, 1.0)) is not None]
    return sum(known) / len(known) if len(known) == len(found) else None


def _spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Rank correlation, and its p: exact for few values, else by Student's t."""
    from scipy.stats import permutation_test, rankdata, spearmanr

    if np.ptp(x) == 0 or np.all(y == y[0]):
        return math.nan, math.nan
    rho, p = spearmanr(x, y)
    if len(x) <= _EXACT_MAX:
        x, y = (ranks - ranks.mean() for ranks in (rankdata(x), rankdata(y)))
        p = permutation_test(
            (x,), lambda order, axis: order @ y, permutation_type="pairings", vectorized=True,
            n_resamples=np.inf,
        ).pvalue  # fmt: skip
    return float(rho), float(p)
