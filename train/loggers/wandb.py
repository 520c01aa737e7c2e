"""Weights & Biases: a run for each peer and one for the swarm, grouped in a project."""

import logging
import os
from collections.abc import Mapping
from typing import Any

import wandb

from .logger import SWARM, LoggedRun, figures, flat

__all__ = ["WandbLogger"]

_log = logging.getLogger("rumor")


class WandbLogger:
    """Writes to PROJECT or ENTITY/PROJECT *where*, by default ``rumor``.

    ``WANDB_MODE=offline`` writes to disk only, and ``WANDB_RUN_GROUP`` names the group.
    """

    def __init__(self, where: str | None = None) -> None:
        entity, _, self._project = (where or "rumor").rpartition("/")
        self._entity = entity or None
        self._runs: dict[str, Any] = {}

    def open(self, run: LoggedRun) -> None:
        self._run = run
        is_online = wandb.setup().settings.mode == "online"
        if is_online and not wandb.login(prompt=False, verify=False):
            # Otherwise wandb would prompt for a key at the terminal.
            raise RuntimeError("there is no API key: run `wandb login`, or set WANDB_MODE=offline")
        first = self._run_of(run.peer or SWARM)
        if not first.offline:
            _log.info("W&B shows this run at %s", first.url)

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        self._run_of(peer).log({**figures(row), "swarm_steps": x})

    def close(self, summary: Mapping[str, Any]) -> None:
        self._run_of(self._run.peer or SWARM).summary.update(flat(summary))
        for run in self._runs.values():
            run.finish()

    def _run_of(self, peer: str) -> Any:
        if peer not in self._runs:
            run = wandb.init(
                entity=self._entity,
                project=self._project,
                group=os.environ.get("WANDB_RUN_GROUP") or self._run.name,
                name=self._run.name if peer == SWARM else f"{self._run.name}/{peer}",
                job_type=SWARM if peer == SWARM else "peer",
                config=flat(self._run.config),
                reinit="create_new",
                # Peers keep their own console output, and a launcher's load says nothing of theirs.
                settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
            )
            # W&B's own row count would not do, as a later incarnation may start at an earlier step.
            run.define_metric("*", step_metric="swarm_steps")
            self._runs[peer] = run
        return self._runs[peer]
