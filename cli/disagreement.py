"""How far apart the models were while they trained, estimated from the sketches in the metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["estimate"]

Rows = Sequence[Mapping[str, Any]]


def estimate(peers: Sequence[Rows]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate the consensus distance over a run.

    Sketches are linear and nearly keep distances, so that sqrt(mean_i |s_i - mean|^2) / |mean| of
    the sketches estimates the same of the models. Peers sketch at their own times: at each
    sketch of the peer that has most of them, the others' nearest in time is taken. A peer counts
    from its first sketch to its last, and an instant at which fewer than two count is left out.

    Args:
        peers: Each peer's rows of metrics, in order.

    Returns:
        Steps of the peer that has most sketches, and the estimates there, dimensionless: both
        float64, axes ``(instant,)``; empty where fewer than two peers sketched.
    """
    sketched = [[row for row in rows if row.get("sketch")] for rows in peers]
    sketched = [rows for rows in sketched if rows]
    if len(sketched) < 2:
        return np.empty(0), np.empty(0)
    times = [np.array([row["unix_s"] for row in rows]) for rows in sketched]
    sketches = [np.array([row["sketch"] for row in rows], np.float64) for rows in sketched]
    longest = max(range(len(sketched)), key=lambda index: len(sketched[index]))
    slack_s = _interval_s(times[longest])
    steps, distances = [], []
    for row, now in zip(sketched[longest], times[longest], strict=True):
        present = [
            own[np.abs(at - now).argmin()]
            for at, own in zip(times, sketches, strict=True)
            if at[0] - slack_s <= now <= at[-1] + slack_s
        ]
        if len(present) >= 2:
            steps.append(float(row["step"]))
            distances.append(_spread(np.array(present)))
    return np.array(steps), np.array(distances)


def _interval_s(times: NDArray[np.float64]) -> float:
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0


def _spread(sketches: NDArray[np.float64]) -> float:
    mean = sketches.mean(axis=0)
    spread = np.sqrt(np.square(sketches - mean).sum(axis=1).mean())
    return float(spread / (np.linalg.norm(mean) or 1.0))
