"""Robust filters by name, as users type them: ``clip:tau=0.5``, ``nna:byzantine=2``.

From each neighbor's distance d_j to its own model, and its weight w_j, peer i gets a part c_j in
[0, 1] of each: ``x_i <- x_i + sum_j w_j c_j (x_j - x_i)``. With all c_j = 1 that is plain gossip.
The part not taken of a neighbor is replaced by the peer's own model, so every result stays in the
convex hull of its inputs.

Distances are Euclidean norms, 0 or more, perhaps infinite; weights are above 0, in any unit, and
do not include the peer's own. ``byzantine`` is the weight b of neighbors that may be Byzantine.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from ...specs.parameter import Parameter, listed
from ...specs.spec import make

__all__ = [
    *("NONE", "ROBUST", "Robust", "RobustFilter"),
    *("clip", "cs_plus", "median_clip", "nna", "parse_robust", "scc"),
]

# In many dimensions distances are nearly equal, so clipping there costs honest peers almost
# nothing: 0.4 % of the distance to the optimum at 1.5, 1.8 at 1.25, 4 at 1, none at 2. A Byzantine
# peer moves a peer by 1.5 m at most, an honest neighbor by m / sqrt 2 toward the mean: so fewer
# than about a third may be Byzantine. At 2, two of 16 that counteract the others' pull (dissensus)
# drive them apart.
_FULL = 1.5

# Honest neighbors are rarely farther out than this.
_FAR = 2.5


def clip(distances: Sequence[float], weights: Sequence[float], tau: float) -> list[float]:
    """Move toward each neighbor as far as toward one at distance tau: ``min(1, tau / d_j)``.

    Source: He, Karimireddy and Jaggi 2022, *Byzantine-robust decentralized learning via
    ClippedGossip*, with a fixed radius.
    """
    return [_clipped(distance, tau) for distance in distances]


def median_clip(distances: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Clip at 1.5 times the median distance m; beyond 2.5 times, ``c = 3.75 m^2 / d^2``.

    Source: ours. Between 1.5 m and 2.5 m it is ClippedGossip.
    """
    middle = _median(distances, weights)
    found = []
    for distance in distances:
        part = _clipped(distance, _FULL * middle)
        # However far away, it always moves the model a little: so two halves of a swarm that a
        # partition has driven apart agree again.
        if distance > _FAR * middle and distance < math.inf:
            part *= _FAR * middle / distance
        found.append(part)
    return found


def scc(distances: Sequence[float], weights: Sequence[float], byzantine: float) -> list[float]:
    """Clip at ``tau^2 = (1/b) sum w_j d_j^2`` over the nearest, of total weight W - b.

    With b = 0, tau is the second largest distance, as in the authors' code.

    Source: He, Karimireddy and Jaggi 2022, self-centered clipping, with the radius of the theorem.
    """
    if not distances:
        return []
    if byzantine <= 0:
        ascending = sorted(distances)
        return clip(distances, weights, ascending[-2] if len(ascending) > 1 else ascending[-1])
    room = math.fsum(weights) - byzantine
    squares = [weights[i] * distances[i] ** 2 for i in _nearest(distances, weights, room)]
    return clip(distances, weights, math.sqrt(math.fsum(squares) / byzantine))


def cs_plus(distances: Sequence[float], weights: Sequence[float], byzantine: float) -> list[float]:
    """Clip at ``tau = d_k``, where k is the last of the nearest, of total weight W - 2 b.

    Source: Gaucher, Dieuleveut and Hendrikx 2024, *Unified breakdown analysis for Byzantine robust
    gossip*, CS+.
    """
    near = _nearest(distances, weights, math.fsum(weights) - 2 * byzantine)
    return clip(distances, weights, distances[near[-1]] if near else 0.0)


def nna(distances: Sequence[float], weights: Sequence[float], byzantine: float) -> list[float]:
    """Leave out the farthest, of total weight b; the neighbor on the border counts in part.

    Source: Farhadkhani et al. 2023, *Robust collaborative learning with linear gradient overhead*,
    nearest neighbor averaging; over weights as in Gaucher, Dieuleveut and Hendrikx 2024.
    """
    found, room = [0.0] * len(distances), math.fsum(weights) - byzantine
    for index, before in _ascending(distances, weights):
        part = (room - before) / weights[index]
        is_whole = _is_within(before + weights[index], room)
        found[index] = 1.0 if is_whole else min(1.0, max(0.0, part))
        if distances[index] == math.inf:
            found[index] = 0.0
    return found


