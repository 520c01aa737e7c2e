"""The grid of a study: settings, axes, trials to skip, and its trials."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final

from ...gossip.errors import ConfigError

__all__ = ["NUMBER", "Axis", "Condition", "Point", "Study", "Trial", "holds", "with_tuples"]

# Not float(), which also accepts 1_0 and digits of other scripts.
NUMBER: Final = re.compile(
    r"([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?)\s*(%|x|ms|s)?", re.IGNORECASE
)
"""A decimal as people write it, perhaps with a unit."""


def with_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn lists of JSON into tuples, as `rumor.sim.SimulationConfig` takes them."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}


@dataclass(frozen=True, slots=True)
class Point:
    """One place on an axis."""

    label: str
    """Name in tables and pictures."""
    settings: Mapping[str, Any]
    """Fields of `rumor.sim.SimulationConfig` that it sets."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting that a study varies."""

    name: str
    """A field of `rumor.sim.SimulationConfig`, or any name if its points set several fields."""
    points: tuple[Point, ...]
    """Points in display order; no two have the same label."""

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError(f"grid.{self.name} is empty: it must have at least one value")
        for one, other in combinations(self.points, 2):
            if one.label == other.label or dict(one.settings) == dict(other.settings):
                raise ConfigError(
                    f"grid.{self.name} has {one.label} and {other.label}, which are the same"
                )

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of its points, in order."""
        return tuple(point.label for point in self.points)

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """Its labels as numbers; None if one is no number, two are equal, or units differ."""
        found = [NUMBER.fullmatch(label.strip()) for label in self.labels]
        if not all(found) or len({match[2] for match in found if match}) > 1:
            return None
        numbers = tuple(float(match[1]) for match in found if match)
        are_apart = len(set(numbers)) == len(numbers) and all(map(math.isfinite, numbers))
        return numbers if are_apart else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One simulation of a study."""

    labels: Mapping[str, str]
    """The label of the trial's point, for each axis, in order."""
    settings: Mapping[str, Any]
    """Fields of `rumor.sim.SimulationConfig`, including the seed; others keep its defaults."""

    @property
    def seed(self) -> int:
        """Seed of the trial."""
        return int(self.settings["seed"])

    @property
    def group(self) -> tuple[str, ...]:
        """Labels of its points; the same for trials that differ in the seed only."""
        return tuple(self.labels.values())

    def __str__(self) -> str:
        return ", ".join([*self.labels.values(), f"seed {self.seed}"])


Condition = Mapping[str, Any]
"""A condition on trials: for each name of an axis or argument a value, or a list of values."""


def holds(condition: Condition, settings: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """True if everything in a condition matches a trial; settings left at their default match
    nothing.

    >>> many = {"rule": ["dpsgd", "allreduce"], "workers": 512}
    >>> holds(many, {"rule": "dpsgd", "workers": 512}, {})
    True
    """
    for name, wanted in condition.items():
        known = [values[name] for values in (labels, settings) if name in values]
        fitting = wanted if isinstance(wanted, list) else [wanted]
        if not any(v == one or str(v) == str(one) for v in known for one in fitting):
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A grid of simulations, and the question that it answers.

    Raises:
        ConfigError: There are no axes or no seeds, or two axes or points set the same field.
    """

    name: str
    """Short, for folders and commands."""
    title: str
    """One line, for people."""
    question: str
    """The question, in a sentence or two."""
    settings: Mapping[str, Any]
    """Settings that all trials share."""
    axes: tuple[Axis, ...]
    """The varied settings; points of the first axis are compared, at each place of the others."""
    seeds: tuple[int, ...]
    skip: tuple[Condition, ...] = ()
    """Trials to leave out: those that match any condition."""
    target: float = 0.9
    """Accuracy that times and bytes are counted to; a loss for the metrics of losses."""
    metrics: tuple[str, ...] = ()
    """Names of `METRICS`: the first ranks the points. Default: depends on the task."""
    tune: str = ""
    """The axis, such as ``lr``, of which every point of the others is shown at its best value."""
    reference: str = ""
    """A point of the first axis, named before any result is known: if it is first, only the
    comparisons with it count, and not all pairs."""
    source: str = ""
    """Source of optimizer, momentum and learning rate, for people."""

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ConfigError("seeds is empty: give at least one, as in seeds = [0, 1, 2]")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds has one twice: {list(self.seeds)}")
        if not 0 < self.target <= (math.inf if self.goal == "loss" else 1):
            raise ConfigError(f"target is {self.target}: it must be an accuracy, above 0, up to 1")
        if not self.axes:
            raise ConfigError(
                'the grid is empty: vary something, as in [grid] topology = ["ring", "complete"]'
            )
        given = dict.fromkeys(self.settings, "settings")
        for axis in self.axes:
            own = {name for point in axis.points for name in point.settings}
            for name in sorted(own & given.keys()):
                raise ConfigError(
                    f"{name} is set by {given[name]} and by grid.{axis.name}: only one can set it"
                )
            given |= dict.fromkeys(own, f"grid.{axis.name}")
        # A condition that matches nothing is a typo.
        for condition in self.skip:
            if not any(holds(condition, *place) for place in self.places()):
                text = json.dumps(condition)
                raise ConfigError(f"[[skip]] {text} fits no trial: correct it, or take it out")
        names = [axis.name for axis in self.axes]
        if self.tune and self.tune not in names:
            raise ConfigError(f"tune is {self.tune!r}: it must be an axis, {', '.join(names)}")
        if self.tune and len(names) == 1:
            raise ConfigError(f"tune is {self.tune!r}, the only axis: there is nothing to compare")
        compared = next((axis for axis in self.axes if axis.name != self.tune), self.axes[0])
        if self.reference and self.reference not in compared.labels:
            raise ConfigError(
                f"reference is {self.reference!r}: it must be a point of grid.{compared.name}, "
                f"such as {compared.labels[0]!r}"
            )

    @property
    def goal(self) -> str:
        """The curve of the target: ``accuracy``, or ``loss`` if a metric asks for it."""
        return "loss" if any("_to_loss" in name for name in self.metrics) else "accuracy"

    def trials(self) -> Iterator[Trial]:
        """Yield all trials in the order of the axes, the last changing fastest, seeds within."""
        for settings, labels in self.places():
            if any(holds(condition, settings, labels) for condition in self.skip):
                continue
            for seed in self.seeds:
                yield Trial(labels=labels, settings=settings | {"seed": seed})

    def places(self) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        """Yield every combination of points: their settings together, and their labels by axis."""
        for points in product(*(axis.points for axis in self.axes)):
            labels = {axis.name: p.label for axis, p in zip(self.axes, points, strict=True)}
            settings = dict(self.settings)
            for point in points:
                settings |= point.settings
            yield settings, labels
