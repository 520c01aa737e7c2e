"""Other mixing weights on the edges of a schedule."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scipy.sparse import csr_array

from .cayley import Cayley
from .errors import TopologyError
from .mixing import MIXINGS, lazy, metropolis, uniform
from .schedule import Fixed, Schedule
from .union import adjacency

__all__ = ["Reweighed", "reweigh"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reweighed:
    """Rounds drawn at random by another schedule, weighed anew."""

    drawn: Schedule
    weigh: Callable[[int], csr_array]

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.drawn.n

    @property
    def directed(self) -> bool:
        """Whether a node may push to one that does not push back in the same round."""
        return self.drawn.directed

    @property
    def period(self) -> int | None:
        """None: rounds are drawn at random."""
        return self.drawn.period

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Whom a node pushes to in a round."""
        return self.drawn.out(node, round)

    def matrix(self, round: int) -> csr_array:
        """``W`` of a round, float64 ``(n, n)``."""
        return self.weigh(round)


def reweigh(schedule: Schedule, mixing: str) -> Schedule:
    """Keep the edges, change the weights.

    Args:
        schedule: Whose edges.
        mixing: One of ``MIXINGS``.

    Raises:
        TopologyError: There is no such mixing, or it does not go with these edges.
    """
    if mixing not in MIXINGS:
        raise TopologyError(f"unknown mixing {mixing!r}. Valid names: {', '.join(MIXINGS)}")
    if mixing in ("metropolis", "fastest") and schedule.directed:
        raise TopologyError(f"mixing {mixing!r} needs undirected edges; 'uniform' would do")
    if isinstance(schedule, Cayley) and mixing != "fastest":
        return _alike(schedule, mixing)
    weigh = _weigher(schedule, mixing)
    if schedule.period is None:
        return Reweighed(drawn=schedule, weigh=weigh)
    rounds = tuple(weigh(round) for round in range(schedule.period))
    return Fixed(rounds=rounds, directed=schedule.directed)


def _alike(schedule: Cayley, mixing: str) -> Cayley:
    """Where all nodes have one degree, Metropolis weights are even shares."""
    if mixing == "lazy":
        halved = (
            tuple(replace(step, weight=step.weight / 2) for step in steps)
            for steps in schedule.rounds
        )
        return replace(schedule, rounds=tuple(halved))
    shared = (
        tuple(replace(step, weight=1.0 / (len(steps) + 1)) for step in steps)
        for steps in schedule.rounds
    )
    return replace(schedule, rounds=tuple(shared))


def _weigher(schedule: Schedule, mixing: str) -> Callable[[int], csr_array]:
    if mixing == "lazy":
        return lambda round: lazy(schedule.matrix(round))
    if mixing == "fastest":
        from .fastest import fastest

        return lambda round: fastest(adjacency(schedule, round))
    weigh = metropolis if mixing == "metropolis" else uniform
    return lambda round: weigh(adjacency(schedule, round))
