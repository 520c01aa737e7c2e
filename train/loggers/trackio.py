"""Trackio: a run for each peer and one for the swarm, grouped in a project."""

import io
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from contextvars import copy_context
from typing import Any

import trackio

from .logger import SWARM, LoggedRun, figures, final_figures, flat

__all__ = ["TrackioLogger"]


class TrackioLogger:
    """Writes to project *where*, by default ``rumor``."""

    def __init__(self, where: str | None = None) -> None:
        self._project = where or "rumor"
        self._runs: dict[str, Any] = {}

    def open(self, run: LoggedRun) -> None:
        self._run = run
        self._run_of(run.peer or SWARM)

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        self._run_of(peer).log(figures(row), step=x)

    def close(self, summary: Mapping[str, Any]) -> None:
        if final := final_figures(summary, self._run):
            self._run_of(self._run.peer or SWARM).log(final)
        with redirect_stdout(io.StringIO()):
            for run in self._runs.values():
                run.finish()

    def _run_of(self, peer: str) -> Any:
        if peer not in self._runs:
            # Trackio prints how to view the run: show that once, and keep it off stdout, which may
            # carry a program's result.
            with redirect_stdout(io.StringIO() if self._runs else sys.stderr):
                # `init` ends the current context's run; a copied context has none to end.
                self._runs[peer] = copy_context().run(
                    trackio.init,
                    project=self._project,
                    name=self._run.name if peer == SWARM else f"{self._run.name}/{peer}",
                    group=self._run.name,
                    config=flat(self._run.config),
                    auto_log_cpu=False,
                    auto_log_gpu=False,
                    embed=False,
                )
        return self._runs[peer]
