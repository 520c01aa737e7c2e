"""Mixing rates from spectra: in closed form, from dense matrices, or sampled.

Vertex-transitive schedules have their spectrum in closed form, random rounds that treat all nodes
alike have one in expectation, and explicit matrices go to dense solvers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array

from ..errors import TopologyError
from ..hashing import generator
from ..schedules.cayley import Cayley
from ..schedules.schedule import Fixed, RandomCirculant, Schedule

__all__ = [
    *("NODES_MAX", "MixingRate", "balance", "check_nodes"),
    *("rate_of_cayley", "rate_of_circulant", "rate_of_fixed", "rate_of_shuffled"),
]

Vector = NDArray[np.float64]

NODES_MAX = 2048
"""Number of nodes up to which a whole symmetric spectrum takes about a second."""

ROUNDING = 1e-12
"""Rounding error left of a disagreement that exact arithmetic would have removed."""

ROUNDS_SAMPLED = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class MixingRate:
    """The effect of one round on a disagreement; the fields are those of `Facts`."""

    second_eigenvalue: float
    contraction: float
    contraction_error: float = 0.0
    rounds_to_exact: int | None = None
    effective_neighbors: float


def check_nodes(n: int) -> None:
    """Raise TopologyError for graphs whose spectrum would take minutes."""
    if n > NODES_MAX:
        raise TopologyError(
            f"facts about a graph that does not look the same from all of its nodes are computed "
            f"for at most {NODES_MAX:,} nodes, not {n:,}"
        )


def _effective_of_spectrum(factors: Vector, gamma: float) -> float:
    """Return the effective number of neighbors, from squared moduli ``(round, direction)``.

    ``n_W(gamma) = [1 / (1 - gamma)] / [mean_k l_k^2 / (1 - gamma l_k^2)]`` for a static W;
    over a period, the denominator is ``mean_k sum_t gamma^t prod_{r <= t} l_k(r)^2``.

    Source: Vogels, Hendrikx and Jaggi, NeurIPS 2022, on decaying random walks of W.
    """
    period = len(factors)
    after = np.cumprod(factors, axis=0)
    faded = np.power(gamma, np.arange(period))[:, None] * after
    walks = faded.sum(axis=0) / (1 - gamma**period * after[-1])
    return float(1 / (1 - gamma) / walks.mean())


def rate_of_cayley(schedule: Cayley, gamma: float) -> MixingRate:
    """Compute exactly, by the Fourier transform: rounds commute, and directions never mix."""
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
        effective_neighbors=_effective_of_spectrum(moduli**2, gamma),
    )


def rate_of_shuffled(schedule: Schedule, gamma: float) -> MixingRate:
    """Compute in expectation over random rounds in which no node is special; rows sum to 1."""
    # E[W^T (I - J) W] treats all directions equally, so that the trace of one drawn matrix is an
    # estimate; for most families it is the same in every draw.
    rounds: list[_Traces] = []
    # Small graphs have a larger variance and cost less.
    for round in range(max(ROUNDS_SAMPLED, min(1024, 2**16 // schedule.n))):
        rounds.append(_traces(schedule.matrix(round)))
        if round == 7 and np.ptp(np.array(rounds), axis=0).max() < ROUNDING:
            break
    sampled = np.array(rounds)
    mean = _Traces(*sampled.mean(axis=0))
    contraction = mean.squared if mean.squared > ROUNDING else 0.0
    return MixingRate(
        second_eigenvalue=abs(mean.first),
        contraction=contraction,
        contraction_error=_error(sampled[:, 1]),
        rounds_to_exact=1 if contraction == 0.0 else None,
        effective_neighbors=_effective_of_traces(mean, gamma),
    )


class _Traces(NamedTuple):
    """Traces of one drawn matrix, which describe the distribution of all."""

    first: float
    """Part of a direction that W leaves, averaged over directions."""
    squared: float
    """Part of the sum of squares that W leaves."""
    noise_squared: float
    """Part that W leaves of the sum of squares of noise that is equal at all nodes: c - d, where c
    and d are the entries of ``E[W W^T]`` on and off the diagonal."""
    spread: float
    """Part of that noise that W spreads to any other node: d."""


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


def _effective_of_traces(traces: _Traces, gamma: float) -> float:
    """``E[W_t ... W_0 W_0^T ... W_t^T]`` is ``a I + b 1 1^T``: a <- (c - d) a, b <- b + d a."""
    left, spread = traces.noise_squared, traces.spread
    kept = left / (1 - gamma * left)
    # b converges to d / (1 - c + d), which is 1 / n if the mean is preserved.
    gathered = spread / (1 - left) * (1 / (1 - gamma) - kept)
    return float(1 / (1 - gamma) / (kept + gathered))


def _error(values: Vector) -> float:
    """Return the standard error of the mean; 0 if values differ by rounding only."""
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return error if error > ROUNDING * max(1.0, abs(float(values.mean()))) else 0.0


def rate_of_circulant(schedule: RandomCirculant, gamma: float) -> MixingRate:
    """Compute in expectation over random rounds, distributed equally under turns of a cycle."""
    # E[W^T W] is a circulant matrix, and the Fourier transform finds its eigenvalues.
    matrices = list(schedule.representatives())
    # Spectra of the matrices averaged over turns, axes (matrix, direction).
    first = np.array([np.fft.fft(_along_diagonals(matrix)) for matrix in matrices])
    squares = [_along_diagonals((matrix.T @ matrix).tocsr()) for matrix in matrices]
    second = np.fft.fft(np.array(squares)).real
    mean, factors = first.mean(axis=0), second.mean(axis=0)
    worst = int(factors[1:].argmax()) + 1
    factors[factors < ROUNDING] = 0.0
    # The mean of products is the product of means only for commuting matrices.
    if schedule.commutes:
        effective = _effective_of_spectrum(factors[None], gamma)
    else:
        effective = _effective_turned(matrices, gamma)
    return MixingRate(
        second_eigenvalue=min(float(np.abs(mean[1:]).max()), 1.0),
        contraction=min(float(factors[worst]), 1.0),
        rounds_to_exact=1 if factors[worst] == 0.0 else None,
        effective_neighbors=effective,
    )


def _effective_turned(matrices: Sequence[csr_array], gamma: float) -> float:
    """Compute from the expectation of ``W_t ... W_0 W_0^T ... W_t^T``, a circulant matrix.

    A round maps its first column linearly: entries j - l places off the diagonal become entries
    i - k places off it, for all entries (i, j) and (k, l) of W.
    """
    n = matrices[0].shape[0]
    check_nodes(n)
    turned = np.zeros((n, n))
    for matrix in matrices:
        entries = matrix.tocoo()
        rows, columns = entries.coords
        for row, column, value in zip(rows, columns, entries.data, strict=True):
            turned[(rows - row) % n, (columns - column) % n] += value * entries.data
    turned /= n * len(matrices)
    walks = turned @ np.linalg.solve(np.eye(n) - gamma * turned, np.eye(n)[0])
    return float(1 / (1 - gamma) / walks[0])


def _along_diagonals(matrix: csr_array) -> Vector:
    """Means along wrapped diagonals, float64 ``(n,)``: the nearest circulant's first column."""
    entries = matrix.tocoo()
    rows, columns = entries.coords
    n = matrix.shape[0]
    means: Vector = np.bincount((rows - columns) % n, entries.data, minlength=n) / n
    return means


