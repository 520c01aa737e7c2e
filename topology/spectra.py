"""Decay under schedules whose spectrum is at hand: alike at all nodes, or random and alike."""

from collections.abc import Iterable
from math import ceil, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .cayley import Cayley
from .decay import ROUNDING, Decay, effective_of_spectrum, probes
from .equitopo import BasisMatching, BasisPush
from .schedule import Schedule

__all__ = ["decay_of_cayley", "decay_of_shuffled", "decay_of_turned"]

ROUNDS_SAMPLED = 64

DENSE_MAX = 128
"""Nodes up to which an expected product of random rounds is written out."""

NODES_SAMPLED = 1024
"""Nodes of all walks together that are followed through random rounds."""


def decay_of_cayley(schedule: Cayley, gamma: float) -> Decay:
    """Exact, by the Fourier transform: rounds commute, and directions never mix.

    Args:
        schedule: Alike at all nodes.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    moduli = np.abs([schedule.spectrum(round) for round in range(schedule.period)])
    # Rounding must not hide a zero, which makes a period exact.
    moduli[moduli < ROUNDING] = 0.0
    after = np.cumprod(moduli, axis=0)[:, 1:].max(axis=1, initial=0.0)
    second = float(after[-1] ** (1 / schedule.period))
    exact = np.flatnonzero(after == 0.0)
    return Decay(
        second_eigenvalue=second,
        contraction=second**2,
        rounds_to_exact=int(exact[0]) + 1 if len(exact) else None,
        effective_neighbors=effective_of_spectrum(moduli**2, gamma),
    )


def decay_of_shuffled(schedule: Schedule, gamma: float) -> Decay:
    """In expectation over random rounds in which no node is special.

    ``E[W^T (I - J) W]`` then treats all directions alike, and the trace of one drawn matrix is an
    estimate already; for most families it is the same whatever is drawn.

    Args:
        schedule: With random rounds; rows of its matrices sum to 1, columns need not.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    rounds: list[_Traces] = []
    # Small ones scatter more, and cost less.
    for round in range(max(ROUNDS_SAMPLED, min(1024, 2**16 // schedule.n))):
        rounds.append(_traces(schedule.matrix(round)))
        if round == 7 and np.ptp(np.array(rounds), axis=0).max() < ROUNDING:
            break
    sampled = np.array(rounds)
    mean = _Traces(*sampled.mean(axis=0))
    effective = [_effective_of_traces(_Traces(*row), schedule.n, gamma) for row in sampled]
    contraction = mean.squared if mean.squared > ROUNDING else 0.0
    return Decay(
        second_eigenvalue=abs(mean.first),
        contraction=contraction,
        contraction_error=_error(sampled[:, 1]),
        rounds_to_exact=1 if contraction == 0.0 else None,
        effective_neighbors=_effective_of_traces(mean, schedule.n, gamma),
        effective_neighbors_error=_error(np.array(effective)),
    )


class _Traces(NamedTuple):
    """What one drawn matrix tells of all that are drawn alike."""

    first: float
    """What W leaves of a direction, in the mean over directions."""

    squared: float
    """What it leaves of the sum of squares."""

    noise_squared: float
    """What it leaves of the sum of squares of noise that is alike at all nodes: c - d, where c
    and d stand on and off the diagonal of ``E[W W^T]``."""

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
    # b goes to d / (1 - c + d) in the end, which is 1 / n where the mean is kept.
    gathered = spread / (1 - left) * (1 / (1 - gamma) - kept)
    return float(1 / (1 - gamma) / (kept + gathered))


def _error(values: NDArray[np.float64]) -> float:
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return error if error > ROUNDING * max(1.0, abs(float(values.mean()))) else 0.0


def decay_of_turned(schedule: Schedule, gamma: float) -> Decay:
    """In expectation over random rounds that are alike under turns of a cycle.

    ``E[W^T W]`` is a circulant matrix, and the Fourier transform finds its eigenvalues.

    Args:
        schedule: With random rounds; its matrices are doubly stochastic.
        gamma: For the effective number of neighbors, in [0, 1).
    """
    first, second = (np.array(spectra) for spectra in _turned(schedule))
    mean, factors = first.mean(axis=0), second.mean(axis=0)
    worst = int(factors[1:].argmax()) + 1
    factors[factors < ROUNDING] = 0.0
    exhaustive = isinstance(schedule, BasisPush | BasisMatching)
    # Only of matrices that commute do products of means tell the mean of products.
    if isinstance(schedule, BasisPush):
        effective, error = effective_of_spectrum(factors[None], gamma), 0.0
    elif schedule.n <= DENSE_MAX:
        effective, error = _effective_turned(schedule, gamma)
    else:
        effective, error = _effective_walked(schedule, gamma)
    return Decay(
        second_eigenvalue=min(float(np.abs(mean[1:]).max()), 1.0),
        contraction=min(float(factors[worst]), 1.0),
        contraction_error=0.0 if exhaustive else _error(second[:, worst].real),
        rounds_to_exact=1 if factors[worst] == 0.0 else None,
        effective_neighbors=effective,
        effective_neighbors_error=error,
    )


def _effective_turned(schedule: Schedule, gamma: float) -> tuple[float, float]:
    """By the expectation of ``W_t ... W_0 W_0^T ... W_t^T``, a circulant that each round maps."""
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
    # What is evenly spread stays so for ever.
    below += faded / (1 - gamma) * kernel[0]
    return float(1 / (1 - gamma) / below), 0.0


def _effective_walked(schedule: Schedule, gamma: float) -> tuple[float, float]:
    """By walks through rounds as they were drawn, one stretch of rounds after another."""
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
            # What may still come is far below what probes scatter.
            if squares.max() < 1e-5 * (1 + (1 - gamma) * sums.min()):
                break
        walks.append(sums)
    below = np.concatenate(walks) / n + 1 / (n * (1 - gamma))
    effective = 1 / (1 - gamma) / below.mean()
    scatter = below.std(ddof=1) / np.sqrt(below.size)
    return float(effective), float(effective * scatter / below.mean())


Turns = tuple[list[NDArray[np.complex128]], list[NDArray[np.float64]]]


def _turned(schedule: Schedule) -> Turns:
    """Per matrix that can be drawn, averaged over turns of the cycle: spectra, ``(direction,)``."""
    first, second = [], []
    for matrix in _representatives(schedule):
        first.append(np.fft.fft(_along_diagonals(matrix)))
        second.append(np.fft.fft(_along_diagonals((matrix.T @ matrix).tocsr())).real)
    return first, second


def _representatives(schedule: Schedule) -> Iterable[csr_array]:
    if isinstance(schedule, BasisMatching):
        return (schedule.matching(shift, 0) for shift in schedule.shifts)
    if isinstance(schedule, BasisPush):
        return (schedule.basis.matrix(round) for round in range(schedule.basis.period))
    return (schedule.matrix(round) for round in range(ROUNDS_SAMPLED))


def _along_diagonals(matrix: csr_array) -> NDArray[np.float64]:
    """Means along wrapped diagonals, float64 ``(n,)``: the nearest circulant's first column."""
    entries = matrix.tocoo()
    rows, columns = entries.coords
    n = matrix.shape[0]
    means: NDArray[np.float64] = np.bincount((rows - columns) % n, entries.data, minlength=n) / n
    return means