def _clipped(distance: float, tau: float) -> float:
    """Return ``min(1, tau / d)``; 0 at a distance too large to be measured."""
    if distance == math.inf:
        return 0.0
    return 1.0 if distance <= tau else tau / distance


def _median(distances: Sequence[float], weights: Sequence[float]) -> float:
    """Return the lower weighted median: half of the weight is at most that far away."""
    half = math.fsum(weights) / 2
    for index, before in _ascending(distances, weights):
        if not _is_within(before + weights[index], half) or math.isclose(
            before + weights[index], half
        ):
            return distances[index]
    return 0.0


def _ascending(distances: Sequence[float], weights: Sequence[float]) -> Iterator[tuple[int, float]]:
    """Yield the neighbors by distance, each with the weight of those before it."""
    before = 0.0
    for index in sorted(range(len(distances)), key=lambda at: (distances[at], at)):
        yield index, before
        before += weights[index]


def _nearest(distances: Sequence[float], weights: Sequence[float], room: float) -> list[int]:
    ascending = _ascending(distances, weights)
    return [index for index, before in ascending if _is_within(before + weights[index], room)]


def _is_within(weight: float, room: float) -> bool:
    """True if that much weight fits, up to the rounding of sums."""
    return weight <= room * (1 + 1e-12)


@dataclass(frozen=True, kw_only=True)
class RobustFilter:
    """Decides how much a peer takes of its neighbors' shares."""

    coefficients: Callable[[Sequence[float], Sequence[float]], list[float]]
    """Maps distances and weights to the part taken of each neighbor's difference."""
    is_relative: bool = True
    """True if it compares neighbors with one another, so that it needs several."""
    by_median: bool = False
    """True if it uses the median distance, and need not know how many peers are Byzantine."""


def _clip(
    tau: Annotated[
        float,
        Parameter(
            "distance (Euclidean norm) up to which a share counts in full; 0 for 1.5 times the "
            "median of the neighbors' distances.",
            low=0,
        ),
    ] = 0.0,
) -> RobustFilter:
    """Moves the model no further than a share at a given distance would."""
    if not tau:
        return RobustFilter(coefficients=median_clip, by_median=True)
    return RobustFilter(coefficients=lambda d, w: clip(d, w, tau), is_relative=False)


def _scc(
    byzantine: Annotated[
        float,
        Parameter("neighbors that may lie; 0 to clip at the second largest distance.", low=0),
    ] = 0.0,
) -> RobustFilter:
    """Self-centered clipping: the radius follows from the nearest neighbors."""
    return RobustFilter(coefficients=lambda d, w: scc(d, w, _weight_of(byzantine, w)))


_Byzantine = Annotated[float, Parameter("neighbors that may lie.", low=0)]


def _cs_plus(byzantine: _Byzantine = 1.0) -> RobustFilter:
    """Clips at the distance of a neighbor that twice as many as may lie are beyond."""
    return RobustFilter(coefficients=lambda d, w: cs_plus(d, w, _weight_of(byzantine, w)))


def _nna(byzantine: _Byzantine = 1.0) -> RobustFilter:
    """Leaves the farthest neighbors out."""
    return RobustFilter(coefficients=lambda d, w: nna(d, w, _weight_of(byzantine, w)))


def _weight_of(byzantine: float, weights: Sequence[float]) -> float:
    """Return the weight of *byzantine* neighbors of mean weight."""
    return byzantine * (math.fsum(weights) / len(weights) if weights else 0.0)


NONE = "none"
"""The name for plain mixing."""

ROBUST: Mapping[str, Callable[..., RobustFilter | None]] = MappingProxyType(
    {NONE: lambda: None, "clip": _clip, "scc": _scc, "cs+": _cs_plus, "nna": _nna}
)
"""All filters, by the name that users type."""


def parse_robust(spec: str) -> RobustFilter | None:
    """Parse a name of `ROBUST`, optionally with ``:key=value``; return None for plain mixing.

    Raises:
        ConfigError: The filter does not exist, or does not take these parameters.
    """
    return make("robust filter", spec, ROBUST)


Robust = Annotated[
    str,
    Parameter(
        "limit Byzantine members by their shares' distance from the model: "
        f"{listed(ROBUST)}, as in clip:tau=0.5 or nna:byzantine=2. The weight of what is not "
        "mixed goes back.",
    ),
]
"""A rule's parameter ``robust``."""
