"""One metric over two axes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..format import count
from ..metrics import METRICS, Metric, values_of
from ..results import Result, Results, seeds_tried
from ..study import Axis

__all__ = ["Heatmap", "heatmap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """A table of means over seeds."""

    row_axis: str

    column_axis: str

    rows: tuple[str, ...]
    """Labels, in the order of the study."""

    columns: tuple[str, ...]

    metric: Metric

    values: tuple[tuple[float | None, ...], ...]
    """For each row, one for each column; None where there is no mean."""

    missing: tuple[tuple[str, ...], ...]
    """Likewise, why there is none, in words; empty where there is one."""


def heatmap(
    results: Results,
    value: str,
    *,
    rows: str | None = None,
    columns: str | None = None,
    at: Mapping[str, str] | None = None,
) -> Heatmap | None:
    """Draw up a table of a figure over two axes.

    Args:
        results: Of a study.
        value: Name of the figure: one of `METRICS`.
        rows: Name of the axis that goes down; the first unless given.
        columns: Name of the axis that goes across; the second unless given.
        at: A label for each further axis.

    Returns:
        None for a study with one axis.
    """
    study = results.study
    if len(study.axes) < 2:
        return None
    by_name = {axis.name: axis for axis in study.axes}
    down, across = by_name[rows or study.axes[0].name], by_name[columns or study.axes[1].name]
    metric = METRICS[value]
    at = dict(at or {})
    asked = _asked(results, (down, across), at)
    there: dict[tuple[str, str], list[Result]] = {}
    for result in results.where(**at).results:
        labels = result.trial.labels
        there.setdefault((labels[down.name], labels[across.name]), []).append(result)
    entries = [
        [
            _entry(there.get((row, column), ()), asked.get((row, column)), metric, study.target)
            for column in across.labels
        ]
        for row in down.labels
    ]
    return Heatmap(
        row_axis=down.name,
        column_axis=across.name,
        rows=down.labels,
        columns=across.labels,
        metric=metric,
        values=tuple(tuple(mean for mean, _ in row) for row in entries),
        missing=tuple(tuple(why for _, why in row) for row in entries),
    )


def _asked(
    results: Results, axes: tuple[Axis, Axis], at: Mapping[str, str]
) -> dict[tuple[str, ...], int]:
    """How many results there should be at every place on two axes."""
    names = [axis.name for axis in results.study.axes]
    wanted = [names.index(axis.name) for axis in axes]
    found: dict[tuple[str, ...], int] = {}
    for group, seeds in seeds_tried(results, at).items():
        place = tuple(group[index] for index in wanted)
        found[place] = found.get(place, 0) + len(seeds)
    return found


def _entry(
    found: Sequence[Result], asked: int | None, metric: Metric, target: float
) -> tuple[float | None, str]:
    """A mean, or why there is none."""
    if asked is None:
        return None, "left out"
    if not found:
        return None, "no result"
    values = values_of(found, metric, target)
    if metric.to_target and values and len(found) < asked:
        verb = "has" if asked == 1 else "have"
        return None, f"{len(found)} of {count(asked, 'seed')} {verb} a result"
    if len(values) == len(found):
        return _mean(values.values()), ""
    if not metric.to_target:
        return None, "none"
    if not values:
        return None, "never reached"
    return None, f"{len(values)} of {count(len(found), 'seed')} reached it"


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
