"""Measures a run: curves over virtual time, and how workers spent it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...gossip.weight import UNITS_PER_FOUNDER
from ...train.tasks.data import is_pair
from ...train.tasks.task import Evaluation, Task
from ..batched.models import Models
from ..batched.schedule import Ending, Reading
from ..batched.vector_tasks import VectorRows

__all__ = ["Curves", "participation", "time_figures", "token_figures"]

# With more workers, keeping all readings of each takes too much memory.
_WORKERS_MAX: Final = 1024

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def participation(readings: Sequence[Reading]) -> dict[str, float | None]:
    """Count the workers that step and exchange in a quarter of the run, mean over the quarters.

    Returns:
        Their number, and the part of the workers in the swarm that this is; None without any
        exchange, or without readings.
    """
    taking, parts = [], []
    times_s = np.array([reading.time_s for reading in readings] or [0.0])
    # The last measurements before and at the end of each quarter of the time.
    edges = np.searchsorted(times_s, times_s[-1] * np.arange(5) / 4, side="right") - 1
    for first, last in pairwise(edges.clip(0).tolist()):
        if first == last:
            continue
        before, after = readings[first], readings[last]
        present = np.arange(len(after.steps)) if after.present is None else after.present
        exchanged = after.exchanges > before.exchanges
        # Between two outer rounds all workers train alone, as intended.
        if exchanged.any() and len(present):
            active = (exchanged & (after.steps > before.steps))[present]
            taking.append(float(active.sum()))
            parts.append(float(active.mean()))
    return {
        "members_taking_part": float(np.mean(taking)) if taking else None,
        "participation": float(np.mean(parts)) if parts else None,
    }


class Curves:
    """Collects one point of every curve at each measurement.

    Attributes:
        evaluation: That of the merged model at the last measurement, if there is a model.
        readings: Work of each worker by each measurement; empty for very many workers.
    """

    def __init__(self) -> None:
        self.evaluation: Evaluation | None = None
        self.readings: list[Reading] = []
        self._points: list[dict[str, Any]] = []
        self._before: Reading | None = None

    def add(self, reading: Reading, values: Models | VectorRows) -> dict[str, Any]:
        """Measure *values* at the moment of *reading*, and return the point of every curve."""
        figures = _of_fleet(reading, self._before) | self._of_values(reading, values)
        self._points.append(figures)
        if len(reading.steps) <= _WORKERS_MAX:
            self.readings.append(reading)
        self._before = reading
        return figures

    def series(self) -> dict[str, NDArray[np.float64]]:
        """All curves, float64, first axis ``n_points``; NaN where a point has no value."""
        names = dict.fromkeys(name for point in self._points for name in point)
        return {name: self._curve(name) for name in names}

    def _curve(self, name: str) -> NDArray[np.float64]:
        points = [point.get(name, np.nan) for point in self._points]
        values = [np.atleast_1d(point) for point in points]
        curve = np.full((len(values), max(map(len, values))), np.nan)
        for row, value in zip(curve, values, strict=True):
            row[: len(value)] = value
        return curve if any(map(np.ndim, points)) else curve[:, 0]

    def _of_values(self, reading: Reading, values: Models | VectorRows) -> dict[str, Any]:
        present = reading.present
        if present is not None and not len(present):
            # All workers are down: no model can be measured.
            return {}
        found: dict[str, Any] = {"consensus_distance": values.consensus_distance(present)}
        if isinstance(values, VectorRows):
            objective = values.objective(present)
            found |= {"disagreement": values.disagreement(present)}
            return found if objective is None else found | {"loss": objective}
        self.evaluation = values.evaluate(values.merged(reading.weight_units))
        losses, accuracies = values.evaluate_workers(present)
        found |= {"loss": self.evaluation.loss}
        found |= {"loss_quantiles": _quantiles(losses)} if len(losses) else {}
        if accuracies is not None:
            found["accuracy"] = self.evaluation.accuracy
            found |= {"accuracy_quantiles": _quantiles(accuracies)} if len(accuracies) else {}
        return found | self._of_groups(reading, values)

    def _of_groups(self, reading: Reading, values: Models) -> dict[str, Any]:
        """Measure each group's own merged model, while a partition lasts."""
        losses, accuracies = [], []
        for group in reading.groups:
            units = np.zeros_like(reading.weight_units)
            units[list(group)] = reading.weight_units[list(group)]
            evaluation = Evaluation(loss=np.nan, accuracy=np.nan)
            if units.any():
                evaluation = values.evaluate(values.merged(units))
            losses.append(evaluation.loss)
            if evaluation.accuracy is not None:
                accuracies.append(evaluation.accuracy)
        found = {"loss_of_groups": losses, "accuracy_of_groups": accuracies}
        return {name: figures for name, figures in found.items() if figures}


