"""Curves of several seeds as one line with a band."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..results import Result
from ..statistics import quantile

__all__ = ["Band", "band"]

_SEEDS_MIN: Final = 3

# Bounds that a mean's interval must not cross, whatever Student's t gives.
_BOUNDS: Final = {"accuracy": (0.0, 1.0), "loss": (-np.inf, np.inf)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The mean curve of a group's seeds, and a band around it; float64, all of one length.

    The band is the 95 % interval of the mean at each place; with two seeds, too few for an
    interval, it runs from the lower to the higher.
    """

    x: NDArray[np.float64]
    """Ascending, over the range that all seeds cover."""
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n: int
    """Number of seeds."""


def band(results: Sequence[Result], y: str, *, in_logs: bool = False) -> Band | None:
    """Average the curves of a group's seeds over virtual time.

    Between two evaluations a curve counts as a straight line; beyond the last evaluation of the
    seed that ends first there is no mean.

    Args:
        results: Results of trials that differ in the seed only.
        in_logs: Average logarithms, for a logarithmic axis, wherever all values are above 0.

    Returns:
        None if a seed has no such curve, or the curves have no range in common.
    """
    curves = [_curve(result, y) for result in results]
    if not curves or any(not len(at) for at, _ in curves):
        return None
    start, end = max(at[0] for at, _ in curves), min(at[-1] for at, _ in curves)
    if start > end:
        return None
    x = curves[0][0]
    if not all(np.array_equal(x, at) for at, _ in curves):
        x = np.unique(np.linspace(start, end, max(len(at) for at, _ in curves)))
    rows = np.array([np.interp(x, at, values) for at, values in curves])
    mean = rows.mean(axis=0)
    low, high = _around(rows, *_BOUNDS.get(y, (0.0, np.inf)))
    if in_logs:
        # An interval cut at 0 extends infinitely far down on a logarithmic axis.
        above = (rows > 0).all(axis=0)
        logs = np.log(rows[:, above])
        mean[above] = np.exp(logs.mean(axis=0))
        low[above], high[above] = np.exp(_around(logs, -np.inf, np.inf))
    return Band(x=x, mean=mean, low=low, high=high, n=len(rows))


def _curve(result: Result, y: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return places and values where both exist; the last of several values at a place."""
    pairs = zip(result.series.get("time_s", ()), result.series.get(y, ()), strict=False)
    found = {at: value for at, value in pairs if at is not None and value is not None}
    places = sorted(found)
    return np.array(places, np.float64), np.array([found[at] for at in places], np.float64)


def _around(
    rows: NDArray[np.float64], least: float, most: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if len(rows) < _SEEDS_MIN:
        return rows.min(axis=0), rows.max(axis=0)
    mean = rows.mean(axis=0)
    half = quantile(len(rows) - 1) * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    low, high = np.maximum(mean - half, least), np.minimum(mean + half, most)
    return np.minimum(low, mean), np.maximum(high, mean)
