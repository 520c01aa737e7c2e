"""The mixing rate: how fast rounds of mixing contract disagreement.

For weights that are only column-stochastic (push-sum), deviations are measured in the norm of the
stationary weights ``pi``: ``D^-1/2 W D^1/2`` with ``D = diag(pi)`` preserves the vector
``sqrt(pi)`` from both sides, as a doubly stochastic ``W`` preserves the constant one, and
everything else carries over (`balance`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import spsolve

from ..errors import TopologyError
from ..hashing import generator

__all__ = [
    "ROUNDING",
    "Balanced",
    "MixingRate",
    "balance",
    "effective_of_spectrum",
    "exact_after",
    "probes",
    "rounds_to_a_thousandth",
]

Vector = NDArray[np.float64]

ROUNDING = 1e-12
"""What is left, by rounding, of a disagreement that exact arithmetic would have removed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MixingRate:
    """The effect of one round on a disagreement, in the long run or in expectation."""

    second_eigenvalue: float
    """Second largest modulus of an eigenvalue, per round; of the expected W for random rounds."""

    contraction: float
    """Factor on the sum of squared deviations from the mean, per round."""

    contraction_error: float = 0.0
    """Its standard error, where rounds were sampled."""

    rounds_to_exact: int | None = None
    """Rounds from round 0 after which all nodes agree, to rounding; None where they never do."""

    rounds_to_1e_3: int | None = None
    """Rounds until any disagreement is down to a thousandth, where they were followed because the
    contraction does not tell: many rounds may contract though a single one does not."""

    effective_neighbors: float
    effective_neighbors_error: float = 0.0
    """Its standard error, where probes were used."""


def rounds_to_a_thousandth(rate: MixingRate, period: int | None) -> int | None:
    """Rounds until the worst disagreement, as the root of the sum of squares, is down to 1e-3.

    Args:
        rate: Its contraction holds in the long run, or in expectation.
        period: The contraction is only guaranteed after whole periods; None for random rounds.

    Returns:
        None where that never happens.
    """
    contraction, needed = rate.contraction, rate.rounds_to_1e_3
    # Rounding must not turn an eigenvalue of 1 into some 1e15 rounds.
    if needed is None and 0 < contraction < 1 - ROUNDING:
        whole = period or 1
        needed = whole * ceil(round(2 * log(1e-3) / log(contraction) / whole, 9))
    return min(
        (found for found in (needed, rate.rounds_to_exact) if found is not None), default=None
    )


def exact_after(left: NDArray[np.float64]) -> int | None:
    """Find the round at which a disagreement vanishes at once, rather than gradually.

    Args:
        left: What is left after 0, 1, 2, ... rounds, as a fraction of the start.
    """
    for rounds, (before, after) in enumerate(pairwise(left), 1):
        # A geometric decline through this window would need a factor of 1e-3 or less per round.
        if after <= ROUNDING < 1e3 * ROUNDING <= before:
            return rounds
    return 0 if left[0] <= ROUNDING else None


def probes(n: int) -> NDArray[np.float64]:
    """Random signs that sample all directions, float64 with axes ``(node, probe)``.

    The error of an estimate goes as 1 / sqrt(n * probes).

    Source: Hutchinson, Communications in Statistics 1989.
    """
    count = max(8, min(32, 2**19 // n))
    return generator(0, "probes", n).integers(0, 2, (n, count)).astype(np.float64) * 2 - 1


def effective_of_spectrum(factors: NDArray[np.float64], gamma: float) -> float:
    """The effective number of neighbors, from the factor of each round on each direction.

    ``n_W(gamma) = [1 / (1 - gamma)] / [mean_k l_k^2 / (1 - gamma l_k^2)]`` for a static W;
    over a period, the denominator is ``mean_k sum_t gamma^t prod_{r <= t} l_k(r)^2``.

    Args:
        factors: Squared moduli, float64 with axes ``(round of the period, direction)``.
        gamma: Decay of the random walk, in [0, 1).

    Source: Vogels, Hendrikx and Jaggi, NeurIPS 2022, on decaying random walks of W.
    """
    period = len(factors)
    after = np.cumprod(factors, axis=0)
    faded = np.power(gamma, np.arange(period))[:, None] * after
    walks = faded.sum(axis=0) / (1 - gamma**period * after[-1])
    return float(1 / (1 - gamma) / walks.mean())


@dataclass(frozen=True, slots=True)
class Balanced:
    """Rounds that preserve a unit vector from both sides."""

    rounds: tuple[csr_array, ...]
    kept: tuple[Vector, ...]
    """The unit vector before each round: ``rounds[r] @ kept[r] = kept[r + 1]``, cyclically."""

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.kept[0])

    def run(self, x: Vector, rounds: range) -> Vector:
        """Apply some rounds in turn, projecting the preserved vector out."""
        for round in rounds:
            at = round % len(self.rounds)
            x = self.rounds[at] @ x
            after = self.kept[(at + 1) % len(self.rounds)]
            x = x - np.multiply.outer(after, after @ x)
        return x

    def back(self, x: Vector) -> Vector:
        """Apply the transpose of a whole period."""
        for matrix, before in zip(reversed(self.rounds), reversed(self.kept), strict=True):
            x = matrix.T @ x
            x = x - before * (before @ x)
        return x

    @property
    def is_symmetric(self) -> bool:
        """Whether there is one round, with a symmetric matrix."""
        if len(self.rounds) > 1:
            return False
        difference = self.rounds[0] - self.rounds[0].T
        return bool(abs(difference).max() < ROUNDING)


def balance(rounds: Sequence[csr_array]) -> Balanced:
    """Scale the matrices of a period so that they preserve a unit vector from both sides.

    Args:
        rounds: Columns sum to 1, float64 ``(n, n)`` each.

    Raises:
        TopologyError: Some nodes lose all their weight.
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
    """Weights that a whole period leaves unchanged, float64 ``(n,)``, summing to 1."""
    product = rounds[0]
    # An even split on undirected edges has weights proportional to degree + 1. Solving for them
    # on an expander would fill the memory.
    degrees = np.diff(product.tocsr().indptr).astype(np.float64)
    if all(np.allclose(matrix @ degrees, degrees, rtol=1e-12, atol=0) for matrix in rounds):
        even: Vector = degrees / degrees.sum()
        return even
    for matrix in rounds[1:]:
        product = (matrix @ product).tocsr()
    n = product.shape[0]
    # One of the n equations is redundant; the sum takes its place.
    equations = (product - eye_array(n)).tolil()
    equations[n - 1, :] = np.ones(n)
    right = np.zeros(n)
    right[n - 1] = 1.0
    weights: Vector = spsolve(equations.tocsc(), right)
    if weights.min() <= 0:
        raise TopologyError("weights gather at some of its nodes, and the others keep none")
    return weights
