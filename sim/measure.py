"""What is noted at each measurement: curves over virtual time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gossip import ONE
from ..train.task import Evaluation
from .models import Models
from .schedule import Reading
from .vectors import VectorRows

__all__ = ["Curves"]

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
        return {
            name: np.array([point[name] for point in self._points], np.float64) for name in names
        }

    def _of_values(self, reading: Reading, values: Models | VectorRows) -> dict[str, Any]:
        found: dict[str, Any] = {"consensus_distance": values.consensus_distance()}
        if isinstance(values, VectorRows):
            return found | {"disagreement": values.disagreement()}
        self.evaluation = values.evaluate(values.merged(reading.weight_units))
        losses, accuracies = values.evaluate_workers()
        found |= {"loss": self.evaluation.loss, "loss_quantiles": _quantiles(losses)}
        if accuracies is not None:
            found["accuracy"] = self.evaluation.accuracy
            found["accuracy_quantiles"] = _quantiles(accuracies)
        return found


def _of_fleet(reading: Reading, before: Reading | None) -> dict[str, Any]:
    traffic, n, shards = reading.traffic, *reading.weight_units.shape
    lasted_s = reading.time_s - before.time_s if before else 0.0
    mixed = traffic.mixed - (before.traffic.mixed if before else 0)
    behind = traffic.staleness_steps - (before.traffic.staleness_steps if before else 0)
    idle_s = reading.idle_s - (before.idle_s if before else 0.0)
    return {
        "time_s": reading.time_s,
        "steps": float(reading.steps.mean()),
        "weight_quantiles": _quantiles(reading.weight_units.sum(axis=1) / (ONE * shards)),
        "messages": traffic.messages,
        "bytes_sent": traffic.bytes_sent,
        "pushes": traffic.pushes,
        "skipped": traffic.skipped,
        "mixed": traffic.mixed,
        "staleness_steps": behind / mixed if mixed else np.nan,
        "idle": idle_s / (n * lasted_s) if lasted_s else 0.0,
    }


def _quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.quantile(values, _QUANTILES)
    return found
