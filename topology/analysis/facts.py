"""Facts about a topology: its shape, how fast it mixes, and what a round costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import TopologyError
from ..schedules.cayley import Cayley
from ..schedules.mixing import adjacency, union
from ..schedules.schedule import Fixed, RandomCirculant, Schedule
from ..topology import Topology

# This module is part of `import rumor.topology`, so what needs scipy is imported on demand.
if TYPE_CHECKING:
    from .spectral import MixingRate

__all__ = ["Facts", "Stochastic", "facts"]

Stochastic = Literal["doubly", "column", "row"]

GAMMA_MAX = 1 - 1e-9
"""Above it, float64 could not distinguish the lengths of walks."""

ROUNDS_SAMPLED = 16
"""Number of rounds that represent a random schedule, where something is counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Facts about a topology; over a period, if it varies with time."""

    spec: str
    n: int
    seed: int
    directed: bool
    """True if a node may push to a node that does not push back in the same round."""
    period: int | None
    """Rounds after which everything repeats; None if rounds are drawn at random."""
    degree_min: int
    """Fewest pushes of a node in a round."""
    degree_mean: float
    degree_max: int
    connected: bool
    """True if every node can reach every other in the union of all rounds."""
    diameter: int | None
    """Longest shortest path in the union of all rounds; None if not connected."""
    articulation_points: tuple[int, ...]
    """Nodes whose loss splits the union of all rounds, ascending."""
    bridges: tuple[tuple[int, int], ...]
    """Edges whose loss splits it, ascending."""
    stochastic: Stochastic
    """``doubly``: the mean is preserved. ``column``: totals are, and push-sum divides by weights.
    ``row``: each node averages what arrives; the mean drifts."""
    spectral_gap: float
    """1 - `second_eigenvalue`."""
    second_eigenvalue: float
    """Second largest modulus of an eigenvalue: of W, or of a period's product to the power of
    1 / period; of the expected W for random rounds."""
    contraction: float
    """Factor by which a round multiplies the sum of squared deviations from the mean: in
    expectation for random rounds, else the second singular value of a period's product to the
    power of 2 / period. For push-sum, deviations count by the stationary weights."""
    contraction_error: float
    """Standard error of `contraction`; 0 unless sampled."""
    rounds_to_exact: int | None
    """Rounds after which all nodes hold the mean, up to rounding; None if they never do."""
    effective_neighbors: float
    """Between 1 (alone) and n (complete): the effective number of neighbors of Vogels et al."""
    gamma: float
    """Decay of the random walk that defines `effective_neighbors`."""
    messages_per_round: float
    """Mean number of pushes of all nodes together."""

    @property
    def doubly_stochastic(self) -> bool:
        return self.stochastic == "doubly"

    def as_json(self) -> dict[str, Any]:
        """Return a dictionary that JSON can represent."""
        return asdict(self) | {"doubly_stochastic": self.doubly_stochastic}


def facts(topology: Topology, *, gamma: float = 0.95) -> Facts:
    """Compute all facts about a topology.

    Args:
        topology: Any number of nodes if the graph looks the same from all of them or is drawn
            anew each round, else at most 2,048.
        gamma: Decay of the random walk behind `effective_neighbors`, in [0, 1): the longer a
            training run remembers, the nearer to 1.

    Raises:
        TopologyError: *gamma* is out of range, there are too many nodes, or some lose all weight.

    >>> from rumor.topology import parse
    >>> facts(parse("one-peer-exponential", 64)).rounds_to_exact
    6
    """
    if not 0 <= gamma <= GAMMA_MAX:
        raise TopologyError(f"gamma is {gamma}: it must be in [0, 1), at most 1 - 1e-9")
    from .paths import paths
    from .spectral import check_nodes

    schedule = topology.schedule
    if isinstance(schedule, Fixed):
        check_nodes(schedule.n)
    shape = paths(union(schedule))
    stochastic = _stochastic(schedule)
    rate = _mixing_rate(schedule, gamma, connected=shape.connected)
    degrees = _degrees(schedule)
    return Facts(
        spec=topology.spec,
        n=topology.n,
        seed=topology.seed,
        directed=topology.directed,
        period=topology.period,
        degree_min=int(degrees.min()),
        degree_mean=float(degrees.mean()),
        degree_max=int(degrees.max()),
        **asdict(shape),
        stochastic=stochastic,
        spectral_gap=1 - rate.second_eigenvalue,
        **asdict(rate),
        gamma=gamma,
        messages_per_round=float(degrees.mean() * topology.n),
    )


def _mixing_rate(schedule: Schedule, gamma: float, *, connected: bool) -> MixingRate:
    from . import spectral

    if schedule.n == 1:
        return spectral.MixingRate(
            second_eigenvalue=0.0, contraction=0.0, rounds_to_exact=0, effective_neighbors=1.0
        )
    if isinstance(schedule, Cayley):
        return spectral.rate_of_cayley(schedule, gamma)
    if isinstance(schedule, Fixed):
        if not connected:
            raise TopologyError("it falls into parts, which never agree")
        return spectral.rate_of_fixed(schedule, gamma)
    if isinstance(schedule, RandomCirculant):
        return spectral.rate_of_circulant(schedule, gamma)
    return spectral.rate_of_shuffled(schedule, gamma)


def _sampled(schedule: Schedule) -> range:
    return range(ROUNDS_SAMPLED if schedule.period is None else schedule.period)


def _stochastic(schedule: Schedule) -> Stochastic:
    if isinstance(schedule, Cayley):
        return "doubly"
    matrices = [schedule.matrix(round) for round in _sampled(schedule)]
    rows, columns = (
        all(np.abs(matrix.sum(axis=axis) - 1).max() < 1e-9 for matrix in matrices)
        for axis in (1, 0)
    )
    if rows and columns:
        return "doubly"
    return "row" if rows else "column"


def _degrees(schedule: Schedule) -> np.ndarray:
    """Pushes of nodes, axes ``(round, node)``; a single column for vertex-transitive graphs."""
    if isinstance(schedule, Cayley):
        return np.array([[len(steps)] for steps in schedule.rounds])
    pushes = (adjacency(schedule, round) for round in _sampled(schedule))
    return np.array([np.diff(matrix.indptr) for matrix in pushes])
