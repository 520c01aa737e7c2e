"""Other mixing weights on the edges of a schedule, among them the fastest there are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...gossip.specs.spec import find
from ..errors import TopologyError
from .cayley import Cayley, Step
from .mixing import MIXINGS, lazy, metropolis, symmetric, uniform
from .schedule import Fixed, Schedule
from .union import adjacency

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["NODES_MAX", "Reweighed", "fastest", "reweigh"]

NODES_MAX = 100
"""Nodes of a component that is not complete: beyond, solving takes minutes and gigabytes."""

# An interior point never quite reaches 0. Dropping such an edge saves two messages a round and
# moves no eigenvalue by more than twice its weight.
WEIGHT_MIN = 1e-7

Nodes = NDArray[np.int64]
Weights = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reweighed:
    """Random rounds of another schedule, with other weights."""

    drawn: Schedule
    matrix: Callable[[int], csr_array]
    """``W`` of a round, float64 ``(n, n)``."""

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
        """None, as rounds are random."""
        return self.drawn.period

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """A node's out-neighbors in a round."""
        return self.drawn.out(node, round)


def reweigh(schedule: Schedule, mixing: str) -> Schedule:
    """Keep the edges, change the weights.

    Args:
        schedule: Where the edges come from.
        mixing: One of ``MIXINGS``.

    Raises:
        TopologyError: There is no such mixing, or it does not suit these edges.
    """
    find("mixing", mixing, MIXINGS, error=TopologyError)
    if mixing in ("metropolis", "fastest") and schedule.directed:
        raise TopologyError(f"mixing {mixing!r} needs undirected edges; 'uniform' would do")
    if isinstance(schedule, Cayley) and mixing != "fastest":
        return _vertex_transitive(schedule, mixing)
    weigh = _weigher(schedule, mixing)
    if schedule.period is None:
        return Reweighed(drawn=schedule, matrix=weigh)
    rounds = tuple(weigh(round) for round in range(schedule.period))
    return Fixed(rounds=rounds, directed=schedule.directed)


def _vertex_transitive(schedule: Cayley, mixing: str) -> Cayley:
    """On regular graphs, Metropolis weights are even shares."""

    def weighed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        share = 1.0 / (len(steps) + 1)
        halves = mixing == "lazy"
        return tuple(replace(step, weight=step.weight / 2 if halves else share) for step in steps)

    return replace(schedule, rounds=tuple(map(weighed, schedule.rounds)))


def _weigher(schedule: Schedule, mixing: str) -> Callable[[int], csr_array]:
    if mixing == "lazy":
        return lambda round: lazy(schedule.matrix(round))
    if mixing == "fastest":
        return lambda round: fastest(adjacency(schedule, round))
    weigh = metropolis if mixing == "metropolis" else uniform
    return lambda round: weigh(adjacency(schedule, round))


def fastest(adjacency: csr_array) -> csr_array:
    """Minimize the second largest eigenvalue modulus over all symmetric weights on the edges.

    Each connected component is optimized on its own. A complete one takes even shares and needs
    no solver; this covers pairs and isolated nodes. Any other component is solved by CLARABEL,
    which comes with cvxpy. On one core of a shared machine a component of 16 nodes took
    0.04 s; of 64 nodes 4 s (torus) and 7 s (random 4-regular) and .6 GB; of 100 nodes 63 s and
    2.7 GB (random 4-regular): time grows roughly as n^5. SCS needs less memory, but at 100 nodes
    its gap was wrong by 1.4 % (path), and at 200 it had not converged after 120 s (random
    4-regular).

    Args:
        adjacency: Symmetric, ones at edges, ``(n, n)``.

    Returns:
        ``W``, float64 ``(n, n)``: symmetric, nonnegative, rows sum to 1. An edge that only slows
        mixing down has no weight and is left out.

    Raises:
        TopologyError: A component that is not complete has more than ``NODES_MAX`` nodes, or
            cvxpy, which it needs, is not installed, or the solver gave up.

    Source: Boyd, Diaconis and Xiao, SIAM Review 2004, fastest mixing Markov chain on a graph.
    """
    from scipy.sparse.csgraph import connected_components

    n = int(adjacency.shape[0])
    rows, columns = adjacency.nonzero()
    left, right = rows[rows < columns].astype(np.int64), columns[rows < columns].astype(np.int64)
    _, part_of = connected_components(adjacency, directed=False)
    sizes, links = np.bincount(part_of), np.bincount(part_of[left], minlength=part_of.max() + 1)
    weights = 1.0 / sizes[part_of[left]]
    for part in np.flatnonzero(2 * links < sizes * (sizes - 1)):
        nodes, inside = np.flatnonzero(part_of == part), part_of[left] == part
        ends = np.searchsorted(nodes, left[inside]), np.searchsorted(nodes, right[inside])
        weights[inside] = _solved(len(nodes), *ends)
    return _feasible(n, left, right, weights)


def _solved(n: int, left: Nodes, right: Nodes) -> Weights:
    """Weights of the edges of a connected graph, nearly feasible."""
    if n > NODES_MAX:
        raise TopologyError(
            f"mixing 'fastest' is for at most {NODES_MAX} linked nodes, these are {n}: "
            "'metropolis' takes any number"
        )
    try:
        import cvxpy as cp
    except ImportError:
        raise TopologyError(
            "mixing 'fastest' needs cvxpy, which is not installed: pip install 'rumor[fastest]'"
        ) from None
    from scipy.sparse import csr_array

    edges = np.arange(len(left))
    ends = csr_array((np.ones(len(left)), (left, edges)), shape=(n, len(left)))
    others = csr_array((np.ones(len(right)), (right, edges)), shape=(n, len(right)))
    weights, modulus = cp.Variable(len(left), nonneg=True), cp.Variable()
    # W - J, where W is the identity less the weighted Laplacian; J has the eigenvalue 1 of W.
    rest = np.eye(n) - 1.0 / n - (ends - others) @ cp.diag(weights) @ (ends - others).T
    bounds = [modulus * np.eye(n) - rest >> 0, modulus * np.eye(n) + rest >> 0]
    problem = cp.Problem(cp.Minimize(modulus), [*bounds, (ends + others) @ weights <= 1])
    with warnings.catch_warnings():
        # It warns of a solution less exact than the 1e-8 that it aims for.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL)
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise TopologyError(f"mixing 'fastest': the solver stopped with {problem.status!r}")
    found: Weights = weights.value
    return found


def _feasible(n: int, left: Nodes, right: Nodes, weights: Weights) -> csr_array:
    """The matrix of these weights, with those that are slightly infeasible corrected."""
    weights = np.where(weights < WEIGHT_MIN, 0.0, weights)
    given = np.bincount(left, weights, n) + np.bincount(right, weights, n)
    # Both ends of an edge must be able to give it; one factor for both keeps W symmetric.
    weights = weights / np.maximum(1.0, np.maximum(given[left], given[right]))
    used = weights > 0
    return symmetric(n, left[used], right[used], weights[used])
