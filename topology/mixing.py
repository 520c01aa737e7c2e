"""How much to take from each neighbor: mixing matrices on given edges."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array

__all__ = ["MIXINGS", "edges", "lazy", "metropolis", "uniform"]


def edges(n: int, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> csr_array:
    """An adjacency matrix, row j: to whom j pushes.

    Args:
        n: Number of nodes.
        sources: Who pushes, int64 ``(n_edges,)``.
        targets: To whom, alike. An edge that is given twice counts once; loops are left out.

    Returns:
        Ones where there is an edge, float64 ``(n, n)``, indices sorted.
    """
    keep = sources != targets
    sources, targets = sources[keep], targets[keep]
    matrix = csr_array((np.ones(len(sources)), (sources, targets)), shape=(n, n))
    matrix.data[:] = 1.0
    return matrix


def metropolis(adjacency: csr_array) -> csr_array:
    """``W_ij = 1 / (1 + max(d_i, d_j))``: symmetric, and so doubly stochastic, on any graph.

    Args:
        adjacency: Symmetric, ones at edges, ``(n, n)``.

    Returns:
        ``W``, float64 ``(n, n)``.

    Source: Xiao, Boyd and Lall, IPSN 2005 (Metropolis weights).
    """
    links = adjacency.tocoo()
    degrees = np.diff(adjacency.tocsr().indptr)
    rows, columns = links.coords
    weights = 1.0 / (1.0 + np.maximum(degrees[rows], degrees[columns]))
    matrix = csr_array((weights, (rows, columns)), shape=adjacency.shape)
    return matrix + diags_array(1.0 - matrix.sum(axis=1)).tocsr()


def uniform(adjacency: csr_array) -> csr_array:
    """A node splits what it has evenly between itself and those it pushes to.

    Columns sum to 1, so that totals are kept: push-sum divides by the weights that arrive. Rows
    sum to 1 as well where as many push to a node as it pushes to, and all of them push to as many.

    Args:
        adjacency: Ones at edges, row j: to whom j pushes, ``(n, n)``.

    Returns:
        ``W``, float64 ``(n, n)``.

    Source: Kempe, Dobra and Gehrke, FOCS 2003, protocol Push-Sum with even shares.
    """
    shares = 1.0 / (1.0 + np.diff(adjacency.tocsr().indptr))
    pushes = diags_array(shares) @ (adjacency + eye_array(adjacency.shape[0]))
    return pushes.T.tocsr()


def lazy(matrix: csr_array) -> csr_array:
    """``(I + W) / 2``: half stays at home, so that no eigenvalue is negative.

    Args:
        matrix: ``W``, float64 ``(n, n)``.
    """
    return (0.5 * (matrix + eye_array(matrix.shape[0]))).tocsr()


MIXINGS: Mapping[str, str] = MappingProxyType(
    {
        "metropolis": "1 / (1 + the larger degree of the two): symmetric on any undirected graph",
        "uniform": "an even split between oneself and those one pushes to (push-sum)",
        "lazy": "half of the family's own weights; the rest stays at home",
        "fastest": "the best there are for these edges, by semidefinite programming (needs cvxpy)",
    }
)
"""One line about each way to weigh edges, by the name that people type."""

Weigh = Callable[[csr_array], csr_array]
