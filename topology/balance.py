"""Mixing that keeps a unit vector from both sides.

For weights that are only column-stochastic (push-sum), deviations are measured in the norm of the
stationary weights ``pi``: ``D^-1/2 W D^1/2`` with ``D = diag(pi)`` keeps the vector ``sqrt(pi)``
from both sides, as a doubly stochastic ``W`` keeps the constant one, and all that follows is alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import spsolve

from .decay import ROUNDING
from .errors import TopologyError

__all__ = ["Balanced", "balance"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Balanced:
    """Rounds that keep a unit vector from both sides."""

    rounds: tuple[csr_array, ...]
    kept: tuple[Vector, ...]
    """Before each round; ``rounds[r] @ kept[r] = kept[r + 1]``, and round again."""

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.kept[0])

    def run(self, x: Vector, rounds: range) -> Vector:
        """Some rounds one after another, without what is kept."""
        for round in rounds:
            at = round % len(self.rounds)
            x = self.rounds[at] @ x
            after = self.kept[(at + 1) % len(self.rounds)]
            x = x - np.multiply.outer(after, after @ x)
        return x

    def back(self, x: Vector) -> Vector:
        """The transpose of a whole period."""
        for matrix, before in zip(reversed(self.rounds), reversed(self.kept), strict=True):
            x = matrix.T @ x
            x = x - before * (before @ x)
        return x

    @property
    def is_symmetric(self) -> bool:
        """Whether there is one round, and it is."""
        if len(self.rounds) > 1:
            return False
        difference = self.rounds[0] - self.rounds[0].T
        return bool(abs(difference).max() < ROUNDING)


def balance(rounds: Sequence[csr_array]) -> Balanced:
    """Scale the matrices of a period.

    Args:
        rounds: Columns sum to 1, float64 ``(n, n)`` each.

    Raises:
        TopologyError: Some nodes lose all their weight for good.
    """
    n = rounds[0].shape[0]
    if all(abs(matrix.sum(axis=1) - 1).max() < 1e-9 for matrix in rounds):
        even = np.full(n, n**-0.5)
        return Balanced(tuple(rounds), (even,) * len(rounds))
    weights = [_stationary(rounds)]
    for matrix in rounds[:-1]:
        weights.append(matrix @ weights[-1])
    roots = [np.sqrt(weight) for weight in weights]
    scaled = (
        (diags_array(1 / roots[(at + 1) % len(rounds)]) @ matrix @ diags_array(roots[at])).tocsr()
        for at, matrix in enumerate(rounds)
    )
    return Balanced(tuple(scaled), tuple(roots))


def _stationary(rounds: Sequence[csr_array]) -> Vector:
    """Weights that a whole period brings back, float64 ``(n,)``, their sum 1."""
    product = rounds[0]
    # An even split on undirected edges keeps the degrees, and one oneself. To solve for that on
    # an expander would fill the memory.
    degrees = np.diff(product.tocsr().indptr).astype(np.float64)
    if all(np.allclose(matrix @ degrees, degrees, rtol=1e-12, atol=0) for matrix in rounds):
        even: Vector = degrees / degrees.sum()
        return even
    for matrix in rounds[1:]:
        product = (matrix @ product).tocsr()
    n = product.shape[0]
    # One equation of n is spare, and the sum takes its place.
    equations = (product - eye_array(n)).tolil()
    equations[n - 1, :] = np.ones(n)
    right = np.zeros(n)
    right[n - 1] = 1.0
    weights: Vector = spsolve(equations.tocsc(), right)
    if weights.min() <= 0:
        raise TopologyError("weights gather at some of its nodes, and the others keep none")
    return weights