def _of_fleet(reading: Reading, before: Reading | None) -> dict[str, Any]:
    traffic, n, shards = reading.traffic, *reading.weight_units.shape
    weights = reading.weight_units.sum(axis=1) / (UNITS_PER_FOUNDER * shards)
    apart: dict[str, Any] = {}
    if reading.present is not None:
        weights, n = weights[reading.present], max(1, len(reading.present))
        apart = {"members": len(reading.present), "membership_bytes": traffic.membership_bytes}
    lasted_s = reading.time_s - before.time_s if before else 0.0
    mixed = traffic.mixed - (before.traffic.mixed if before else 0)
    behind = traffic.staleness_steps - (before.traffic.staleness_steps if before else 0)
    idle_s = reading.idle_s - (before.idle_s if before else 0.0)
    return {
        "time_s": reading.time_s,
        "steps": float(reading.steps.mean()),
        "weight_quantiles": _quantiles(weights),
        "messages": traffic.messages,
        "bytes_sent": traffic.bytes_sent,
        "pushes": traffic.pushes,
        "skipped": traffic.skipped,
        "mixed": traffic.mixed,
        "staleness_steps": behind / mixed if mixed else np.nan,
        "idle": idle_s / (n * lasted_s) if lasted_s else 0.0,
        **apart,
    }


def _quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(values):
        return np.full(len(_QUANTILES), np.nan)
    found: NDArray[np.float64] = np.quantile(values, _QUANTILES)
    return found


def time_figures(
    ending: Ending, *, end_s: float, founders: int, means_s: Sequence[float]
) -> dict[str, float | None]:
    """Measure how the workers spent their time.

    Args:
        end_s: Length of the run, virtual seconds.
        founders: Number of workers at the start.
        means_s: Mean duration of a step of each worker without slowdowns, seconds.

    Returns:
        ``utilization``: the part of the processes' running time in which they neither waited for
        others, nor looked for a swarm, nor stood still. ``goodput``: the part of the work that the
        founders would have done without failing or waiting that was done and is not lost.
        ``wait_s_longest``: the longest wait for others, seconds. None if no time has passed.
    """
    times = ending.times
    if not end_s:
        return {"utilization": None, "goodput": None, "wait_s_longest": None}
    lived_s = end_s * founders if times is None else times.lived_s
    unused_s = 0.0 if times is None else times.unused_s
    if times is not None and ending.fault_report is not None:
        # The work of failing workers is counted until then, which may be earlier.
        computed_s, end_s = times.computed_s, times.until_s
    else:
        steps: NDArray[np.int64] = ending.workers["steps"]
        computed_s = float((steps * np.asarray(means_s)).sum())
    return {
        "utilization": 1 - unused_s / lived_s if lived_s else None,
        "goodput": computed_s / (end_s * founders),
        "wait_s_longest": 0.0 if times is None else times.waited_s_most,
    }


def token_figures(task: Any, steps: NDArray[np.int64], samples: Sequence[int]) -> dict[str, Any]:
    """Return ``tokens``, or samples of other data, that all workers trained on; nothing for a task
    without data."""
    if not isinstance(task, Task):
        return {}
    targets: Any = task.train[1] if is_pair(task.train) else ()
    each = 1
    # Several integers are tokens; several other numbers are one target.
    if len(targets) and not targets.is_floating_point() and targets.ndim > 1:
        each = int(targets[0].numel())
    return {"tokens": int((steps * np.asarray(samples)).sum()) * each}
