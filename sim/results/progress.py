"""Progress reports of a running simulation."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from ..batched.schedule import Progress, Window
from ..kernel.program import Level

__all__ = ["Watch"]

# Seconds between two reports about one window, which may take minutes with a large model.
_TELL_S: Final = 1.0


class Watch:
    """Reports the progress of a run.

    Args:
        make: Makes a report of steps taken, virtual time and wall-clock seconds.
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
        """Report that *steps* steps were taken by that virtual time."""
        self._told_s = time.perf_counter()
        self._steps, self._time_s = steps, time_s
        if self._progress is not None:
            self._progress(self._make(steps, time_s, self._told_s - self._started_s))
