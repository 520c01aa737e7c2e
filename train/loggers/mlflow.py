"""MLflow: one run for the swarm, with a nested run for each peer."""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import mlflow
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from .logger import SWARM, LoggedRun, figures, final_figures, flat

__all__ = ["MlflowLogger"]

# MLflow's server rejects longer parameters.
_PARAM_CHARS_MAX: Final = 500


class MlflowLogger:
    """Writes to experiment *where*, by default ``rumor``, of ``MLFLOW_TRACKING_URI``.

    One writer for all peers nests their runs in the swarm's. A peer that writes its own rows has a
    run with the tag ``rumor.swarm``, for grouping.
    """

    def __init__(self, where: str | None = None) -> None:
        self._experiment = where or "rumor"
        self._runs: dict[str, str] = {}

    def open(self, run: LoggedRun) -> None:
        self._run = run
        with _alone(mlflow.get_tracking_uri()):
            self._client = MlflowClient()
            # Another peer may have created it first; otherwise the next line raises.
            with suppress(MlflowException):
                self._client.create_experiment(self._experiment)
            found = self._client.get_experiment_by_name(self._experiment)
        self._experiment_id = found.experiment_id
        for name, value in flat(run.config).items():
            text = str(value)[:_PARAM_CHARS_MAX]
            self._client.log_param(self._run_of(run.peer or SWARM), name, text)

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        self._write(peer, figures(row), x, row.get("unix_s"))

    def close(self, summary: Mapping[str, Any]) -> None:
        self._write(self._run.peer or SWARM, final_figures(summary, self._run), 0, None)
        for run_id in self._runs.values():
            self._client.set_terminated(run_id)

    def _write(self, peer: str, values: Mapping[str, float], x: int, unix_s: float | None) -> None:
        # A launcher reads rows some time after their peers wrote them.
        now_ms = int((unix_s or time.time()) * 1000)
        metrics = [Metric(name, value, now_ms, x) for name, value in values.items()]
        self._client.log_batch(self._run_of(peer), metrics=metrics)

    def _run_of(self, peer: str) -> str:
        if peer not in self._runs:
            tags = {"rumor.swarm": self._run.name}
            if self._run.peer is None and peer != SWARM:
                tags["mlflow.parentRunId"] = self._run_of(SWARM)
            name = self._run.name if peer == SWARM else peer
            run = self._client.create_run(self._experiment_id, tags=tags, run_name=name)
            self._runs[peer] = run.info.run_id
        return self._runs[peer]


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    # Two processes that create the tables of one SQLite file break it.
    if not uri.startswith("sqlite:///"):
        yield
        return
    with open(uri.removeprefix("sqlite:///") + ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
