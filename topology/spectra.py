"""Decay under schedules whose spectrum is at hand: alike at all nodes, or random and alike."""

from collections.abc import Iterable
from math import ceil, log

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .cayley import Cayley
from .decay import ROUNDING, Decay, effective_of_spectrum, probes
from .equitopo import BasisMatching, BasisPush
from .schedule import Schedule

__all__ = ["decay_of_cayley", "decay_of_drawn"]

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


def decay_of_drawn(schedule: Schedule, gamma: float, *, by_cycle: bool) -> Decay:
    """In expectation over the rounds that can be drawn.

    If no node is special, ``E[W^T (I - J) W]`` treats all directions alike, and the trace of
    one drawn matrix is an estimate already; for most families it is the same whatever is drawn.
    If rounds are only alike under turns of a cycle, it is a circulant matrix.

    Args:
        schedule: With random rounds; rows of its matrices sum to 1.
        gamma: For the effective number of neighbors, in [0, 1).
        by_cycle: Whether nodes are alike only under turns of a cycle.
    """
    turns = _turned(schedule) if by_cycle else _shuffled(schedule)
    first, second = np.array(turns[0]), np.array(turns[1])
    mean, factors = first.mean(axis=0), second.mean(axis=0)
    worst = int(factors[1:].argmax()) + 1
    factors[factors < ROUNDING] = 0.0
    exhaustive = isinstance(schedule, BasisPush | BasisMatching)
    scatter = 0.0 if exhaustive else second[:, worst].std(ddof=1) / np.sqrt(len(second))
    # Only of matrices that commute do products of means tell the mean of products.
    commute = not by_cycle or isinstance(schedule, BasisPush)
    effective, error = effective_of_spectrum(factors[None], gamma), 0.0
    if not commute:
        small = schedule.n <= DENSE_MAX
        effective, error = (_effective_turned if small else _effective_walked)(schedule, gamma)
    return Decay(
        second_eigenvalue=float(np.abs(mean[1:]).max()),
        contraction=float(factors[worst]),
        contraction_error=float(scatter) if scatter > ROUNDING else 0.0,
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
            if np.abs(x).max() < ROUNDING:
                break
            x = schedule.matrix(stretch * rounds + round) @ x
            sums += gamma**round * np.square(x).sum(axis=0)
        walks.append(sums)
    below = np.concatenate(walks) / n + 1 / (n * (1 - gamma))
    effective = 1 / (1 - gamma) / below.mean()
    scatter = below.std(ddof=1) / np.sqrt(below.size)
    return float(effective), float(effective * scatter / below.mean())


Turns = tuple[list[NDArray[np.complex128]], list[NDArray[np.float64]]]


def _shuffled(schedule: Schedule) -> Turns:
    """Per sampled round: what is left of any direction and of its square, axes ``(direction,)``."""
    first, second = [], []
    n = schedule.n
    for round in range(ROUNDS_SAMPLED):
        matrix = schedule.matrix(round)
        trace, squares = matrix.trace(), (matrix.data**2).sum()
        # The column means, which epidemics without an oracle do not keep.
        drift = ((matrix.sum(axis=0) / n) ** 2).sum() * n
        left, left_squared = (trace - 1) / (n - 1), (squares - drift) / (n - 1)
        first.append(_expanded(complex(left), n))
        second.append(_expanded(left_squared, n).real)
        if round == 7 and np.ptp([factors[-1] for factors in second]) < ROUNDING:
            break
    return first, second


def _expanded(value: complex, n: int) -> NDArray[np.complex128]:
    spectrum = np.full(n, value, np.complex128)
    spectrum[0] = 1.0
    return spectrum


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
