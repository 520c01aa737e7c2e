"""The union of all rounds of a schedule: every edge that a node ever uses."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from .cayley import Cayley, circulant
from .mixing import edges
from .schedule import Fixed, RandomCirculant, Schedule

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["adjacency", "union"]


def adjacency(schedule: Schedule, round: int) -> csr_array:
    """Return a round's pushes as ones; row j holds the push targets of j, float64 ``(n, n)``."""
    pushes = schedule.matrix(round).tocoo()
    receivers, senders = pushes.coords
    return edges(schedule.n, senders.astype(np.int64), receivers.astype(np.int64))


def union(schedule: Schedule) -> Schedule:
    """Return a static schedule with the edges of all rounds, or of all that can be drawn.

    Returns:
        A `Cayley` for a vertex-transitive schedule, otherwise a `Fixed`. Weights are meaningless.
    """
    if isinstance(schedule, Cayley):
        steps = {(step.axis, step.shift): step for steps in schedule.rounds for step in steps}
        return replace(schedule, rounds=(tuple(steps.values()),))
    if schedule.period is not None:
        total = reduce(add, map(schedule.matrix, range(schedule.period)))
        return Fixed(rounds=(total,), directed=schedule.directed)
    if isinstance(schedule, RandomCirculant):
        return schedule.union()
    # Every pair, since this schedule does not know better.
    return circulant(schedule.n, [range(1, schedule.n)])
