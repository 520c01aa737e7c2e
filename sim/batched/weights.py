"""Weights of all workers as arrays, in units; without torch, which scheduling does not need."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...gossip.weight import UNIT, UNITS_PER_FOUNDER, in_units

__all__ = ["UNITS_PER_FOUNDER", "WeightUnits", "as_units", "in_proportion"]

WeightUnits = NDArray[np.int64] | NDArray[np.float64]
"""In units: int64 if all are whole, as they are unless nearly all weight was lost, and their sums
fit; else float64, each correctly rounded."""

_SUM_MAX = 2**63


def as_units(weights: Sequence[Sequence[int]]) -> WeightUnits:
    """Convert weights, axes ``(worker, shard)``, to units."""
    told = [[in_units(weight) for weight in row] for row in weights]
    whole = [[units for units in row if isinstance(units, int)] for row in told]
    if whole == told and all(sum(row) < _SUM_MAX for row in whole):
        return np.array(whole)
    return np.array([[weight / UNIT for weight in row] for row in weights])


def in_proportion(units: WeightUnits) -> WeightUnits:
    """Return weights that averages can be computed with."""
    if units.dtype == np.int64:
        return units
    # A power of two changes no mean; a product with a number that is nearly 0 would lose bits.
    scaled: NDArray[np.float64] = np.ldexp(units, -int(np.frexp(units.max())[1]))
    return scaled
