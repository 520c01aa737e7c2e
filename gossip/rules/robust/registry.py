"""Robust filters by name, as people type them: ``clip:tau=0.5``, ``nna:byzantine=2``."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Protocol

from ...specs.parameter import Parameter, listed
from ...specs.spec import make
from .coefficients import clip, cs_plus, median_clip, nna, scc

__all__ = [
    "NNA",
    "NONE",
    "ROBUST",
    "SCC",
    "CSPlus",
    "Clip",
    "Robust",
    "RobustFilter",
    "parse_robust",
]

NONE = "none"
"""What is typed for plain mixing."""


class RobustFilter(Protocol):
    """What a peer takes of its neighbors' shares."""

    @property
    def is_relative(self) -> bool:
        """Whether it compares neighbors with one another, so that it must know several."""
        return True

    @property
    def by_median(self) -> bool:
        """Whether it looks at the neighbor in the middle, and need not be told how many lie."""
        return False

    def coefficients(self, distances: Sequence[float], weights: Sequence[float]) -> list[float]:
        """What part of each neighbor's difference is taken, in [0, 1].

        Args:
            distances: Of neighbors' models from one's own, Euclidean norms.
            weights: How much each is to count, above 0, in any unit.
        """


@dataclass(frozen=True)
class Clip(RobustFilter):
    """Moves the model no further than a share at a given distance would."""

    tau: Annotated[
        float,
        Parameter(
            "distance (Euclidean norm) up to which a share counts in full; 0 for 1.5 times the "
            "median of the neighbors' distances.",
            low=0,
        ),
    ] = 0.0

    @property
    def is_relative(self) -> bool:
        """Whether the radius is that of the neighbors."""
        return not self.tau

    @property
    def by_median(self) -> bool:
        """Likewise."""
        return not self.tau

    def coefficients(self, distances: Sequence[float], weights: Sequence[float]) -> list[float]:
        """Clip at the radius, or by the median of the neighbors."""
        if self.tau:
            return clip(distances, weights, self.tau)
        return median_clip(distances, weights)


@dataclass(frozen=True)
class SCC(RobustFilter):
    """Self-centered clipping: the radius follows from the nearest neighbors."""

    byzantine: Annotated[
        float,
        Parameter("neighbors that may lie; 0 to clip at the second largest distance.", low=0),
    ] = 0.0

    def coefficients(self, distances: Sequence[float], weights: Sequence[float]) -> list[float]:
        """Clip."""
        return scc(distances, weights, _weight_of(self.byzantine, weights))


_Byzantine = Annotated[float, Parameter("neighbors that may lie.", low=0)]


@dataclass(frozen=True)
class CSPlus(RobustFilter):
    """Clips at the distance of a neighbor that twice as many as may lie are beyond."""

    byzantine: _Byzantine = 1.0

    def coefficients(self, distances: Sequence[float], weights: Sequence[float]) -> list[float]:
        """Clip."""
        return cs_plus(distances, weights, _weight_of(self.byzantine, weights))


@dataclass(frozen=True)
class NNA(RobustFilter):
    """Leaves the farthest neighbors out."""

    byzantine: _Byzantine = 1.0

    def coefficients(self, distances: Sequence[float], weights: Sequence[float]) -> list[float]:
        """Leave them out."""
        return nna(distances, weights, _weight_of(self.byzantine, weights))


ROBUST: Mapping[str, Callable[..., RobustFilter | None]] = MappingProxyType(
    {NONE: lambda: None, "clip": Clip, "scc": SCC, "cs+": CSPlus, "nna": NNA}
)
"""All filters, by the name that people type."""


def parse_robust(spec: str) -> RobustFilter | None:
    """Read what was typed.

    Args:
        spec: A name of `ROBUST`, perhaps with ``:key=value``.

    Returns:
        None for plain mixing.

    Raises:
        ConfigError: There is no such filter, or it does not take this.

    >>> parse_robust("clip:tau=0.5")
    Clip(tau=0.5)
    """
    return make("robust filter", spec, ROBUST)


def _weight_of(byzantine: float, weights: Sequence[float]) -> float:
    """The weight of so many neighbors, of the mean weight each."""
    return byzantine * (math.fsum(weights) / len(weights) if weights else 0.0)


Robust = Annotated[
    str,
    Parameter(
        "what is taken of a share, by how far it is from the model, so that members who lie move "
        f"it by little: {listed(ROBUST)}, as in clip:tau=0.5 or nna:byzantine=2. The weight for "
        "the rest goes back.",
    ),
]
"""A rule's parameter ``robust``."""
