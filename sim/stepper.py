"""How the steps of a level are taken: what engines differ in."""

from typing import Protocol

from .program import Level

__all__ = ["Failure", "Failures", "Stepper"]


class Failure(Exception):
    """Values stopped being finite; the run has to start over and stop that worker there.

    Args:
        worker: Whose.
        step: At which of its steps, counted from 0.
    """

    def __init__(self, worker: int, step: int) -> None:
        super().__init__(f"worker {worker} has no finite values after step {step}")
        self.worker = worker
        self.step = step


class Failures:
    """Steps that did not end in finite values, the earliest of which is the cause of the others.

    Steps are not taken in the order of the schedule, and a share that is not finite spoils whoever
    mixes it. The earliest in the schedule had nothing but finite values to begin with.
    """

    def __init__(self) -> None:
        self._first: tuple[int, int, int] | None = None

    def note(self, order: int, worker: int, step: int) -> None:
        """Note that a step went wrong."""
        found = order, worker, step
        self._first = found if self._first is None else min(self._first, found)

    def check(self) -> None:
        """Raise for the earliest, if any; at the end of a window.

        Raises:
            Failure: There was one.
        """
        if self._first is not None:
            raise Failure(self._first[1], self._first[2])


class Stepper(Protocol):
    """Takes optimizer steps."""

    def take(self, level: Level) -> None:
        """Take all steps of a level; those that fail are noted in its `Failures`."""

    def close(self) -> None:
        """Let go of threads."""
