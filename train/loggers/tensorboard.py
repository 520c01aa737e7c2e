"""TensorBoard: one folder of event files per peer, drawn as one chart per metric."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torch.utils.tensorboard import SummaryWriter

from .logger import SWARM, LoggedRun, figures, final_figures, flat

__all__ = ["TensorBoardLogger"]

# TensorBoard reloads event files twice a minute.
_FLUSH_S: Final = 10


class TensorBoardLogger:
    """Writes event files into *where*/RUN, by default ``tensorboard`` in the run's folder."""

    def __init__(self, where: str | None = None) -> None:
        self._where = where
        self._writers: dict[str, SummaryWriter] = {}

    def open(self, run: LoggedRun) -> None:
        self._run = run
        self._root = (run.folder or Path("runs")) / "tensorboard"
        if self._where is not None:
            # Peers that write their own rows into one folder appear as one swarm.
            self._root = Path(self._where) / (run.name if run.peer is None else "")

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        writer, now = self._writer(peer), row.get("unix_s") or time.time()
        for name, value in figures(row).items():
            writer.add_scalar(name, value, x, walltime=now)

    def close(self, summary: Mapping[str, Any]) -> None:
        own = self._writer(self._run.peer or SWARM)
        final = final_figures(summary, self._run)
        own.add_hparams(flat(self._run.config), final, run_name=".")
        for writer in self._writers.values():
            writer.close()

    def _writer(self, peer: str) -> SummaryWriter:
        if peer not in self._writers:
            self._writers[peer] = SummaryWriter(str(self._root / peer), flush_secs=_FLUSH_S)
        return self._writers[peer]
