"""What is noted at each measurement: curves over virtual time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...train.tasks.task import Evaluation
from ..batched.models import Models
from ..batched.schedule import Reading
from ..batched.vector_tasks import VectorRows
from ..batched.weights import UNITS_PER_FOUNDER
from .efficiency import Participation

__all__ = ["Curves", "row_of"]

_QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}


class Curves:
    """Collects one point of every curve at each measurement.

    Attributes:
        evaluation: Of the merged model, at the last measurement; None without a model.
        participation: Who took part.
    """

    def __init__(self) -> None:
        self.evaluation: Evaluation | None = None
        self.participation = Participation()
        self._points: list[dict[str, Any]] = []
        self._before: Reading | None = None

    def add(self, reading: Reading, values: Models | VectorRows) -> dict[str, Any]:
        """Measure *values* at the moment of *reading*, and return the point of every curve."""
        figures = _of_fleet(reading, self._before) | self._of_values(reading, values)
        self._points.append(figures)
        self.participation.add(reading)
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
            # All are down: there is no model to measure.
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
        """Each group's own merged model, while a partition lasts."""
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
    found: NDArray[np.float64] = np.quantile(values, list(_QUANTILES.values()))
    return found


def row_of(point: Mapping[str, Any], swarm_steps: int) -> dict[str, float]:
    """What `Curves.add` returned as a row of single numbers, for loggers, with the optimizer steps
    of all workers by then.

    >>> row_of({"loss": 0.5, "loss_of_groups": [0.4, 0.6]}, 80)
    {'swarm_steps': 80, 'loss': 0.5, 'loss_of_groups.0': 0.4, 'loss_of_groups.1': 0.6}
    """
    row: dict[str, float] = {"swarm_steps": swarm_steps}
    for name, value in point.items():
        if name.endswith("_quantiles"):
            stem = name.removesuffix("_quantiles")
            parts = zip(_QUANTILES, value, strict=True)
            row |= {f"{stem}_{part}": float(number) for part, number in parts}
        elif np.ndim(value):
            row |= {f"{name}.{index}": float(number) for index, number in enumerate(value)}
        else:
            row[name] = float(value)
    return row
