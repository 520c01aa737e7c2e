"""How fast rounds of mixing wear a disagreement down."""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from .draws import generator

__all__ = [
    "ROUNDING",
    "Decay",
    "effective_of_spectrum",
    "exact_after",
    "probes",
    "rounds_to_a_thousandth",
]

ROUNDING = 1e-12
"""What is left of a disagreement that arithmetic without rounding would have wiped out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decay:
    """What one round does to a disagreement, in the long run or in expectation."""

    second_eigenvalue: float
    """Modulus of the second largest one, per round; of the expected W where rounds are drawn."""

    contraction: float
    """Factor by which a round multiplies the sum of squared deviations from the mean."""

    contraction_error: float = 0.0
    """Standard error of the contraction, where rounds were sampled."""

    rounds_to_exact: int | None = None
    """Rounds from round 0 after which all agree, to rounding; None where that never happens."""

    rounds_to_1e_3: int | None = None
    """Rounds until any disagreement is down to a thousandth, where they were followed because the
    contraction does not tell them: one round may shrink nothing, and many all the same."""

    effective_neighbors: float
    effective_neighbors_error: float = 0.0
    """Standard error, where probes were used."""


def rounds_to_a_thousandth(decay: Decay, period: int | None) -> int | None:
    """Rounds until the worst disagreement, as the root of the sum of squares, is down to 1e-3.

    Args:
        decay: Its contraction tells the long run, or the expectation.
        period: Only after whole periods is that a promise; None for rounds at random.

    Returns:
        None where it never gets there.
    """
    contraction, needed = decay.contraction, decay.rounds_to_1e_3
    # Rounding must not turn an eigenvalue of 1 into some 1e15 rounds.
    if needed is None and 0 < contraction < 1 - ROUNDING:
        whole = period or 1
        needed = whole * ceil(round(2 * log(1e-3) / log(contraction) / whole, 9))
    return min(
        (found for found in (needed, decay.rounds_to_exact) if found is not None), default=None
    )


def exact_after(left: NDArray[np.float64]) -> int | None:
    """Find the round at which a disagreement is gone at once, not little by little.

    Args:
        left: What is left after 0, 1, 2, ... rounds, as a part of the start.
    """
    for rounds, (before, after) in enumerate(pairwise(left), 1):
        # A geometric decline through this window would take a factor of 1e-3 and less per round.
        if after <= ROUNDING < 1e3 * ROUNDING <= before:
            return rounds
    return 0 if left[0] <= ROUNDING else None


def probes(n: int) -> NDArray[np.float64]:
    """Random signs that stand for all directions, float64 with axes ``(node, probe)``.

    The error of what they estimate goes with 1 / sqrt(n * probes).

    Source: Hutchinson, Communications in Statistics 1989.
    """
    count = max(8, min(32, 2**19 // n))
    return generator(0, "probes", n).integers(0, 2, (n, count)).astype(np.float64) * 2 - 1


def effective_of_spectrum(factors: NDArray[np.float64], gamma: float) -> float:
    """The effective number of neighbors, from what each round of a period leaves of each direction.

    ``n_W(gamma) = [1 / (1 - gamma)] / [mean_k l_k^2 / (1 - gamma l_k^2)]`` where nothing changes;
    over a period, ``mean_k sum_t gamma^t prod_{r <= t} l_k(r)^2`` stands below.

    Args:
        factors: Squared moduli, float64 with axes ``(round of the period, direction)``.
        gamma: Decay of the random walk, in [0, 1).

    Source: Vogels, Hendrikx and Jaggi, NeurIPS 2022, on random walks of W that decay.
    """
    period = len(factors)
    after = np.cumprod(factors, axis=0)
    faded = np.power(gamma, np.arange(period))[:, None] * after
    walks = faded.sum(axis=0) / (1 - gamma**period * after[-1])
    return float(1 / (1 - gamma) / walks.mean())
