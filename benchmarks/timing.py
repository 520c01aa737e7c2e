"""Fair timing on a machine that others use too."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

__all__ = ["alternate", "percentile", "rate_gb_s", "timed"]

_T = TypeVar("_T")


def alternate(ways: Mapping[str, Callable[[], Sequence[_T]]], rounds: int) -> dict[str, list[_T]]:
    """Measure several ways in turn, so that a slow minute of the machine falls on all of them.

    Args:
        ways: Each takes some measurements when called. The first call is not counted: it fills
            caches and buffers.
        rounds: Calls of each that count.

    Returns:
        All measurements of each way, in the order taken.
    """
    for way in ways.values():
        way()
    found: dict[str, list[_T]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].extend(way())
    return found


def timed(action: Callable[[], object], times: int) -> list[float]:
    """Do something several times and return how long each took, seconds."""
    taken_s = []
    for _ in range(times):
        start_s = time.perf_counter()
        action()
        taken_s.append(time.perf_counter() - start_s)
    return taken_s


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of *values* that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def rate_gb_s(size_bytes: int, taken_s: Sequence[float]) -> float:
    """The median rate of moving *size_bytes*, in GB/s (10**9 bytes)."""
    return size_bytes / median(taken_s) / 1e9
