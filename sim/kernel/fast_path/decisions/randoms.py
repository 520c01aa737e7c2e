"""Random numbers of a rule, as numpy draws them from a generator's words."""

from math import exp
from typing import Any

import numpy as np

from ..compiler import compiled
from .tables import HALVES_MAX, Tables

__all__ = ["below", "poisson", "uniform"]

# From here on numpy uses another method.
_MEAN_MAX = 10.0


@compiled
def uniform(t: Tables, worker: int) -> float:
    """Draw a number in [0, 1). Mirrors numpy's ``Generator.random``."""
    lower, upper = _word(t, worker)
    return ((upper << 21) | (lower >> 11)) * 2.0**-53


@compiled
def poisson(t: Tables, worker: int, mean: float) -> int:
    """Draw a Poisson number; -1 without enough words. Mirrors numpy's ``Generator.poisson``."""
    if mean == 0.0:
        return 0
    if mean >= _MEAN_MAX:
        return -1
    none, product, n = exp(-mean), 1.0, -1
    while product > none or n < 0:
        if t.workers[worker].halves_used + HALVES_MAX > t.halves.shape[1]:
            return -1
        product *= uniform(t, worker)
        n += 1
    return n


@compiled
def below(t: Tables, worker: int, n: int) -> int:
    """Draw a number in [0, n). Mirrors numpy's ``Generator.integers``.

    Source: Lemire, ACM Transactions on Modeling and Computer Simulation 29, 2019.
    """
    if n == 1:
        return 0
    product = _half_word(t, worker) * n
    if product & 0xFFFFFFFF < n:
        least = (0x100000000 - n) % n
        while product & 0xFFFFFFFF < least:
            product = _half_word(t, worker) * n
    return product >> 32


@compiled
def _half_word(t: Tables, worker: int) -> int:
    """Return 32 bits: the lower half of a word first, then the upper one."""
    me = t.workers[worker]
    half: int = me.spare_half
    if half >= 0:
        me.spare_half = -1
    else:
        half, me.spare_half = _word(t, worker)
    return half


@compiled
def _word(t: Tables, worker: int) -> Any:
    """Return the lower and the upper half of the next 64 bits."""
    me = t.workers[worker]
    at = me.halves_used
    me.halves_used += 2
    return np.int64(t.halves[worker, at]), np.int64(t.halves[worker, at + 1])
