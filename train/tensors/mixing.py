"""When shares are mixed: at once, or in slices between steps.

``step`` mixes a share whole, between two optimizer steps, as soon as the protocol says so: the
default, and what a replay repeats bit for bit. ``sliced`` bounds what a step may take, so that a
large model is mixed over several of them. In both, shares are mixed in order, each once.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

__all__ = ["Mixing", "Sliced"]

Mixing = Literal["step", "sliced"]

# Each holds a staging buffer; beyond this many, training waits for the oldest.
_QUEUED_MAX: Final = 8


class _Job(NamedTuple):
    """A share to be mixed; each step of *slices* mixes a part of it."""

    slices: Iterator[None]
    done: Callable[[], None]


class Sliced:
    """Mixes what it is given, in that order, on the calling thread when it is given the time.

    Args:
        changed: Called after slices were mixed, once for several.
        queued_max: Shares that may wait; one more, and the oldest is mixed at once.
    """

    def __init__(self, changed: Callable[[], None], *, queued_max: int = _QUEUED_MAX) -> None:
        self._jobs: deque[_Job] = deque()
        self._changed = changed
        self._queued_max = queued_max
        # Whoever closes may be another thread than the one that trains.
        self._lock = threading.RLock()

    def add(self, slices: Iterator[None], done: Callable[[], None]) -> None:
        """Queue a share.

        Args:
            slices: Mixes a part of it at each step.
            done: Called once when it is mixed.
        """
        with self._lock:
            self._mix_down_to(self._queued_max - 1)
            self._jobs.append(_Job(slices, done))

    def advance(self, budget_s: float, clock: Callable[[], float]) -> None:
        """Mix slices for so many seconds of *clock*, which is looked at once per slice."""
        if not self._jobs:
            return
        stop_s = clock() + budget_s
        with self._lock:
            # One slice at least, however little time there is.
            is_late = False
            while self._jobs and not is_late:
                self._slice()
                is_late = clock() >= stop_s
            self._changed()

    def settle(self) -> None:
        """Mix all that is queued."""
        with self._lock:
            self._mix_down_to(0)

    def _mix_down_to(self, count: int) -> None:
        if len(self._jobs) <= count:
            return
        while len(self._jobs) > count:
            self._slice()
        self._changed()

    def _slice(self) -> None:
        job = self._jobs[0]
        try:
            next(job.slices)
        except StopIteration:
            self._jobs.popleft()
            job.done()
