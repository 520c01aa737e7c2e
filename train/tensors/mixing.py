"""When shares are mixed: at once, in slices between steps, or on a thread beside the training.

``step`` mixes a share whole, between two optimizer steps, as soon as the protocol says so: the
default, and what a replay repeats bit for bit. ``sliced`` bounds what a step may take, so that a
large model is mixed over several of them. ``background`` takes next to nothing of the training
thread, at a price: the optimizer may step on a number while it is mixed, and then one of the two
changes to that number is lost. In all of them shares are mixed in order, each once.

Source: Niu et al., NeurIPS 2011 (Hogwild), for training that works on numbers while they change.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, Protocol

__all__ = ["MIXINGS", "Background", "Mixer", "Mixing", "Sliced", "mixer"]

Mixing = Literal["step", "sliced", "background"]

MIXINGS: Final[tuple[Mixing, ...]] = ("step", "sliced", "background")
"""Ways to mix, by name."""

# Each holds a staging buffer; beyond this many, training waits for the oldest.
_QUEUED_MAX: Final = 8


class _Job(NamedTuple):
    """A share to be mixed; each step of *slices* mixes a part of it."""

    slices: Iterator[None]
    done: Callable[[], None]


class Mixer(Protocol):
    """Mixes what it is given, in that order. All methods are for the thread that trains."""

    def add(self, slices: Iterator[None], done: Callable[[], None]) -> None:
        """Take on a share.

        Args:
            slices: Mixes a part of it at each step.
            done: Called once when it is mixed, on whichever thread that happens.
        """

    def advance(self, budget_s: float, clock: Callable[[], float]) -> None:
        """Go on for so many seconds of *clock*, one slice at least."""

    def settle(self) -> None:
        """Return when all is mixed."""

    def close(self) -> None:
        """Mix what is left, and stop."""


class Sliced:
    """Mixes on the calling thread, when it is given the time.

    Args:
        queued_max: Shares that may wait; one more, and the oldest is mixed at once.
    """

    def __init__(self, *, queued_max: int = _QUEUED_MAX) -> None:
        self._jobs: deque[_Job] = deque()
        self._queued_max = queued_max
        # Whoever closes may be another thread than the one that trains.
        self._lock = threading.RLock()

    def add(self, slices: Iterator[None], done: Callable[[], None]) -> None:
        """Queue a share."""
        with self._lock:
            while len(self._jobs) >= self._queued_max:
                self._slice()
            self._jobs.append(_Job(slices, done))

    def advance(self, budget_s: float, clock: Callable[[], float]) -> None:
        """Mix slices until the time is used up; it is looked at once per slice."""
        if not self._jobs:
            return
        stop_s = clock() + budget_s
        with self._lock:
            while self._jobs:
                self._slice()
                if clock() >= stop_s:
                    return

    def settle(self) -> None:
        """Mix all that is queued."""
        with self._lock:
            while self._jobs:
                self._slice()

    def close(self) -> None:
        """Mix all that is queued."""
        self.settle()

    def _slice(self) -> None:
        job = self._jobs[0]
        try:
            next(job.slices)
        except StopIteration:
            self._jobs.popleft()
            job.done()


class Background:
    """Mixes on a thread of its own, which starts with the first share.

    Args:
        queued_max: Shares that may wait; one more, and the calling thread waits for the oldest.
    """

    def __init__(self, *, queued_max: int = _QUEUED_MAX) -> None:
        self._jobs: deque[_Job] = deque()
        self._queued_max = queued_max
        self._changed = threading.Condition()
        self._closing = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def add(self, slices: Iterator[None], done: Callable[[], None]) -> None:
        """Queue a share."""
        job = _Job(slices, done)
        with self._changed:
            self._changed.wait_for(lambda: len(self._jobs) < self._queued_max)
            is_late = self._closing
            if not is_late:
                self._jobs.append(job)
                self._changed.notify_all()
        if is_late:
            # The thread ends when it has mixed what came before, if it has not ended yet.
            self.settle()
            self._mix(job)
            self._raise_failure()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rumor-mixing", daemon=True)
            self._thread.start()

    def advance(self, budget_s: float, clock: Callable[[], float]) -> None:
        """Do nothing but raise what the thread has failed with."""
        self._raise_failure()

    def settle(self) -> None:
        """Wait until all is mixed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs)
        self._raise_failure()

    def close(self) -> None:
        """Wait until all is mixed, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._raise_failure()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closing)
                if not self._jobs:
                    return
                job = self._jobs[0]
            self._mix(job)
            with self._changed:
                # Not before it is mixed: an empty queue says that all is.
                self._jobs.popleft()
                self._changed.notify_all()

    def _mix(self, job: _Job) -> None:
        try:
            for _ in job.slices:
                pass
        except BaseException as failure:
            # The training thread must hear of it; other shares are still to be mixed.
            self._failure = failure
        job.done()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def mixer(mixing: Mixing) -> Mixer | None:
    """What carries out mixes later; None where they are to be carried out at once."""
    match mixing:
        case "sliced":
            return Sliced()
        case "background":
            return Background()
        case "step":
            return None
