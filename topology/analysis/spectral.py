"""Mixing rates from spectra: closed form, dense or Krylov methods, or sampled.

Vertex-transitive schedules have their spectrum in closed form, random rounds that treat all nodes
alike have one in expectation; explicit matrices go to dense solvers if small, else to Krylov ones.
"""

from collections.abc import Iterable
from math import ceil, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, cg, eigs, eigsh

from ..hashing import generator
from ..schedules.cayley import Cayley
from ..schedules.schedule import Fixed, RandomCirculant, Schedule
from .mixing_rate import (
    ROUNDING,
    Balanced,
    MixingRate,
    balance,
    effective_of_spectrum,
    exact_after,
    probes,
)

__all__ = ["rate_of_cayley", "rate_of_circulant", "rate_of_fixed", "rate_of_shuffled"]

Vector = NDArray[np.float64]

SYMMETRIC_MAX = 2048
"""Nodes up to which a whole symmetric spectrum takes about a second."""

DENSE_MAX = 512
"""The same for products of matrices that are not symmetric."""

FLAT = 1e-9
"""A contraction this close to 1 says nothing about the rounds needed."""

ROUNDS_SAMPLED = 64

EXPECTED_MAX = 128
"""Nodes up to which an expected product of random rounds is computed as a matrix."""

NODES_SAMPLED = 1024
"""Nodes, over all walks, that are followed through random rounds."""