def rate_of_fixed(schedule: Fixed, gamma: float) -> MixingRate:
    """Compute exactly, for at most `NODES_MAX` nodes, connected; columns of W sum to 1."""
    rounds, kept = balance(schedule.rounds)
    n, period = len(kept), len(rounds)
    exact = _rounds_to_exact(rounds, kept)
    if period == 1 and abs(rounds[0] - rounds[0].T).max() < ROUNDING:
        spectrum = np.linalg.eigvalsh(rounds[0].toarray())
        # The largest eigenvalue is known to be 1; rounded up, it would make walks endless.
        spectrum[-1] = 1.0
        second = 0.0 if exact is not None else min(float(np.abs(spectrum[:-1]).max()), 1.0)
        return MixingRate(
            second_eigenvalue=second,
            contraction=second**2,
            rounds_to_exact=exact,
            effective_neighbors=_effective_of_spectrum(spectrum[None] ** 2, gamma),
        )
    start = np.eye(n) - np.outer(kept, kept)
    second = contraction = 0.0
    if exact is None or exact > period:
        product = reduce(lambda x, matrix: matrix @ x, rounds, start)
        largest = min(float(np.abs(np.linalg.eigvals(product)).max()), 1.0)
        second = 0.0 if exact is not None else largest ** (1 / period)
        contraction = min(float(np.linalg.norm(product, 2)), 1.0) ** (2 / period)
    return MixingRate(
        second_eigenvalue=second,
        contraction=contraction,
        rounds_to_exact=exact,
        effective_neighbors=_effective_walked(rounds, start, gamma),
    )


