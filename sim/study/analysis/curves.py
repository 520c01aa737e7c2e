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

# Where a mean's interval must not go, whatever Student's t says.
_BOUNDS: Final = {"accuracy": (0.0, 1.0), "loss": (-np.inf, np.inf)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The mean curve of a group's seeds, and what is around it; all of one length.

    That is a 95 % interval of the mean at each place; of two seeds, which are too few for one, the
    lower and the higher.
    """

    x: tuple[float, ...]
    """Ascending, over the range that all seeds cover."""
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: int
    """Seeds."""


def band(results: Sequence[Result], y: str, *, in_logs: bool = False) -> Band | None:
    """Lay the curves of a group's seeds over virtual time over one another.

    Between two evaluations a curve is taken to be a straight line; beyond the last of the seed
    that ends first there is no mean of all.

    Args:
        results: Of trials that differ in the seed only.
        in_logs: Whether means and intervals are those of the logarithms, for a logarithmic axis,
            wherever all values are above 0.

    Returns:
        None where some seed has no such curve, or they have no range in common.
    """
    curves = [_curve(result, y) for result in results]
    if not curves or any(not len(at) for at, _ in curves):
        return None
    start, end = max(at[0] for at, _ in curves), min(at[-1] for at, _ in curves)
    if start > end:
        return None
    grid = _grid([at for at, _ in curves], start, end)
    rows = np.array([np.interp(grid, at, values) for at, values in curves])
    mean = rows.mean(axis=0)
    low, high = _around(rows, *_BOUNDS.get(y, (0.0, np.inf)))
    if in_logs:
        # A number cut at 0 is infinitely far down there.
        above = (rows > 0).all(axis=0)
        logs = np.log(rows[:, above])
        mean[above] = np.exp(logs.mean(axis=0))
        low[above], high[above] = np.exp(_around(logs, -np.inf, np.inf))
    return Band(
        x=tuple(grid.tolist()),
        mean=tuple(mean.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        n=len(rows),
    )


def _curve(result: Result, y: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places and values, where there are both; of several values at a place the last."""
    pairs = zip(result.series.get("time_s", ()), result.series.get(y, ()), strict=False)
    found = {at: value for at, value in pairs if at is not None and value is not None}
    places = sorted(found)
    return np.array(places, np.float64), np.array([found[at] for at in places], np.float64)


def _grid(places: Sequence[NDArray[np.float64]], start: float, end: float) -> NDArray[np.float64]:
    """Places of the evaluations where all seeds share them, else as many, evenly spaced."""
    first = places[0]
    if all(np.array_equal(first, at) for at in places):
        return first
    if start == end:
        return np.array([start])
    return np.linspace(start, end, max(len(at) for at in places))


def _around(
    rows: NDArray[np.float64], least: float, most: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if len(rows) < _SEEDS_MIN:
        return rows.min(axis=0), rows.max(axis=0)
    mean = rows.mean(axis=0)
    half = quantile(len(rows) - 1) * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    low, high = np.maximum(mean - half, least), np.minimum(mean + half, most)
    return np.minimum(low, mean), np.maximum(high, mean)