def rate_of_cayley(schedule: Cayley, gamma: float) -> MixingRate:
    """Exact, by the Fourier transform: rounds commute, and directions never mix.

    Args:
        schedule: Vertex-transitive.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    moduli = np.abs([schedule.spectrum(round) for round in range(schedule.period)])
    # Rounding must not hide a zero eigenvalue, which makes a period exact.
    moduli[moduli < ROUNDING] = 0.0
    after = np.cumprod(moduli, axis=0)[:, 1:].max(axis=1, initial=0.0)
    second = float(after[-1] ** (1 / schedule.period))
    exact = np.flatnonzero(after == 0.0)
    return MixingRate(
        second_eigenvalue=second,
        contraction=second**2,
        rounds_to_exact=int(exact[0]) + 1 if len(exact) else None,
        effective_neighbors=effective_of_spectrum(moduli**2, gamma),
    )


def rate_of_shuffled(schedule: Schedule, gamma: float) -> MixingRate:
    """In expectation over random rounds in which no node is special.

    ``E[W^T (I - J) W]`` then treats all directions equally, so the trace of one drawn matrix is an
    estimate; for most families it is the same in every draw.

    Args:
        schedule: With random rounds; rows of its matrices sum to 1, columns need not.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    rounds: list[_Traces] = []
    # Small graphs scatter more and cost less.
    for round in range(max(ROUNDS_SAMPLED, min(1024, 2**16 // schedule.n))):
        rounds.append(_traces(schedule.matrix(round)))
        if round == 7 and np.ptp(np.array(rounds), axis=0).max() < ROUNDING:
            break
    sampled = np.array(rounds)
    mean = _Traces(*sampled.mean(axis=0))
    effective = [_effective_of_traces(_Traces(*row), schedule.n, gamma) for row in sampled]
    contraction = mean.squared if mean.squared > ROUNDING else 0.0
    return MixingRate(
        second_eigenvalue=abs(mean.first),
        contraction=contraction,
        contraction_error=_error(sampled[:, 1]),
        rounds_to_exact=1 if contraction == 0.0 else None,
        effective_neighbors=_effective_of_traces(mean, schedule.n, gamma),
        effective_neighbors_error=_error(np.array(effective)),
    )


class _Traces(NamedTuple):
    """What one drawn matrix says about their distribution."""

    first: float
    """What W leaves of a direction, averaged over directions."""

    squared: float
    """What it leaves of the sum of squares."""

    noise_squared: float
    """What it leaves of the sum of squares of noise that is equal at all nodes: c - d, where c
    and d are the entries of ``E[W W^T]`` on and off the diagonal."""

    spread: float
    """What it spreads of it to any other node: d."""


def _traces(matrix: csr_array) -> _Traces:
    n = matrix.shape[0]
    columns = matrix.sum(axis=0)
    squares = (matrix.data**2).sum()
    # Columns that do not sum to 1 let the mean drift.
    drift = (columns**2).sum() / n
    on, off = squares / n, ((columns**2).sum() - squares) / (n * (n - 1))
    return _Traces(
        first=(matrix.trace() - 1) / (n - 1),
        squared=(squares - drift) / (n - 1),
        noise_squared=on - off,
        spread=off,
    )


def _effective_of_traces(traces: _Traces, n: int, gamma: float) -> float:
    """``E[W_t ... W_0 W_0^T ... W_t^T]`` is ``a I + b 1 1^T``: a <- (c - d) a, b <- b + d a."""
    left, spread = traces.noise_squared, traces.spread
    kept = left / (1 - gamma * left)
    # b converges to d / (1 - c + d), which is 1 / n where the mean is preserved.
    gathered = spread / (1 - left) * (1 / (1 - gamma) - kept)
    return float(1 / (1 - gamma) / (kept + gathered))


def _error(values: NDArray[np.float64]) -> float:
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return error if error > ROUNDING * max(1.0, abs(float(values.mean()))) else 0.0


def rate_of_circulant(schedule: Schedule, gamma: float) -> MixingRate:
    """In expectation over random rounds whose distribution is invariant under turns of a cycle.

    ``E[W^T W]`` is a circulant matrix, and the Fourier transform finds its eigenvalues.

    Args:
        schedule: With random rounds; its matrices are doubly stochastic.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    matrices = list(_representatives(schedule))
    # Spectra of the matrices averaged over turns, axes (matrix, direction).
    first = np.array([np.fft.fft(_along_diagonals(matrix)) for matrix in matrices])
    squares = [_along_diagonals((matrix.T @ matrix).tocsr()) for matrix in matrices]
    second = np.fft.fft(np.array(squares)).real
    mean, factors = first.mean(axis=0), second.mean(axis=0)
    worst = int(factors[1:].argmax()) + 1
    factors[factors < ROUNDING] = 0.0
    exhaustive = isinstance(schedule, RandomCirculant)
    # Only for commuting matrices is the mean of products the product of means.
    if isinstance(schedule, RandomCirculant) and schedule.commutes:
        effective, error = effective_of_spectrum(factors[None], gamma), 0.0
    elif schedule.n <= EXPECTED_MAX:
        effective, error = _effective_turned(schedule, gamma)
    else:
        effective, error = _effective_walked(schedule, gamma)
    return MixingRate(
        second_eigenvalue=min(float(np.abs(mean[1:]).max()), 1.0),
        contraction=min(float(factors[worst]), 1.0),
        contraction_error=0.0 if exhaustive else _error(second[:, worst]),
        rounds_to_exact=1 if factors[worst] == 0.0 else None,
        effective_neighbors=effective,
        effective_neighbors_error=error,
    )


def _effective_turned(schedule: Schedule, gamma: float) -> tuple[float, float]:
    """By iterating the expectation of ``W_t ... W_0 W_0^T ... W_t^T``, a circulant matrix."""
    matrices = [matrix.toarray() for matrix in _representatives(schedule)]
    n = schedule.n
    diagonal = np.subtract.outer(np.arange(n), np.arange(n)) % n
    kernel = np.eye(n)[0]
    below, faded = 0.0, 1.0
    while faded > 1e-10 and np.ptp(kernel) > ROUNDING:
        spread = kernel[diagonal]
        after = sum(matrix @ spread @ matrix.T for matrix in matrices) / len(matrices)
        kernel = np.bincount(diagonal.ravel(), np.asarray(after).ravel()) / n
        below += faded * kernel[0]
        faded *= gamma
    # What is evenly spread stays so.
    below += faded / (1 - gamma) * kernel[0]
    return float(1 / (1 - gamma) / below), 0.0


def _effective_walked(schedule: Schedule, gamma: float) -> tuple[float, float]:
    """By walks through drawn rounds, one stretch of rounds after another."""
    n = schedule.n
    rounds = ceil(log(1e-10) / log(gamma)) if gamma else 1
    stretches = max(1, NODES_SAMPLED // n)
    walks = []
    for stretch in range(stretches):
        x = probes(n) - probes(n).mean(axis=0)
        sums = np.zeros(x.shape[1])
        for round in range(rounds):
            x = schedule.matrix(stretch * rounds + round) @ x
            squares = gamma**round * np.square(x).sum(axis=0)
            sums += squares
            # The rest of the sum is far below the scatter of probes.
            if squares.max() < 1e-5 * (1 + (1 - gamma) * sums.min()):
                break
        walks.append(sums)
    below = np.concatenate(walks) / n + 1 / (n * (1 - gamma))
    effective = 1 / (1 - gamma) / below.mean()
    scatter = below.std(ddof=1) / np.sqrt(below.size)
    return float(effective), float(effective * scatter / below.mean())


def _representatives(schedule: Schedule) -> Iterable[csr_array]:
    if isinstance(schedule, RandomCirculant):
        return schedule.representatives()
    return (schedule.matrix(round) for round in range(ROUNDS_SAMPLED))


def _along_diagonals(matrix: csr_array) -> NDArray[np.float64]:
    """Means along wrapped diagonals, float64 ``(n,)``: the nearest circulant's first column."""
    entries = matrix.tocoo()
    rows, columns = entries.coords
    n = matrix.shape[0]
    means: NDArray[np.float64] = np.bincount((rows - columns) % n, entries.data, minlength=n) / n
    return means


def rate_of_fixed(schedule: Fixed, gamma: float) -> MixingRate:
    """Exact up to a few hundred nodes; beyond, by extreme eigenvalues (to 1e-10) and probes.

    Args:
        schedule: Connected; columns of its matrices sum to 1.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    balanced = balance(schedule.rounds)
    if balanced.is_symmetric:
        return _rate_of_symmetric(balanced, gamma)
    exact = _rounds_to_exact(balanced)
    effective, error = _effective(balanced, gamma)
    second = contraction = 0.0
    rounds = None
    if exact is None or exact > len(balanced.rounds):
        second, contraction, rounds = _second_general(balanced)
    return MixingRate(
        second_eigenvalue=second if exact is None else 0.0,
        contraction=contraction,
        rounds_to_exact=exact,
        rounds_to_1e_3=rounds,
        effective_neighbors=effective,
        effective_neighbors_error=error,
    )


def _rate_of_symmetric(balanced: Balanced, gamma: float) -> MixingRate:
    if balanced.n <= SYMMETRIC_MAX:
        spectrum = np.linalg.eigvalsh(balanced.rounds[0].toarray())
        # The largest is known to be 1; rounded up, it would make walks endless.
        spectrum[-1] = 1.0
        effective, error = effective_of_spectrum(spectrum[None] ** 2, gamma), 0.0
        second = min(float(np.abs(spectrum[:-1]).max()), 1.0)
    else:
        effective, error = _effective(balanced, gamma)
        second = min(_second_symmetric(balanced), 1.0)
    exact = _rounds_to_exact(balanced)
    return MixingRate(
        second_eigenvalue=second if exact is None else 0.0,
        contraction=second**2 if exact is None else 0.0,
        rounds_to_exact=exact,
        effective_neighbors=effective,
        effective_neighbors_error=error,
    )


def _rounds_to_exact(balanced: Balanced) -> int | None:
    """By a random vector, which vanishes only in a round in which all others do."""
    x = generator(0, "exact", balanced.n).normal(size=balanced.n)
    first = balanced.kept[0]
    x -= first * (first @ x)
    start = np.linalg.norm(x)
    left = [1.0 if balanced.n > 1 else 0.0]
    # Twice the diameter of the sparsest graph.
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
            # Of the residual; the error of a symmetric matrix's eigenvalue is its square.
            tol=1e-8,
            v0=_start(balanced.n),
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return _by_shift(matrix)
    return float(abs(values[0]))


def _is_thin(matrix: csr_array) -> bool:
    """Whether paths are long for the number of nodes, or the graph is nearly a tree.

    Krylov methods crawl on such graphs, but their factors stay sparse; on expanders the reverse
    holds.
    """
    n = matrix.shape[0]
    links = (matrix.nnz - n) / 2
    farthest = dijkstra(matrix, indices=0, unweighted=True).max()
    return bool(links < 1.1 * n or farthest > 6 * np.log2(n))


def _by_shift(matrix: csr_array) -> float:
    """The second largest eigenvalue by shift-invert, just above 1."""
    n = matrix.shape[0]
    values = eigsh(
        matrix.tocsc(), k=2, sigma=1 + 1e-8, which="LM", v0=_start(n), return_eigenvectors=False
    )
    second = float(np.sort(values)[0])
    # Gershgorin: no eigenvalue is smaller.
    if 1 - 2 * matrix.diagonal().min() <= second:
        return second
    lowest = eigsh(matrix, k=1, which="SA", v0=_start(n), return_eigenvectors=False)
    return max(second, float(-lowest[0]))


def _second_general(balanced: Balanced) -> tuple[float, float, int | None]:
    """Second eigenvalue, contraction per round, and rounds to a thousandth where followed."""
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
    """How often to apply a product until it leaves at most a thousandth, by squaring."""
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

    Its denominator is ``mean_k sum_t gamma^t |W_t ... W_0 e_k|^2``, over all directions of a
    small graph, over random ones of a large graph (Hutchinson 1989).
    """
    n = balanced.n
    kept = balanced.kept[0]
    starts = np.eye(n) if n <= DENSE_MAX else probes(n)
    starts = starts - np.multiply.outer(kept, kept @ starts)
    walk = _walks_at_once if balanced.is_symmetric else _walks_by_round
    walks = walk(balanced, starts, gamma)
    # The preserved vector, one of n directions, never decays.
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
        assert not failed, "the matrix is positive definite and well conditioned"
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
    # Otherwise ARPACK draws a different one each time.
    return generator(0, "start", n).normal(size=n)