def balance(rounds: Sequence[csr_array]) -> tuple[list[csr_array], Vector]:
    """Scale the matrices of a period so that it preserves a unit vector from both sides.

    For weights that are only column-stochastic (push-sum), deviations are measured in the norm of
    the stationary weights ``pi``: ``D^-1/2 W D^1/2`` with ``D = diag(pi)`` preserves the vector
    ``sqrt(pi)`` from both sides, as a doubly stochastic ``W`` preserves the constant one.

    Args:
        rounds: Columns sum to 1, float64 ``(n, n)`` each.

    Returns:
        The matrices, and the vector before the first round, float64 ``(n,)``.
    """
    n = rounds[0].shape[0]
    if all(abs(matrix.sum(axis=1) - 1).max() < 1e-9 for matrix in rounds):
        return list(rounds), np.full(n, n**-0.5)
    # Weights that a whole period leaves unchanged: one of the n equations is redundant, and that
    # they sum to 1 takes its place.
    equations = (reduce(lambda x, matrix: matrix @ x, rounds) - eye_array(n)).toarray()
    equations[-1] = 1.0
    weights = [np.linalg.solve(equations, np.eye(n)[-1])]
    if weights[0].min() <= ROUNDING:
        raise TopologyError("weights gather at some of its nodes, and the others keep none")
    for matrix in rounds:
        weights.append(matrix @ weights[-1])
    roots = [np.sqrt(weight) for weight in weights]
    scaled = [
        (diags_array(1 / after) @ matrix @ diags_array(before)).tocsr()
        for matrix, (before, after) in zip(rounds, pairwise(roots), strict=True)
    ]
    return scaled, roots[0]


def _rounds_to_exact(rounds: Sequence[csr_array], kept: Vector) -> int | None:
    """Return the round at which a disagreement vanishes at once, rather than gradually."""
    # A random vector vanishes only in a round in which all others do.
    x = generator(0, "exact", len(kept)).normal(size=len(kept))
    x -= kept * (kept @ x)
    before = start = float(np.linalg.norm(x))
    # Twice the diameter of the sparsest graph.
    for round in range(len(rounds) + 4 * len(kept).bit_length()):
        x = rounds[round % len(rounds)] @ x
        after = float(np.linalg.norm(x))
        # A geometric decline through this window would need a factor of 1e-3 or less per round.
        if after <= ROUNDING * start < 1e3 * ROUNDING * start <= before:
            return round + 1
        before = after
    return None


def _effective_walked(rounds: Sequence[csr_array], start: Vector, gamma: float) -> float:
    """Walk from all nodes: the divisor is ``mean_k sum_t gamma^t |W_t ... W_0 e_k|^2``."""
    n = len(start)
    # The preserved vector, one of n directions, never decays.
    x, walks = start, 1 / (n * (1 - gamma))
    round, faded = 0, 1.0
    while faded > 1e-10 and np.abs(x).max() > ROUNDING:
        x = rounds[round % len(rounds)] @ x
        walks += faded * float(np.square(x).sum()) / n
        faded *= gamma
        round += 1
    return float(1 / (1 - gamma) / walks)
