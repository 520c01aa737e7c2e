"""What is noted at each measurement: curves over virtual time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...train.tasks.task import Evaluation
from ..batched.models import Models
from ..batched.schedule import Reading
from ..batched.vector_tasks import VectorRows
from ..batched.weights import UNITS_PER_FOUNDER

__all__ = ["Curves"]

_OF_GROUPS = ("loss_of_groups", "accuracy_of_groups")

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Curves:
    """Collects one point of every curve at each measurement.

    Attributes:
        evaluation: Of the merged model, at the last measurement; None without a model.
    """

    def __init__(self) -> None:
        self.evaluation: Evaluation | None = None
        self._points: list[dict[str, Any]] = []
        self._before: Reading | None = None

    def add(self, reading: Reading, values: Models | VectorRows) -> None:
        """Measure *values* at the moment of *reading*."""
        figures = _of_fleet(reading, self._before) | self._of_values(reading, values)
        self._points.append(figures)
        self._before = reading

    def series(self) -> dict[str, NDArray[np.float64]]:
        """All curves, float64, first axis ``n_points``."""
        names = self._points[0]
        found = {
            name: np.array([point[name] for point in self._points], np.float64)
            for name in names
            if name not in _OF_GROUPS
        }
        for name in _OF_GROUPS:
            most = max(len(point.get(name, ())) for point in self._points)
            if most:
                found[name] = np.full((len(self._points), most), np.nan)
                for row, point in zip(found[name], self._points, strict=True):
                    row[: len(point.get(name, ()))] = point.get(name, ())
        return found

    def _of_values(self, reading: Reading, values: Models | VectorRows) -> dict[str, Any]:
        present = reading.present
        if present is not None and not len(present):
            return _of_nobody(values)
        found: dict[str, Any] = {"consensus_distance": values.consensus_distance(present)}
        if isinstance(values, VectorRows):
            return found | {"disagreement": values.disagreement(present)}
        self.evaluation = values.evaluate(values.merged(reading.weight_units))
        losses, accuracies = values.evaluate_workers(present)
        found |= {"loss": self.evaluation.loss, "loss_quantiles": _quantiles(losses)}
        if accuracies is not None:
            found["accuracy"] = self.evaluation.accuracy
            found["accuracy_quantiles"] = _quantiles(accuracies)
        return found | self._of_groups(reading, values)

    def _of_groups(self, reading: Reading, values: Models) -> dict[str, Any]:
        """Each group's own merged model, while a partition lasts."""
        found: dict[str, Any] = {name: [] for name in _OF_GROUPS}
        for group in reading.groups:
            units = np.zeros_like(reading.weight_units)
            units[list(group)] = reading.weight_units[list(group)]
            if not units.any():
                evaluation = Evaluation(loss=np.nan, accuracy=np.nan)
            else:
                evaluation = values.evaluate(values.merged(units))
            found["loss_of_groups"].append(evaluation.loss)
            if evaluation.accuracy is not None:
                found["accuracy_of_groups"].append(evaluation.accuracy)
        return found


def _of_nobody(values: Models | VectorRows) -> dict[str, Any]:
    """A moment at which all are down: there is no model to measure."""
    if isinstance(values, VectorRows):
        return {"consensus_distance": np.nan, "disagreement": np.nan}
    names = ("loss", "accuracy") if values.task.accuracy is not None else ("loss",)
    nothing = {name: np.nan for name in ("consensus_distance", *names)}
    return nothing | {f"{name}_quantiles": np.full(len(_QUANTILES), np.nan) for name in names}


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
