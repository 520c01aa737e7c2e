"""The best value of one axis for every point of the others, and how it was found."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..metrics import Metric
from ..results import Result, Results
from ..study import Axis, Study, Trial
from .ranking import Row, in_order
from .verdicts import figure_words

__all__ = ["Search", "Tried", "searched"]

_Group = tuple[str, ...]
_BySeed = Mapping[int, Result]
"""Results of one value of the tuned axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Results of each value of the tuned axis at one point of the others."""

    at: Mapping[str, str]
    """The point: a label for each other axis."""
    metric: Metric
    """The metric of the ranking."""
    rows: Mapping[str, Row]
    """Rows over all seeds, by value; values without any result are missing."""
    taken: Mapping[str, int]
    """Number of seeds for which each value was best on the other seeds; most frequent first."""
    edge: str
    """``smallest`` or ``largest`` if the most frequent value is an end of the axis, beyond which a
    better one may lie; else empty."""

    @property
    def taken_words(self) -> str:
        """The chosen values, as in ``0.2`` or ``0.2 (2), 0.4 (1), the largest tried``."""
        text = ", ".join(f"{label} ({times})" for label, times in self.taken.items())
        text = next(iter(self.taken)) if len(self.taken) == 1 else text
        return f"{text}, the {self.edge} tried" if self.edge else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """All values tried at every point, and the values chosen."""

    axis: Axis
    """The tuned axis."""
    tried: tuple[Tried, ...]
    """Results in the order of the other axes."""
    is_cross_validated: bool
    """True if each seed is shown at the value that is best on the *other* seeds; a single seed has
    none."""

    def table(self, at: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
        """Return the head and lines of a table of every value, at a place of the further axes."""
        first = next(iter(self.tried[0].at), "") if self.tried else ""
        heads = [first, *self.axis.labels, "taken", "by"]
        lines = [
            [
                one.at[first],
                *(
                    figure_words(one.rows[label], one.metric) if label in one.rows else "no result"
                    for label in self.axis.labels
                ),
                one.taken_words,
                one.metric.words,
            ]
            for one in self.tried
            if at.items() <= one.at.items()
        ]
        return heads, lines

    @property
    def words(self) -> str:
        """Explain how values were chosen."""
        how = "on all other seeds" if self.is_cross_validated else "with the only seed"
        tried = ", ".join(self.axis.labels)
        return f"Of {self.axis.name}, each point has the value of {tried} that is best {how}."


def searched(results: Results) -> tuple[Results, Search | None]:
    """Show every seed at the value of the tuned axis that ranks first over the other seeds, and
    leave out seeds that were only begun.

    Returns:
        The results without that axis, and the search; None if the study tunes nothing.
    """
    study = results.study
    if not study.tune:
        return results.of_finished_seeds(), None
    axis = next(axis for axis in study.axes if axis.name == study.tune)
    there = {(result.trial.group, result.trial.seed): result for result in results.results}
    # Results by point of the other axes, value and seed.
    places: dict[_Group, dict[str, dict[int, Result]]] = {}
    whys: dict[tuple[_Group, str, int], str] = {}
    for trial in study.trials():
        others = tuple(label for name, label in trial.labels.items() if name != axis.name)
        value = trial.labels[axis.name]
        by_seed = places.setdefault(others, {}).setdefault(value, {})
        if (trial.group, trial.seed) in there:
            by_seed[trial.seed] = there[trial.group, trial.seed]
        elif str(trial) in results.failures:
            whys[others, value, trial.seed] = results.failures[str(trial)]
    reduced = _without(study, axis, places)
    picks = {place: {s: _pick(of, study, s) for s in study.seeds} for place, of in places.items()}
    found: list[Result] = []
    failures: dict[str, str] = {}
    for trial in reduced.trials():
        value = picks[trial.group][trial.seed]
        result = places[trial.group][value].get(trial.seed)
        if result is not None:
            kept = Trial(labels=trial.labels, settings=result.trial.settings)
            found.append(replace(result, trial=kept))
        elif (why := whys.get((trial.group, value, trial.seed))) is not None:
            failures[str(trial)] = f"{axis.name} = {value}: {why}"
    names = [other.name for other in reduced.axes]
    tried = [
        _tried(dict(zip(names, place, strict=True)), of_values, study, axis, picks[place])
        for place, of_values in places.items()
        if any(of_values.values())
    ]
    search = Search(axis=axis, tried=tuple(tried), is_cross_validated=len(study.seeds) > 1)
    left = Results(study=reduced, results=tuple(found), failures=failures)
    return left.of_finished_seeds(), search


def _without(study: Study, axis: Axis, there: Collection[_Group]) -> Study:
    """Return the study without an axis; points that had no trial still have none."""
    axes = tuple(other for other in study.axes if other is not axis)
    bare = replace(study, axes=axes, skip=(), tune="")
    gone = (labels for _, labels in bare.places() if tuple(labels.values()) not in there)
    return replace(bare, skip=tuple(gone))


def _pick(of_values: Mapping[str, _BySeed], study: Study, seed: int) -> str:
    """Return the value that ranks first on all other seeds; with one seed, on that one."""
    others = {one for one in study.seeds if one != seed} or {seed}
    rows, _ = _ranked(of_values, study, others)
    return rows[0].label if rows else next(iter(of_values))


def _ranked(
    of_values: Mapping[str, _BySeed], study: Study, seeds: Collection[int]
) -> tuple[list[Row], Metric]:
    kept = {
        label: [result for seed, result in by_seed.items() if seed in seeds]
        for label, by_seed in of_values.items()
    }
    there = {label: found for label, found in kept.items() if found}
    # Seeds without any result have not been run.
    tried = len({one.trial.seed for found in there.values() for one in found})
    return in_order(there, dict.fromkeys(there, tried), study)


def _tried(
    at: Mapping[str, str],
    of_values: Mapping[str, _BySeed],
    study: Study,
    axis: Axis,
    picks: Mapping[int, str],
) -> Tried:
    rows, metric = _ranked(of_values, study, study.seeds)
    taken = dict(Counter(picks.values()).most_common())
    numbers, edge = axis.numbers or (), ""
    if len(numbers) > 1:
        value = numbers[axis.labels.index(next(iter(taken)))]
        edge = {min(numbers): "smallest", max(numbers): "largest"}.get(value, "")
    return Tried(
        at=at, metric=metric, rows={row.label: row for row in rows}, taken=taken, edge=edge
    )
