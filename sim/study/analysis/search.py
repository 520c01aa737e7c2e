"""The best value of one axis for every point of the others, and how it was found."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..format import count, number, of_seeds
from ..metrics import METRICS, Metric
from ..results import Result, Results
from ..study import Axis, Condition, Study, Trial
from .ranking import Row, in_order

__all__ = ["Search", "Tried", "searched"]

Group = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What each value of the axis gave at one point of the others."""

    at: Mapping[str, str]
    """The point: a label for each other axis."""

    metric: Metric
    """What values were ranked by."""

    rows: Mapping[str, Row]
    """What came of each value, over all seeds; without those that have no result."""

    taken: Mapping[str, int]
    """For how many seeds each value was the best on the others; the most often taken first."""

    edge: str
    """``smallest`` or ``largest`` where the value that was taken most often is the end of an axis
    of numbers, so that a better one may lie beyond; else empty."""

    @property
    def taken_words(self) -> str:
        """What was taken, as in ``0.2`` or ``0.2 (2 seeds), 0.4 (1), the largest``."""
        counts = list(self.taken.items())
        if len(counts) == 1:
            text = counts[0][0]
        else:
            text = ", ".join(f"{label} ({times})" for label, times in counts)
        return f"{text}, the {self.edge} tried" if self.edge else text

    def words(self, label: str) -> str:
        """What a value gave, in a cell of a table."""
        row = self.rows.get(label)
        if row is None:
            return "no result"
        if row.missing:
            return of_seeds(row.n, row.n + row.missing)
        found = row.figures.get(self.metric.name)
        if found is not None:
            return self.metric.spread(found)
        arrived = f"{row.arrived.get(self.metric.name, 0)} of {row.n} arrive"
        end = row.figures.get(self.metric.end)
        return f"{arrived}, end {METRICS[self.metric.end].spread(end)}" if end else arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What was tried at every point, and what was taken."""

    axis: Axis
    """Whose values were tried."""

    tried: tuple[Tried, ...]
    """In the order of the other axes."""

    is_honest: bool
    """Whether each seed is shown at the value that is best on the *other* seeds; with one seed
    alone there are none, and its best is the best of several draws of noise."""

    def table(self, at: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
        """What every value gave at one place of the further axes: heads and lines of a table."""
        first = next(iter(self.tried[0].at), "") if self.tried else ""
        heads = [first, *self.axis.labels, "taken", "by"]
        lines = [
            [
                one.at[first],
                *(one.words(label) for label in self.axis.labels),
                one.taken_words,
                one.metric.words,
            ]
            for one in self.tried
            if at.items() <= one.at.items()
        ]
        return heads, lines

    @property
    def words(self) -> str:
        """How values were taken, in two or three sentences."""
        tried = ", ".join(self.axis.labels)
        how = (
            "Every seed is shown at the value that is best on all other seeds, so that nobody "
            "gains by having been lucky twice."
            if self.is_honest
            else "With one seed, it is shown at its own best value, which flatters all points."
        )
        edges = sum(1 for one in self.tried if one.edge)
        text = f"At every point {self.axis.name} was searched among {tried}. {how}"
        if not edges:
            return f"{text} No point's best lies at the edge of what was tried."
        return (
            f"{text} At {number(edges)} of {count(len(self.tried), 'point')} the best lies at the "
            "edge: a better one may lie beyond."
        )


def searched(results: Results) -> tuple[Results, Search | None]:
    """Take, for every point of the other axes, the best value of the axis that the study tunes.

    For each seed that is the value which ranks first over the other seeds: by the first metric of
    the study, else by what points are compared by. Seeds that were only begun are left out, as
    `Results.of_finished_seeds` has it.

    Returns:
        What is left when that axis is gone, and the search; the results as they are, and None,
        where the study tunes nothing.
    """
    study = results.study
    if not study.tune:
        return results.of_finished_seeds(), None
    axis = next(axis for axis in study.axes if axis.name == study.tune)
    places = _places(study, axis)
    there = {(result.trial.group, result.trial.seed): result for result in results.results}
    reduced = _without(study, axis, list(places))
    found: dict[tuple[Group, int], Result] = {}
    failures: dict[str, str] = {}
    tried = []
    trials = {(trial.group, trial.seed): trial for trial in reduced.trials()}
    names = {(trial.group, trial.seed): str(trial) for trial in study.trials()}
    for group, labels in places.items():
        of_values = {
            label: [there[place, seed] for seed in study.seeds if (place, seed) in there]
            for label, place in labels.items()
        }
        picks = {seed: _pick(of_values, study, seed) for seed in study.seeds}
        for seed, label in picks.items():
            trial = trials[group, seed]
            result = next((one for one in of_values[label] if one.trial.seed == seed), None)
            if result is not None:
                settings = result.trial.settings
                kept = Trial(labels=trial.labels, settings=settings)
                found[group, seed] = replace(result, trial=kept)
                continue
            why = results.failures.get(names[labels[label], seed])
            if why is not None:
                failures[str(trial)] = f"{axis.name} = {label}: {why}"
        if any(of_values.values()):
            tried.append(_tried(trials[group, study.seeds[0]], of_values, study, axis, picks))
    kept_results = tuple(found[place] for place in trials if place in found)
    search = Search(axis=axis, tried=tuple(tried), is_honest=len(study.seeds) > 1)
    left = Results(study=reduced, results=kept_results, failures=failures)
    return left.of_finished_seeds(), search


def _places(study: Study, axis: Axis) -> dict[Group, dict[str, Group]]:
    """For each point of the other axes that has trials, the groups of its values by their label."""
    found: dict[Group, dict[str, Group]] = {}
    for trial in study.trials():
        others = tuple(label for name, label in trial.labels.items() if name != axis.name)
        found.setdefault(others, {})[trial.labels[axis.name]] = trial.group
    return found


def _without(study: Study, axis: Axis, there: Sequence[Group]) -> Study:
    """The study without an axis; points that had no trial still have none."""
    axes = tuple(other for other in study.axes if other is not axis)
    bare = replace(study, axes=axes, skip=(), tune="")
    gone = dict.fromkeys(t.group for t in bare.trials() if t.group not in set(there))
    names = [other.name for other in axes]
    skip = tuple(Condition(dict(zip(names, group, strict=True))) for group in gone)
    return replace(bare, skip=skip)


def _pick(of_values: Mapping[str, Sequence[Result]], study: Study, seed: int) -> str:
    """The value that ranks first on all seeds but this one; of one seed, on that."""
    others = [one for one in study.seeds if one != seed] or [seed]
    groups = {
        label: [one for one in found if one.trial.seed in others]
        for label, found in of_values.items()
    }
    rows, _ = _ranked(groups, study)
    return rows[0].label if rows else next(iter(of_values))


def _ranked(of_values: Mapping[str, Sequence[Result]], study: Study) -> tuple[list[Row], Metric]:
    there = {label: found for label, found in of_values.items() if found}
    # Seeds that nobody has a result of have not been run.
    tried = len({one.trial.seed for found in there.values() for one in found})
    return in_order(there, dict.fromkeys(there, tried), study)


def _tried(
    trial: Trial,
    of_values: Mapping[str, Sequence[Result]],
    study: Study,
    axis: Axis,
    picks: Mapping[int, str],
) -> Tried:
    rows, metric = _ranked(of_values, study)
    taken = dict(Counter(picks.values()).most_common())
    return Tried(
        at=trial.labels,
        metric=metric,
        rows={row.label: row for row in rows},
        taken=taken,
        edge=_edge(axis, next(iter(taken))),
    )


def _edge(axis: Axis, label: str) -> str:
    numbers = axis.numbers
    if numbers is None or len(numbers) < 2:
        return ""
    value = dict(zip(axis.labels, numbers, strict=True))[label]
    ends = {min(numbers): "smallest", max(numbers): "largest"}
    return ends.get(value, "")
