"""Robust mixing by name, as people type it: ``nna:byzantine=2``, ``mozi:rho=0.4:alpha=0.5``."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from ...errors import ConfigError, did_you_mean
from ..parameter import Parameter
from .coefficients import clip, cs_plus, median_clip, mozi, nearest, nna, scc

__all__ = ["NONE", "ROBUST", "Robust", "RobustMethod", "parse_robust"]

NONE = "none"
"""What is typed for plain mixing."""

Bounded = Callable[[Sequence[float], Sequence[float], float], list[float]]
"""Distances, weights and the method's number to the part that is taken of each neighbor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One method, as it is declared."""

    help: str
    takes: tuple[Parameter, ...]
    """Numbers, the first of which is the method's own and the second what it keeps."""
    coefficients: Bounded | None
    """None where losses are compared, too."""


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
_RHO = Parameter(
    "part of the neighbors that counts as near, of which there is always one.",
    low=0,
    high=1,
    name="rho",
    default=0.5,
)
_ALPHA = Parameter(
    "part of one's own model that stays in any case.", low=0, high=1, name="alpha", default=0.5
)

ROBUST: Mapping[str, _Kind] = MappingProxyType(
    {
        "clip": _Kind(
            help="moves the model no further than a share at a given distance would",
            takes=(_TAU,),
            coefficients=_clip,
        ),
        "scc": _Kind(
            help="self-centered clipping: the radius follows from the nearest neighbors",
            takes=(_SECOND,),
            coefficients=_by_weight(scc),
        ),
        "cs+": _Kind(
            help="clips at the distance of a neighbor that twice as many as may lie are beyond",
            takes=(_ONE,),
            coefficients=_by_weight(cs_plus),
        ),
        "nna": _Kind(
            help="leaves the farthest neighbors out",
            takes=(_ONE,),
            coefficients=_by_weight(nna),
        ),
        "mozi": _Kind(
            help="takes those of the nearest neighbors whose loss is no worse than one's own, on a "
            "batch of one's own",
            takes=(_RHO, _ALPHA),
            coefficients=None,
        ),
    }
)
"""All methods, by the name that people type."""


@dataclass(frozen=True, slots=True)
class RobustMethod:
    """A method and its number."""

    name: str
    value: float
    kept: float = 0.0
    """Part of one's own model that stays in any case."""

    @property
    def is_relative(self) -> bool:
        """Whether it compares neighbors with one another, so that it must know several."""
        return not (self.name == "clip" and self.value)

    @property
    def by_median(self) -> bool:
        """Whether it looks at the neighbor in the middle, and need not be told how many lie."""
        return self.name == "clip" and not self.value

    @property
    def compares_losses(self) -> bool:
        """Whether distances alone do not say it."""
        return ROBUST[self.name].coefficients is None

    def candidates(self, distances: Sequence[float]) -> list[int]:
        """Which neighbors are near enough for their losses to be looked at."""
        return nearest(distances, self.value) if self.compares_losses else []

    def coefficients(
        self,
        distances: Sequence[float],
        weights: Sequence[float],
        losses: Sequence[float] = (),
        own: float = math.inf,
    ) -> list[float]:
        """What part of each neighbor's difference is taken: in [0, 1], but for `mozi`.

        Args:
            distances: Of neighbors' models from one's own, Euclidean norms.
            weights: How much each is to count, above 0, in any unit.
            losses: With each one's model, on one batch, where they are compared; nan for those that
                are no `candidates`.
            own: The same with one's own model.
        """
        bounded = ROBUST[self.name].coefficients
        if bounded is None:
            return mozi(distances, weights, losses, own, self.value, self.kept)
        return bounded(distances, weights, self.value)


def parse_robust(spec: str) -> RobustMethod | None:
    """Read what was typed.

    Args:
        spec: ``none``, or a name of `ROBUST`, perhaps with ``:key=value``, once or twice.

    Returns:
        None for plain mixing.

    Raises:
        ConfigError: There is no such method, or it does not take this.

    >>> parse_robust("mozi:rho=0.4")
    RobustMethod(name='mozi', value=0.4, kept=0.5)
    """
    name, colon, given = spec.partition(":")
    if spec == NONE:
        return None
    if name not in ROBUST:
        hint = did_you_mean(name, [NONE, *ROBUST])
        raise ConfigError(
            f"robust is {spec!r}, which is unknown{hint} Valid names: {', '.join([NONE, *ROBUST])}"
        )
    takes = {each.name: each for each in ROBUST[name].takes}
    values = {each.name: each.default for each in ROBUST[name].takes}
    for pair in given.split(":") if colon else ():
        key, equals, text = pair.partition("=")
        if key not in takes or not equals:
            known = " and ".join(f"{each.name}= ({each.allowed})" for each in takes.values())
            raise ConfigError(f"robust is {spec!r}: {name} takes {known}")
        try:
            values[key] = takes[key].read(text)
        except ConfigError as error:
            raise ConfigError(f"robust is {spec!r}: {error}") from None
    return RobustMethod(name, *[float(value) for value in values.values() if value is not None])


Robust = Annotated[
    str,
    Parameter(
        "what is taken of a share, by how far it is from the model, so that members who lie move "
        "it by little: none, clip, scc, cs+, nna or mozi, as in clip:tau=0.5, nna:byzantine=2 or "
        "mozi:rho=0.4:alpha=0.5. The weight for the rest goes back.",
    ),
]
"""A rule's parameter ``robust``."""
