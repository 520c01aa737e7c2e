"""Robust mixing by name, as people type it: ``clip:tau=0.5``, ``nna:byzantine=2``."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from ...errors import ConfigError, did_you_mean
from ...specs.parameter import Parameter
from .coefficients import clip, cs_plus, median_clip, nna, scc

__all__ = ["NONE", "ROBUST", "Robust", "RobustMethod", "parse_robust"]

NONE = "none"
"""What is typed for plain mixing."""

Bounded = Callable[[Sequence[float], Sequence[float], float], list[float]]
"""Distances, weights and the method's number to the part that is taken of each neighbor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One method, as it is declared."""

    help: str
    takes: Parameter
    coefficients: Bounded


def _clip(distances: Sequence[float], weights: Sequence[float], tau: float) -> list[float]:
    """Clip at a fixed radius, or where that is 0 by the median of the neighbors."""
    return clip(distances, weights, tau) if tau else median_clip(distances, weights)


def _by_weight(bounded: Bounded) -> Bounded:
    """Let the number be one of neighbors, of the mean weight each."""

    def coefficients(
        distances: Sequence[float], weights: Sequence[float], byzantine: float
    ) -> list[float]:
        each = math.fsum(weights) / len(weights) if weights else 0.0
        return bounded(distances, weights, byzantine * each)

    return coefficients


_TAU = Parameter(
    "distance (Euclidean norm) up to which a share counts in full; 0 for 1.5 times the median of "
    "the neighbors' distances.",
    low=0,
    name="tau",
    default=0.0,
)
_SECOND = Parameter(
    "neighbors that may lie; 0 to clip at the second largest distance.",
    low=0,
    name="byzantine",
    default=0.0,
)
_ONE = Parameter("neighbors that may lie.", low=0, name="byzantine", default=1.0)
ROBUST: Mapping[str, _Kind] = MappingProxyType(
    {
        "clip": _Kind(
            help="moves the model no further than a share at a given distance would",
            takes=_TAU,
            coefficients=_clip,
        ),
        "scc": _Kind(
            help="self-centered clipping: the radius follows from the nearest neighbors",
            takes=_SECOND,
            coefficients=_by_weight(scc),
        ),
        "cs+": _Kind(
            help="clips at the distance of a neighbor that twice as many as may lie are beyond",
            takes=_ONE,
            coefficients=_by_weight(cs_plus),
        ),
        "nna": _Kind(
            help="leaves the farthest neighbors out",
            takes=_ONE,
            coefficients=_by_weight(nna),
        ),
    }
)
"""All methods, by the name that people type."""


@dataclass(frozen=True, slots=True)
class RobustMethod:
    """A method and its number."""

    name: str
    value: float

    @property
    def is_relative(self) -> bool:
        """Whether it compares neighbors with one another, so that it must know several."""
        return not (self.name == "clip" and self.value)

    @property
    def by_median(self) -> bool:
        """Whether it looks at the neighbor in the middle, and need not be told how many lie."""
        return self.name == "clip" and not self.value

    def coefficients(self, distances: Sequence[float], weights: Sequence[float]) -> list[float]:
        """What part of each neighbor's difference is taken, in [0, 1].

        Args:
            distances: Of neighbors' models from one's own, Euclidean norms.
            weights: How much each is to count, above 0, in any unit.
        """
        return ROBUST[self.name].coefficients(distances, weights, self.value)


def parse_robust(spec: str) -> RobustMethod | None:
    """Read what was typed.

    Args:
        spec: ``none``, or a name of `ROBUST`, perhaps with ``:key=value``.

    Returns:
        None for plain mixing.

    Raises:
        ConfigError: There is no such method, or it does not take this.

    >>> parse_robust("clip:tau=0.5")
    RobustMethod(name='clip', value=0.5)
    """
    name, colon, given = spec.partition(":")
    if spec == NONE:
        return None
    if name not in ROBUST:
        hint = did_you_mean(name, [NONE, *ROBUST])
        raise ConfigError(
            f"robust is {spec!r}, which is unknown{hint} Valid names: {', '.join([NONE, *ROBUST])}"
        )
    takes = ROBUST[name].takes
    if not colon:
        assert takes.default is not None
        return RobustMethod(name, float(takes.default))
    key, equals, text = given.partition("=")
    if key != takes.name or not equals:
        raise ConfigError(f"robust is {spec!r}: {name} takes {takes.name}= ({takes.allowed})")
    try:
        return RobustMethod(name, float(takes.read(text)))
    except ConfigError as error:
        raise ConfigError(f"robust is {spec!r}: {error}") from None


Robust = Annotated[
    str,
    Parameter(
        "what is taken of a share, by how far it is from the model, so that members who lie move "
        "it by little: none, clip, scc, cs+ or nna, as in clip:tau=0.5 or nna:byzantine=2. The "
        "weight for the rest goes back.",
    ),
]
"""A rule's parameter ``robust``."""
