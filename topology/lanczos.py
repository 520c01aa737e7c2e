"""Decay under matrices that are written down: dense solvers for small ones, Krylov for large ones.

For weights that are only column-stochastic (push-sum), deviations are measured in the norm of the
stationary weights ``pi``: ``D^-1/2 W D^1/2`` with ``D = diag(pi)`` keeps the vector ``sqrt(pi)``
from both sides, as a doubly stochastic ``W`` keeps the constant one, and all that follows is alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, cg, eigs, eigsh, spsolve

from .decay import ROUNDING, Decay, effective_of_spectrum, exact_after, probes
from .draws import generator
from .errors import TopologyError
from .schedule import Fixed

__all__ = ["decay_of_fixed"]

Vector = NDArray[np.float64]

SYMMETRIC_MAX = 2048
"""Nodes up to which a whole symmetric spectrum takes about a second."""

DENSE_MAX = 512
"""The same for products of matrices that are not symmetric."""


@dataclass(frozen=True, slots=True)
class _Balanced:
    """Rounds that keep a unit vector from both sides."""

    rounds: tuple[csr_array, ...]
    kept: tuple[Vector, ...]
    """Before each round; ``rounds[r] @ kept[r] = kept[r + 1]``, and round again."""

    @property
    def n(self) -> int:
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


def decay_of_fixed(schedule: Fixed, gamma: float) -> Decay:
    """Exact up to a few hundred nodes; beyond, extreme eigenvalues to about 1e-10, and probes.

    Args:
        schedule: Connected; columns of its matrices sum to 1.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    balanced = _balance(schedule.rounds)
    exact = _rounds_to_exact(balanced)
    spectrum = None
    if balanced.is_symmetric and balanced.n <= SYMMETRIC_MAX:
        spectrum = np.linalg.eigvalsh(balanced.rounds[0].toarray())
    if exact is not None:
        second = contraction = 0.0
    elif balanced.is_symmetric:
        second = _second_of(spectrum) if spectrum is not None else _second_symmetric(balanced)
        contraction = second**2
    else:
        second, contraction = _second_general(balanced)
    if spectrum is not None:
        effective, error = effective_of_spectrum(spectrum[None] ** 2, gamma), 0.0
    else:
        effective, error = _effective(balanced, gamma)
    return Decay(
        second_eigenvalue=second,
        contraction=contraction,
        rounds_to_exact=exact,
        effective_neighbors=effective,
        effective_neighbors_error=error,
    )


def _balance(rounds: Sequence[csr_array]) -> _Balanced:
    n = rounds[0].shape[0]
    if all(abs(matrix.sum(axis=1) - 1).max() < 1e-9 for matrix in rounds):
        even = np.full(n, n**-0.5)
        return _Balanced(tuple(rounds), (even,) * len(rounds))
    weights = [_stationary(rounds)]
    for matrix in rounds[:-1]:
        weights.append(matrix @ weights[-1])
    roots = [np.sqrt(weight) for weight in weights]
    scaled = (
        (diags_array(1 / roots[(at + 1) % len(rounds)]) @ matrix @ diags_array(roots[at])).tocsr()
        for at, matrix in enumerate(rounds)
    )
    return _Balanced(tuple(scaled), tuple(roots))


def _stationary(rounds: Sequence[csr_array]) -> Vector:
    """Weights that a whole period brings back, float64 ``(n,)``, their sum 1."""
    product = rounds[0]
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


def _rounds_to_exact(balanced: _Balanced) -> int | None:
    """By a random vector: it disappears in no round in which another one would not."""
    x = generator(0, "exact", balanced.n).normal(size=balanced.n)
    first = balanced.kept[0]
    x -= first * (first @ x)
    start = np.linalg.norm(x)
    left = [1.0 if balanced.n > 1 else 0.0]
    # Twice the diameter of a graph with as few links as can be.
    for round in range(len(balanced.rounds) + 4 * balanced.n.bit_length()):
        x = balanced.run(x, range(round, round + 1))
        left.append(float(np.linalg.norm(x) / start) if balanced.n > 1 else 0.0)
    return exact_after(np.array(left))


def _second_of(spectrum: Vector) -> float:
    return float(np.sort(np.abs(spectrum))[-2]) if len(spectrum) > 1 else 0.0


