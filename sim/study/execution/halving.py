"""The best value of a setting for every point of the first axis, found by successive halving."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ....gossip.errors import ConfigError, RumorError
from ..metrics import METRICS
from ..results import Results
from ..study import Axis, Condition, Halving, Point, Study
from .runner import load_results

__all__ = ["SEARCH", "Rung", "halve", "load_rungs", "rung_study", "with_taken"]

SEARCH: Final = "search"
"""Their folder inside a study's; each round has one of its own in it, numbered from 1."""

# Settings that end a run, of which a round has a part.
_ENDS: Final = ("steps", "total_steps")

Kept = Mapping[str, tuple[str, ...]]
"""For each point of the first axis, the labels of the values that are still in the race."""

Run = Callable[[Study, Path], Results]
"""Computes a study into a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One round of a search: what was tried, and what went on."""

    part: float
    """Of a trial's steps."""

    found: Mapping[str, Mapping[str, float | None]]
    """For each point of the first axis, the figure of each value; None where it has none, as where
    it diverged."""

    kept: Kept
    """What was better, the best first."""


def halve(study: Study, folder: Path, run: Run) -> tuple[Study, tuple[Rung, ...]]:
    """Search, and take what was found.

    Args:
        study: With a search.
        folder: Of the study; rounds that are finished there are not computed again.
        run: Computes each round, all of it or nothing that counts.

    Returns:
        The study without a search: each point of the first axis sets its best value; and the
        rounds.

    Raises:
        RumorError: A round was not finished, or at some point no value gives a figure.
    """
    search = study.search
    assert search is not None
    rungs: list[Rung] = []
    kept: Kept = dict.fromkeys(study.axes[0].labels, search.axis.labels)
    for number, part in enumerate(search.parts):
        asked = rung_study(study, search, kept, number)
        results = run(asked, folder / SEARCH / str(number + 1))
        if missing := sum(1 for _ in asked.trials()) - len(results.results) - len(results.failures):
            raise RumorError(f"{missing} trials of the search for {search.axis.name} are missing")
        rungs.append(_rung(results, search, part, is_last=number + 1 == len(search.parts)))
        kept = rungs[-1].kept
    return with_taken(study, {label: values[0] for label, values in kept.items()}), tuple(rungs)


def load_rungs(folder: Path, search: Halving) -> tuple[Rung, ...]:
    """Read the rounds of a search that is finished.

    Raises:
        ConfigError: A round is missing.
    """
    last = len(search.parts)
    return tuple(
        _rung(load_results(folder / SEARCH / str(number)), search, part, is_last=number == last)
        for number, part in enumerate(search.parts, 1)
    )


def rung_study(study: Study, search: Halving, kept: Kept, number: int) -> Study:
    """What is computed in a round of a study's search, the rounds counted from 0."""
    first, *others = study.axes
    there = tuple(Axis(axis.name, (_point(axis, search.at[axis.name]),)) for axis in others)
    gone = tuple(
        Condition({first.name: label, search.axis.name: value})
        for label in first.labels
        for value in search.axis.labels
        if value not in kept[label]
    )
    left_out = tuple(
        condition
        for condition in study.skip
        if any(
            condition.holds(*place)
            for place in replace(study, axes=(first, *there), skip=(), search=None).places()
        )
    )
    return replace(
        study,
        name=f"{study.name}-search-{number + 1}",
        title=f"{study.title}: which {search.axis.name}, round {number + 1}",
        settings=_shortened(study.settings, search.parts[number]),
        axes=(first, search.axis, *there),
        seeds=(search.seed,),
        skip=(*left_out, *gone),
        metrics=(search.metric, *(name for name in study.metrics if name != search.metric)),
        search=None,
        quick={},
    )


def with_taken(study: Study, taken: Mapping[str, str]) -> Study:
    """A study whose points of the first axis set the values whose labels were found for them."""
    search, first = study.search, study.axes[0]
    assert search is not None
    points = tuple(
        Point(point.label, {**point.settings, **_point(search.axis, taken[point.label]).settings})
        for point in first.points
    )
    return replace(study, axes=(Axis(first.name, points), *study.axes[1:]), search=None)


def _point(axis: Axis, label: str) -> Point:
    return next(point for point in axis.points if point.label == label)


def _shortened(settings: Mapping[str, Any], part: float) -> dict[str, Any]:
    """The same settings, for so much of the steps."""
    ends = [name for name in _ENDS if settings.get(name)]
    if not ends:
        raise ConfigError(f"a [search] needs {' or '.join(_ENDS)} among the settings")
    return {**settings, **{name: max(1, math.ceil(settings[name] * part)) for name in ends}}


def _rung(results: Results, search: Halving, part: float, *, is_last: bool) -> Rung:
    study, name = results.study, search.axis.name
    found: dict[str, dict[str, float | None]] = {}
    for trial in study.trials():
        found.setdefault(trial.labels[study.axes[0].name], {})[trial.labels[name]] = None
    metric = METRICS[search.metric]
    for result in results.results:
        labels = result.trial.labels
        figure = metric.of(result, study.target)
        found[labels[study.axes[0].name]][labels[name]] = figure
    sign = 1 if metric.lower_is_better else -1
    kept = {label: _best(values, sign, is_last=is_last) for label, values in found.items()}
    if empty := [label for label, values in kept.items() if not values]:
        raise RumorError(f"no value of {name} gives a {metric.words} for {', '.join(empty)}")
    return Rung(part=part, found=found, kept=kept)


def _best(values: Mapping[str, float | None], sign: int, *, is_last: bool) -> tuple[str, ...]:
    """The better half, of an odd number the larger one; of the last round the best."""
    figures = {label: value for label, value in values.items() if value is not None}
    ranked: Sequence[str] = sorted(figures, key=lambda label: sign * figures[label])
    return tuple(ranked[: 1 if is_last else math.ceil(len(values) / 2)])
