"""How a simulation goes, reported while it does: to a display, and to loggers."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ...train.loggers import LoggedRun
from ...train.loggers.logger import SWARM, LoggerSpec
from ...train.loggers.registry import make_loggers
from ...train.loggers.writer import LogWriter
from ..batched.schedule import Progress, Window
from ..config import SimulationConfig
from ..kernel.program import Level

__all__ = ["RunLog", "Watch"]

# Between two reports about one window, which may take minutes with a large model.
_TELL_S: Final = 1.0


class Watch:
    """Reports the progress of a run.

    Args:
        make: Makes a report of steps taken, virtual time and wall-clock seconds.
        started_s: When the run began.
        progress: Is called with each report, if given.
    """

    def __init__(
        self,
        make: Callable[[int, float, float], Progress],
        started_s: float,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._make = make
        self._started_s = started_s
        self._progress = progress
        self._told_s = started_s
        self._steps, self._time_s = 0, 0.0

    def telling(self, window: Window) -> Iterator[Level]:
        """Yield the levels of a window, and report progress every second."""
        steps, before, before_s = self._steps, self._steps, self._time_s
        for level in window.levels:
            yield level
            steps += len(level.workers)
            if time.perf_counter() - self._told_s > _TELL_S:
                # Levels have no time of their own.
                part = (steps - before) / max(1, window.steps - before)
                self.tell(steps, before_s + part * (window.time_s - before_s))

    def tell(self, steps: int, time_s: float) -> None:
        """Report that so many steps were taken by that virtual time."""
        self._told_s = time.perf_counter()
        self._steps, self._time_s = steps, time_s
        if self._progress is not None:
            self._progress(self._make(steps, time_s, self._told_s - self._started_s))


class RunLog:
    """Feeds loggers, each measurement once.

    What was measured before a worker diverged is the same in the run that starts over without it.

    Args:
        folder: Of the run, whose name it gives to the run; default: a new one under runs.

    Raises:
        ConfigError: A logger cannot be made.
    """

    def __init__(
        self, config: SimulationConfig, loggers: Sequence[LoggerSpec], folder: Path | None
    ) -> None:
        self.summary: Mapping[str, Any] = {}
        self._writer = LogWriter(make_loggers(loggers))
        self._time_s = -math.inf
        if folder is None:
            folder = Path("runs", f"sim-{config.task_name}-{time.strftime('%Y%m%d-%H%M%S')}")
        usual = SimulationConfig()
        given = {each.name: getattr(config, each.name) for each in fields(config)}
        given["partition"] = config.partition
        told = {name: v for name, v in given.items() if v != getattr(usual, name)}
        always = {name: given[name] for name in ("workers", "topology", "rule", "seed")}
        told |= {"task": config.task_name, **always}
        self._writer.open(LoggedRun(name=folder.name, folder=folder, config=told))

    def take(self, time_s: float, row: dict[str, float]) -> None:
        """Hand a measurement on, unless it was."""
        if time_s > self._time_s:
            self._time_s = time_s
            self._writer.log(SWARM, row)

    def close(self) -> None:
        """Let loggers finish."""
        self._writer.close(self.summary)
