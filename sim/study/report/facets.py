"""What a study's first axis is compared under: every combination of the points of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ..analysis.ranking import Comparison, compare, facets
from ..results import Result, Results

__all__ = ["Facet", "facets_of", "key_of", "missing_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facet:
    """One combination of points of the further axes."""

    key: str
    """Their positions on their axes, as in ``0-2``; ``all`` where there are no further axes."""

    at: Mapping[str, str]
    """The label of the point on each of these axes."""

    results: Results
    """Of the trials that stand there."""

    comparison: Comparison
    """Of the points of the first axis."""

    @property
    def title(self) -> str:
        """The labels in a line; empty where there are no further axes."""
        return ", ".join(self.at.values())

    @property
    def groups(self) -> dict[str, tuple[Result, ...]]:
        """Results by the label of their point on the first axis, in order."""
        return {group[0]: found for group, found in self.results.groups().items()}


def facets_of(results: Results) -> tuple[Facet, ...]:
    """All of them that have results, in the order of the axes."""
    return tuple(
        Facet(
            key=key_of(results, at),
            at=at,
            results=results.where(**at),
            comparison=compare(results, at=at),
        )
        for at in facets(results)
    )


def missing_of(results: Results, facets: Sequence[Facet]) -> list[str]:
    """Keys of the combinations that a reader may choose, and that have no results."""
    places = (range(len(axis.points)) for axis in results.study.axes[1:])
    keys = ("-".join(map(str, at)) or "all" for at in product(*places))
    there = {facet.key for facet in facets}
    return [key for key in keys if key not in there]


def key_of(results: Results, at: Mapping[str, str]) -> str:
    """Positions of labels on the axes that they are of; ``all`` for none."""
    axes = {axis.name: axis.labels for axis in results.study.axes}
    return "-".join(str(axes[name].index(label)) for name, label in at.items()) or "all"
