"""Weights of all workers as arrays, in units."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..gossip.weight import ONE, UNIT

__all__ = ["UNITS_PER_FOUNDER", "WeightUnits", "as_units", "in_proportion"]

WeightUnits = NDArray[np.int64] | NDArray[np.float64]
"""In units: int64 where all are whole, as they are unless nearly all weight was lost, and their
sums fit; else float64, each correctly rounded."""

UNITS_PER_FOUNDER = ONE // UNIT

_SUM_MAX = 2**63 * UNIT


def as_units(grains: Sequence[Sequence[int]]) -> WeightUnits:
    """Tell weights in units.

    Args:
        grains: What each worker holds of each shard, axes ``(worker, shard)``.

    >>> as_units([[3 * UNIT], [UNIT]]), as_units([[UNIT // 2]])
    (array([[3],
           [1]]), array([[0.5]]))
    """
    if any(sum(row) >= _SUM_MAX or any(weight % UNIT for weight in row) for row in grains):
        return np.array([[weight / UNIT for weight in row] for row in grains])
    return np.array([[weight // UNIT for weight in row] for row in grains])


def in_proportion(units: WeightUnits) -> WeightUnits:
    """Weights that averages can be computed with.

    Those that are not whole are scaled by a power of two, on which no mean depends, to a heaviest
    of about 1: a product with a number that is nearly 0 would lose bits.
    """
    if units.dtype == np.int64:
        return units
    scaled: NDArray[np.float64] = np.ldexp(units, -int(np.frexp(units.max())[1]))
    return scaled
