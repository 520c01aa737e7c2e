"""The weights that mix fastest on given edges, by semidefinite programming."""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components

from .errors import TopologyError

__all__ = ["NODES_MAX", "fastest"]

NODES_MAX = 100
"""Nodes of a part that is not complete: beyond, solving takes minutes and many gigabytes."""

# An interior point never quite reaches 0. Leaving such an edge out saves two messages a round and
# moves no eigenvalue by more than twice as much.
WEIGHT_MIN = 1e-7

Nodes = NDArray[np.int64]
Weights = NDArray[np.float64]


def fastest(adjacency: csr_array) -> csr_array:
    """Minimize the second largest eigenvalue modulus over all symmetric weights on the edges.

    Parts that are not linked are weighed apart, each as fast as it can be. A complete part takes
    even shares and needs no solver; this covers pairs and lonely nodes. Any other part is solved
    by CLARABEL, which comes with cvxpy. On one core of a shared machine a part of 16 nodes took
    0.04 s; of 64 nodes 4 s (torus) and 7 s (random 4-regular) and .6 GB; of 100 nodes 63 s and
    2.7 GB (random 4-regular): time grows about with n^5. SCS needs less memory, but at 100 nodes
    its gap was wrong by 1.4 % (path), and at 200 it had not converged after 120 s (random
    4-regular).

    Args:
        adjacency: Symmetric, ones at edges, ``(n, n)``.

    Returns:
        ``W``, float64 ``(n, n)``: symmetric, no weight below 0, rows sum to 1. An edge that only
        slows mixing down has no weight and is left out.

    Raises:
        TopologyError: A part that is not complete has more than ``NODES_MAX`` nodes, or there is
            such a part and cvxpy is not installed, or the solver gave up.

    Source: Boyd, Diaconis and Xiao, SIAM Review 2004, fastest mixing Markov chain on a graph.
    """
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
    """Weights of the edges of a connected graph, about feasible."""
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
    edges = np.arange(len(left))
    ends = csr_array((np.ones(len(left)), (left, edges)), shape=(n, len(left)))
    others = csr_array((np.ones(len(right)), (right, edges)), shape=(n, len(right)))
    weights, modulus = cp.Variable(len(left), nonneg=True), cp.Variable()
    # W - J, where W is the identity less the weighted Laplacian; J has the eigenvalue 1 of W.
    rest = np.eye(n) - 1.0 / n - (ends - others) @ cp.diag(weights) @ (ends - others).T
    bounds = [modulus * np.eye(n) - rest >> 0, modulus * np.eye(n) + rest >> 0]
    problem = cp.Problem(cp.Minimize(modulus), [*bounds, (ends + others) @ weights <= 1])
    with warnings.catch_warnings():
        # It warns of a solution that is not as exact as it tries for, which is 1e-8.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL)
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise TopologyError(f"mixing 'fastest': the solver stopped with {problem.status!r}")
    found: Weights = weights.value
    return found


def _feasible(n: int, left: Nodes, right: Nodes, weights: Weights) -> csr_array:
    """The matrix of these weights, where they are too little or too much made to fit."""
    weights = np.where(weights < WEIGHT_MIN, 0.0, weights)
    given = np.bincount(left, weights, n) + np.bincount(right, weights, n)
    # Both ends of an edge must be able to give it; one factor for both keeps W symmetric.
    weights = weights / np.maximum(1.0, np.maximum(given[left], given[right]))
    used = weights > 0
    one_way = csr_array((weights[used], (left[used], right[used])), shape=(n, n))
    both = one_way + one_way.T
    kept = np.maximum(0.0, 1.0 - both.sum(axis=1))
    return (both + diags_array(kept)).tocsr()
