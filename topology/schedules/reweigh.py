"""Other mixing weights on the edges of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...gossip.specs.spec import find
from ..errors import TopologyError
from .cayley import Cayley, Step
from .mixing import MIXINGS, lazy, metropolis, uniform
from .schedule import Fixed, Schedule
from .union import adjacency

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Reweighed", "reweigh"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reweighed:
    """Random rounds of another schedule, with other weights; see `Schedule`."""

    drawn: Schedule
    n: int
    directed: bool
    period: int | None
    out: Callable[[int, int], tuple[int, ...]]
    matrix: Callable[[int], csr_array]


def reweigh(schedule: Schedule, mixing: str) -> Schedule:
    """Change the weights, and keep the edges.

    Args:
        mixing: One of ``MIXINGS``.

    Raises:
        TopologyError: The mixing is unknown, or does not suit these edges.
    """
    find("mixing", mixing, MIXINGS, error=TopologyError)
    if mixing == "metropolis" and schedule.directed:
        raise TopologyError("mixing 'metropolis' needs undirected edges; 'uniform' would do")
    if isinstance(schedule, Cayley):
        return _vertex_transitive(schedule, mixing)

    def weigh(round: int) -> csr_array:
        if mixing == "lazy":
            return lazy(schedule.matrix(round))
        return (metropolis if mixing == "metropolis" else uniform)(adjacency(schedule, round))

    n, directed, period = schedule.n, schedule.directed, schedule.period
    if period is not None:
        return Fixed(rounds=tuple(map(weigh, range(period))), directed=directed)
    return Reweighed(
        drawn=schedule, n=n, directed=directed, period=period, out=schedule.out, matrix=weigh
    )


def _vertex_transitive(schedule: Cayley, mixing: str) -> Cayley:
    """On regular graphs, Metropolis weights are even shares."""

    def weighed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        share = 1.0 / (len(steps) + 1)
        halves = mixing == "lazy"
        return tuple(replace(step, weight=step.weight / 2 if halves else share) for step in steps)

    return replace(schedule, rounds=tuple(map(weighed, schedule.rounds)))
