"""What a study asks for: settings, axes of a grid, what to leave out, and its cells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from ...gossip.errors import ConfigError
from .condition import Condition

__all__ = ["Axis", "Cell", "Point", "Study"]

# Tables hold them as 64-bit integers.
_SEEDS_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Point:
    """One place on an axis."""

    label: str
    """What to call it, in tables and pictures."""

    settings: Mapping[str, Any]
    """Fields of `rumor.sim.SimulationConfig` that it sets."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that a study varies."""

    name: str
    """A field of `rumor.sim.SimulationConfig`, or a name of the study's own where its points set
    several fields."""

    points: tuple[Point, ...]
    """In the order in which they are shown; no two have the same label."""

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError(f"grid.{self.name} is empty: it must have at least one value")
        labels = [point.label for point in self.points]
        for label in labels:
            if labels.count(label) > 1:
                raise ConfigError(f"grid.{self.name} has {label} twice: each may stand there once")
        settings = [dict(point.settings) for point in self.points]
        for index, point in enumerate(self.points):
            first = settings.index(settings[index])
            if first < index:
                raise ConfigError(
                    f"grid.{self.name} has {labels[first]} and {point.label}, which are the same"
                )

    @property
    def labels(self) -> tuple[str, ...]:
        """Of its points, in order."""
        return tuple(point.label for point in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One simulation of a study."""

    labels: Mapping[str, str]
    """For each axis, in order, the label of the point that it stands at."""

    settings: Mapping[str, Any]
    """Fields of `rumor.sim.SimulationConfig`, the seed among them; those that are not given are
    left to it."""

    @property
    def seed(self) -> int:
        """Of everything random in it."""
        return int(self.settings["seed"])

    @property
    def group(self) -> tuple[str, ...]:
        """Labels of its points: cells that differ in nothing but the seed have the same."""
        return tuple(self.labels.values())

    def __str__(self) -> str:
        return ", ".join([*self.labels.values(), f"seed {self.seed}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A grid of simulations, and the question that it is to answer.

    Raises:
        ConfigError: There are no axes or no seeds, or two axes or points set the same field.
    """

    name: str
    """Short, for folders and commands."""

    title: str
    """A line, for people."""

    question: str
    """What is to be found out, in a sentence or two."""

    settings: Mapping[str, Any]
    """What is the same in all cells."""

    axes: tuple[Axis, ...]
    """What is varied, the seed apart; the first is what is compared, the others are what it is
    compared under."""

    seeds: tuple[int, ...]
    """Each cell is run once with each."""

    skip: tuple[Condition, ...] = ()
    """Cells that make no sense: those that any of these holds for are left out."""

    target: float = 0.9
    """Accuracy that times and bytes are counted to."""

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ConfigError("seeds is empty: give at least one, as in seeds = [0, 1, 2]")
        for seed in self.seeds:
            if not 0 <= seed < _SEEDS_END:
                raise ConfigError(f"seeds has {seed}: each must be from 0 to 2^63 - 1")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds has one twice: {list(self.seeds)}")
        if not 0 < self.target <= 1:
            raise ConfigError(f"target is {self.target}: it must be an accuracy, above 0, up to 1")
        if not self.axes:
            raise ConfigError(
                'the grid is empty: vary something, as in [grid] topology = ["ring", "complete"]'
            )
        _check_apart(self.settings, self.axes)
        self._check_skips()

    def cells(self) -> Iterator[Cell]:
        """All cells in the order of the axes, the last of which changes fastest, seeds within.

        Cells that `skip` holds for are not among them.
        """
        for settings, labels in self._places():
            if any(condition.holds(settings, labels) for condition in self.skip):
                continue
            for seed in self.seeds:
                yield Cell(labels=labels, settings=settings | {"seed": seed})

    def _places(self) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        """Every combination of points: what they set together, and their labels by axis."""
        for points in product(*(axis.points for axis in self.axes)):
            labels = {axis.name: p.label for axis, p in zip(self.axes, points, strict=True)}
            settings = dict(self.settings)
            for point in points:
                settings |= point.settings
            yield settings, labels

    def _check_skips(self) -> None:
        """See that each condition leaves something out: one that does not is misspelt."""
        for condition in self.skip:
            if not any(condition.holds(*place) for place in self._places()):
                raise ConfigError(f"[[skip]] {condition} fits no cell: correct it, or take it out")


def _check_apart(settings: Mapping[str, Any], axes: Sequence[Axis]) -> None:
    """See that no setting is given in two places, one of which would have no effect."""
    given = dict.fromkeys(settings, "settings")
    for axis in axes:
        own = {name for point in axis.points for name in point.settings}
        for name in sorted(own):
            if name == "seed":
                raise ConfigError(f"grid.{axis.name} sets seed: give seeds = [0, 1, 2] instead")
            if name in given:
                raise ConfigError(
                    f"{name} is set by {given[name]} and by grid.{axis.name}: only one can set it"
                )
        given |= dict.fromkeys(own, f"grid.{axis.name}")