def _second_symmetric(balanced: _Balanced) -> float:
    matrix = balanced.rounds[0]
    if _is_thin(matrix):
        return _by_shift(matrix)
    operator = LinearOperator(
        matrix.shape, matvec=lambda x: balanced.run(x.ravel(), range(1)), dtype=np.float64
    )
    try:
        values = eigsh(
            operator,
            k=1,
            which="LM",
            ncv=20,
            maxiter=1000,
            # Of the residual: the eigenvalue of a symmetric matrix is right to its square.
            tol=1e-8,
            v0=_start(balanced.n),
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return _by_shift(matrix)
    return float(abs(values[0]))


def _is_thin(matrix: csr_array) -> bool:
    """Whether ways are long for the number of nodes, or it is nearly a tree.

    Krylov methods crawl on such graphs, but their factors stay sparse; on expanders it is the
    other way round.
    """
    n = matrix.shape[0]
    links = (matrix.nnz - n) / 2
    farthest = dijkstra(matrix, indices=0, unweighted=True).max()
    return bool(links < 1.1 * n or farthest > 6 * np.log2(n))


def _by_shift(matrix: csr_array) -> float:
    """The second largest eigenvalue by shift and invert, next to 1 from above."""
    n = matrix.shape[0]
    values = eigsh(
        matrix.tocsc(), k=2, sigma=1 + 1e-8, which="LM", v0=_start(n), return_eigenvectors=False
    )
    second = float(np.sort(values)[0])
    # Gershgorin: no eigenvalue is below that.
    if 1 - 2 * matrix.diagonal().min() <= second:
        return second
    lowest = eigsh(matrix, k=1, which="SA", v0=_start(n), return_eigenvectors=False)
    return max(second, float(-lowest[0]))


def _second_general(balanced: _Balanced) -> tuple[float, float]:
    """Second eigenvalue and contraction of a period's product, per round."""
    n, period = balanced.n, len(balanced.rounds)
    if n <= DENSE_MAX:
        product = balanced.run(
            np.eye(n) - np.outer(balanced.kept[0], balanced.kept[0]), range(period)
        )
        largest = float(np.abs(np.linalg.eigvals(product)).max())
        stretch = float(np.linalg.norm(product, 2))
    else:
        largest, stretch = _extremes(balanced)
    return largest ** (1 / period), stretch ** (2 / period)


def _extremes(balanced: _Balanced) -> tuple[float, float]:
    n, period = balanced.n, range(len(balanced.rounds))
    kept = balanced.kept[0]

    def forth(x: Vector) -> Vector:
        x = x.ravel()
        return balanced.run(x - kept * (kept @ x), period)

    product = LinearOperator((n, n), matvec=forth, dtype=np.float64)
    normal = LinearOperator((n, n), matvec=lambda x: balanced.back(forth(x)), dtype=np.float64)
    largest = eigs(product, k=1, v0=_start(n), return_eigenvectors=False)
    stretch = eigsh(normal, k=1, v0=_start(n), return_eigenvectors=False)
    return float(abs(largest[0])), float(np.sqrt(max(stretch[0], 0.0)))


def _effective(balanced: _Balanced, gamma: float) -> tuple[float, float]:
    """The effective number of neighbors, and its standard error.

    Below stands ``mean_k sum_t gamma^t |W_t ... W_0 e_k|^2``, over all directions of a small
    graph, over random ones of a large graph (Hutchinson 1989).
    """
    n = balanced.n
    kept = balanced.kept[0]
    starts = np.eye(n) if n <= DENSE_MAX else probes(n)
    starts = starts - np.multiply.outer(kept, kept @ starts)
    walk = _walks_at_once if balanced.is_symmetric else _walks_by_round
    walks = walk(balanced, starts, gamma)
    # What is kept is kept for ever, and is one of n directions.
    forever = 1 / (n * (1 - gamma))
    if n <= DENSE_MAX:
        return float(1 / (1 - gamma) / (walks.sum() / n + forever)), 0.0
    below = walks.mean() / n + forever
    scatter = walks.std(ddof=1) / n / np.sqrt(len(walks))
    effective = 1 / (1 - gamma) / below
    return float(effective), float(effective * scatter / below)


def _walks_at_once(balanced: _Balanced, starts: Vector, gamma: float) -> Vector:
    """``z^T W^2 (I - gamma W^2)^-1 z`` of each column z, for a symmetric W."""
    shape = (balanced.n, balanced.n)

    def twice(x: Vector) -> Vector:
        return balanced.run(balanced.run(x, range(1)), range(1))

    inverse = LinearOperator(shape, matvec=lambda x: x - gamma * twice(x), dtype=np.float64)
    walks = []
    for start in starts.T:
        once = balanced.run(start, range(1))
        solution, failed = cg(inverse, once, rtol=1e-10)
        assert not failed, "the matrix is positive definite, and not badly so"
        walks.append(once @ solution)
    return np.array(walks)


def _walks_by_round(balanced: _Balanced, starts: Vector, gamma: float) -> Vector:
    x = starts
    walks = np.zeros(starts.shape[1])
    round, faded = 0, 1.0
    while faded > 1e-10 and np.abs(x).max() > ROUNDING:
        x = balanced.run(x, range(round, round + 1))
        walks += faded * np.square(x).sum(axis=0)
        faded *= gamma
        round += 1
    return walks


def _start(n: int) -> Vector:
    # ARPACK draws its own otherwise, another one each time.
    return generator(0, "start", n).normal(size=n)
