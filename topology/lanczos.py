"""Decay under matrices that are written down: dense solvers if small, Krylov methods if large."""

from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, cg, eigs, eigsh

from .balance import Balanced, balance
from .decay import ROUNDING, Decay, effective_of_spectrum, exact_after, probes
from .draws import generator
from .schedule import Fixed

__all__ = ["decay_of_fixed"]

Vector = NDArray[np.float64]

SYMMETRIC_MAX = 2048
"""Nodes up to which a whole symmetric spectrum takes about a second."""

DENSE_MAX = 512
"""The same for products of matrices that are not symmetric."""

FLAT = 1e-9
"""A contraction that near to 1 says nothing of the rounds that it takes."""


def decay_of_fixed(schedule: Fixed, gamma: float) -> Decay:
    """Exact up to a few hundred nodes; beyond, extreme eigenvalues to about 1e-10, and probes.

    Args:
        schedule: Connected; columns of its matrices sum to 1.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    balanced = balance(schedule.rounds)
    if balanced.is_symmetric:
        return _decay_of_symmetric(balanced, gamma)
    exact = _rounds_to_exact(balanced)
    effective, error = _effective(balanced, gamma)
    second = contraction = 0.0
    rounds = None
    if exact is None or exact > len(balanced.rounds):
        second, contraction, rounds = _second_general(balanced)
    return Decay(
        second_eigenvalue=second if exact is None else 0.0,
        contraction=contraction,
        rounds_to_exact=exact,
        rounds_to_1e_3=rounds,
        effective_neighbors=effective,
        effective_neighbors_error=error,
    )


def _decay_of_symmetric(balanced: Balanced, gamma: float) -> Decay:
    if balanced.n <= SYMMETRIC_MAX:
        spectrum = np.linalg.eigvalsh(balanced.rounds[0].toarray())
        # The largest is known, and rounding it up would make walks of no end.
        spectrum[-1] = 1.0
        effective, error = effective_of_spectrum(spectrum[None] ** 2, gamma), 0.0
        second = min(float(np.abs(spectrum[:-1]).max()), 1.0)
    else:
        effective, error = _effective(balanced, gamma)
        second = min(_second_symmetric(balanced), 1.0)
    exact = _rounds_to_exact(balanced)
    return Decay(
        second_eigenvalue=second if exact is None else 0.0,
        contraction=second**2 if exact is None else 0.0,
        rounds_to_exact=exact,
        effective_neighbors=effective,
        effective_neighbors_error=error,
    )


def _rounds_to_exact(balanced: Balanced) -> int | None:
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


def _second_symmetric(balanced: Balanced) -> float:
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


def _second_general(balanced: Balanced) -> tuple[float, float, int | None]:
    """Second eigenvalue and contraction per round, and rounds to a thousandth where followed."""
    n, period = balanced.n, len(balanced.rounds)
    product = None
    if n <= DENSE_MAX:
        kept = balanced.kept[0]
        product = balanced.run(np.eye(n) - np.outer(kept, kept), range(period))
        largest = float(np.abs(np.linalg.eigvals(product)).max())
        stretch = float(np.linalg.norm(product, 2))
    else:
        largest, stretch = _extremes(balanced)
    second, contraction = min(largest, 1.0) ** (1 / period), min(stretch, 1.0) ** (2 / period)
    rounds = None
    if contraction >= 1 - FLAT and second < 1 - FLAT:
        rounds = period * (
            _periods_to_a_thousandth(product)
            if product is not None
            else ceil(log(1e-3) / log(max(second, 1e-3)) / period)
        )
    return second, contraction, rounds


def _periods_to_a_thousandth(product: Vector) -> int:
    """By squaring: how often a product must be applied until it leaves a thousandth at most."""
    powers = [product]
    while np.linalg.norm(powers[-1], 2) > 1e-3:
        powers.append(powers[-1] @ powers[-1])
    periods, applied = 0, np.eye(len(product))
    for exponent in reversed(range(len(powers))):
        further = applied @ powers[exponent]
        if np.linalg.norm(further, 2) > 1e-3:
            periods, applied = periods + 2**exponent, further
    return periods + 1


def _extremes(balanced: Balanced) -> tuple[float, float]:
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


def _effective(balanced: Balanced, gamma: float) -> tuple[float, float]:
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


def _walks_at_once(balanced: Balanced, starts: Vector, gamma: float) -> Vector:
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


def _walks_by_round(balanced: Balanced, starts: Vector, gamma: float) -> Vector:
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
