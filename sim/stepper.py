"""How the steps of a level are taken: what engines differ in."""

from typing import Protocol

from .plan import Stop
from .program import Level

__all__ = ["Failure", "Failures", "Stepper"]


class Failure(Exception):
    """Values stopped being finite; the run has to start over and stop that worker there.

    Args:
        stop: Where.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"worker {stop.worker} has no finite values after step {stop.step}")
        self.stop = stop


class Failures:
    """Steps that did not end in finite values, the earliest of which is the cause of the others.

    Steps are not taken in the order of the schedule, and a share that is not finite spoils whoever
    mixes it. The earliest in the schedule had nothing but finite values to begin with.
    """

    def __init__(self) -> None:
        self._first: Stop | None = None

    def note(self, order: int, worker: int, step: int) -> None:
        """Note that a step went wrong."""
        found = Stop(order, worker, step)
        self._first = found if self._first is None else min(self._first, found)

    def check(self) -> None:
        """Raise for the earliest, if any; at the end of a window.

        Raises:
            Failure: There was one.
        """
        if self._first is not None:
            raise Failure(self._first)


class Stepper(Protocol):
    """Takes optimizer steps."""

    def take(self, level: Level) -> None:
        """Take all steps of a level; those that fail are noted in its `Failures`."""

    def keep(self, worker: int) -> object:
        """A copy of what a worker's optimizer remembers."""

    def restore(self, worker: int, kept: object | None) -> None:
        """Let a worker's optimizer remember what was kept; nothing where that is None."""

    def close(self) -> None:
        """Let go of threads."""
