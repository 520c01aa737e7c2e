"""The best value of one axis for every point of the others."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..results import Result, Results
from ..study import Axis, Study, Trial
from .ranking import in_order

__all__ = ["Search", "searched"]

_Group = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The values chosen on the tuned axis."""

    axis: Axis
    """The tuned axis."""
    taken: Mapping[_Group, str]
    """The values of each point of the other axes in words, with the number of seeds if several:
    ``0.2`` or ``0.2 (2), 0.4 (1), the largest tried``."""
    words: str
    """How values were chosen."""


def searched(results: Results) -> tuple[Results, Search | None]:
    """Show every seed at the value of the tuned axis that ranks first over the other seeds.

    Returns:
        The results without that axis, and the search; None if the study tunes nothing.
    """
    study = results.study
    if not study.tune:
        return results, None
    index = [axis.name for axis in study.axes].index(study.tune)
    axis = study.axes[index]
    known = {(result.trial.group, result.trial.seed): result for result in results.results}
    # Trials by point of the other axes, and value.
    points: dict[_Group, dict[str, list[Trial]]] = {}
    for trial in study.trials():
        others = trial.group[:index] + trial.group[index + 1 :]
        points.setdefault(others, {}).setdefault(trial.group[index], []).append(trial)
    picks: dict[_Group, dict[int, str]] = {}
    for point, of_values in points.items():
        there = {
            value: [known[at] for one in trials if (at := (one.group, one.seed)) in known]
            for value, trials in of_values.items()
        }
        picks[point] = {seed: _pick(there, study, seed) for seed in study.seeds}
    reduced = _without(study, axis, points)
    found: list[Result] = []
    failures: dict[str, str] = {}
    for trial in reduced.trials():
        value = picks[trial.group][trial.seed]
        (tried,) = (one for one in points[trial.group][value] if one.seed == trial.seed)
        if (result := known.get((tried.group, tried.seed))) is not None:
            found.append(replace(result, trial=replace(result.trial, labels=trial.labels)))
        elif (why := results.failures.get(str(tried))) is not None:
            failures[str(trial)] = f"{axis.name} = {value}: {why}"
    # Each seed by the others, so that its own luck does not count; a single seed has none.
    how = "on all other seeds" if len(study.seeds) > 1 else "with the only seed"
    values = ", ".join(axis.labels)
    search = Search(
        axis=axis,
        taken={point: _taken(axis, picks[point].values()) for point in points},
        words=f"Of {axis.name}, each point has the value of {values} that is best {how}.",
    )
    return Results(study=reduced, results=tuple(found), failures=failures), search


def _without(study: Study, axis: Axis, points: Collection[_Group]) -> Study:
    """Return the study without an axis; points that had no trial still have none."""
    axes = tuple(other for other in study.axes if other is not axis)
    bare = replace(study, axes=axes, skip=(), tune="")
    gone = (labels for _, labels in bare.places() if tuple(labels.values()) not in points)
    return replace(bare, skip=tuple(gone))


def _pick(of_values: Mapping[str, Collection[Result]], study: Study, seed: int) -> str:
    """Return the value that ranks first on all other seeds; with one seed, on that one."""
    run = {one.trial.seed for found in of_values.values() for one in found}
    others = run - {seed} or run
    kept = {
        value: [one for one in found if one.trial.seed in others]
        for value, found in of_values.items()
    }
    rows, _ = in_order({value: some for value, some in kept.items() if some}, len(others), study)
    return rows[0].label if rows else next(iter(of_values))


def _taken(axis: Axis, picks: Collection[str]) -> str:
    taken = Counter(picks).most_common()
    first = taken[0][0]
    text = ", ".join(f"{value} ({times})" for value, times in taken) if len(taken) > 1 else first
    # Beyond an end of the axis a better value may lie.
    numbers = axis.numbers or ()
    if len(numbers) > 1:
        number = numbers[axis.labels.index(first)]
        edge = {min(numbers): "smallest", max(numbers): "largest"}.get(number)
        text += f", the {edge} tried" if edge else ""
    return text
