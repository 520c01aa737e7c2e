"""Mixing matrices on given edges, and the edges of given schedules."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .cayley import Cayley, circulant
from .schedule import Fixed, RandomCirculant, Schedule

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["adjacency", "edges", "metropolis", "undirected", "uniform", "union"]

Nodes = NDArray[np.int64]

# scipy is imported only to make a matrix: names, help and the neighbors of most families do not
# need it, and it would triple the import time of this layer.


def edges(n: int, sources: Nodes, targets: Nodes) -> csr_array:
    """Return an adjacency matrix whose row j holds the push targets of j: 1.0 at every edge.

    Args:
        sources: Pushing nodes, int64 ``(n_edges,)``.
        targets: Their targets. Duplicate edges count once; self-loops are dropped.
    """
    from scipy.sparse import csr_array

    keep = sources != targets
    sources, targets = sources[keep], targets[keep]
    matrix = csr_array((np.ones(len(sources)), (sources, targets)), shape=(n, n))
    matrix.data[:] = 1.0
    return matrix


def undirected(n: int, left: Nodes, right: Nodes) -> Fixed:
    """A static graph with Metropolis weights, from its edges, each given once."""
    both = np.concatenate([left, right]), np.concatenate([right, left])
    return Fixed(rounds=(metropolis(edges(n, *both)),))


def metropolis(adjacency: csr_array) -> csr_array:
    """``W_ij = 1 / (1 + max(d_i, d_j))``: symmetric, hence doubly stochastic, on any graph.

    Source: Xiao, Boyd and Lall, IPSN 2005 (Metropolis weights).
    """
    from scipy.sparse import csr_array, diags_array

    pushes = adjacency.tocoo()
    degrees = np.diff(adjacency.tocsr().indptr)
    rows, columns = pushes.coords
    weights = 1.0 / (1.0 + np.maximum(degrees[rows], degrees[columns]))
    matrix = csr_array((weights, (rows, columns)), shape=adjacency.shape)
    return matrix + diags_array(1.0 - matrix.sum(axis=1)).tocsr()


def uniform(adjacency: csr_array) -> csr_array:
    """Split what each node has evenly between itself and its out-neighbors.

    Columns sum to 1, so totals are preserved: push-sum divides by the weights that arrive.

    Source: Kempe, Dobra and Gehrke, FOCS 2003, protocol Push-Sum with even shares.
    """
    from scipy.sparse import diags_array, eye_array

    shares = 1.0 / (1.0 + np.diff(adjacency.tocsr().indptr))
    pushes = diags_array(shares) @ (adjacency + eye_array(adjacency.shape[0]))
    return pushes.T.tocsr()


def adjacency(schedule: Schedule, round: int) -> csr_array:
    """Return a round's pushes as ones; row j holds the push targets of j, float64 ``(n, n)``."""
    pushes = schedule.matrix(round).tocoo()
    receivers, senders = pushes.coords
    return edges(schedule.n, senders.astype(np.int64), receivers.astype(np.int64))


def union(schedule: Schedule) -> Schedule:
    """Return a static schedule with the edges of all rounds, or of all that can be drawn.

    It is a `Cayley` for a vertex-transitive schedule, otherwise a `Fixed`. Weights are meaningless.
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
