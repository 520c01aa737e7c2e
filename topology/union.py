"""Everybody whom a node ever pushes to: the edges of all rounds taken together."""

import numpy as np
from scipy.sparse import csr_array

from .cayley import Cayley, circulant
from .equitopo import BasisMatching, BasisPush
from .lattices import complete
from .mixing import edges
from .schedule import Fixed, Schedule

__all__ = ["adjacency", "union"]


def adjacency(schedule: Schedule, round: int) -> csr_array:
    """Who pushes to whom in a round: ones, row j: to whom j pushes, float64 ``(n, n)``."""
    links = schedule.matrix(round).tocoo()
    receivers, senders = links.coords
    return edges(schedule.n, senders.astype(np.int64), receivers.astype(np.int64))


def union(schedule: Schedule) -> Schedule:
    """A schedule of one round that has the edges of all rounds.

    Where rounds are drawn at random, those of all rounds that can be drawn: any pair of nodes
    meets sooner or later, unless the draw is among a few shifts.

    Returns:
        A `Cayley` where all nodes are alike, otherwise a `Fixed`. Its weights mean nothing.
    """
    if isinstance(schedule, Cayley):
        return _together(schedule)
    if isinstance(schedule, BasisPush):
        return _together(schedule.basis)
    if isinstance(schedule, BasisMatching):
        ways = dict.fromkeys(w for s in schedule.shifts for w in (s, schedule.n - s))
        return circulant(schedule.n, [tuple(ways)])
    if schedule.period is None:
        return complete(schedule.n)
    return _summed(schedule, schedule.period)


def _together(schedule: Cayley) -> Cayley:
    steps = {(step.axis, step.shift): step for steps in schedule.rounds for step in steps}
    return Cayley(shape=schedule.shape, rounds=(tuple(steps.values()),), directed=schedule.directed)


def _summed(schedule: Schedule, period: int) -> Schedule:
    total = schedule.matrix(0)
    for round in range(1, period):
        total = total + schedule.matrix(round)
    return Fixed(rounds=(total,), directed=schedule.directed)
