"""Two queues of work on one device: the one in which the model trains, and one beside it.

What is queued runs later, in order within a queue. Where one queue must wait for the other, the
device does so: the thread that trains never waits for the device.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ..gossip.errors import TrainingError
from .finite import overflowing_sum

__all__ = ["DONE", "CudaLane", "Held", "Lane", "Mark", "Marks", "lane_of"]

_T = TypeVar("_T")


class Mark(Protocol):
    """A place in a queue, as `torch.cuda.Event` is one."""

    def query(self) -> bool:
        """Whether all work before it is done; never waits."""

    def synchronize(self) -> None:
        """Let the calling thread wait until it is."""


class Marks:
    """Several marks as one.

    Args:
        marks: All of which must be passed.
    """

    def __init__(self, marks: Sequence[Mark] = ()) -> None:
        self._marks = tuple(marks)

    def query(self) -> bool:
        """Whether all are passed."""
        return all(mark.query() for mark in self._marks)

    def synchronize(self) -> None:
        """Wait for all of them."""
        for mark in self._marks:
            mark.synchronize()


DONE: Final = Marks()
"""What a thread of the host has done itself is done at once."""


class Held(Generic[_T]):
    """What must stay as it is until a mark is passed. Any thread may use it."""

    def __init__(self) -> None:
        self._held: list[tuple[Mark, _T]] = []
        self._lock = threading.Lock()

    def until(self, mark: Mark, held: _T) -> None:
        """Hold something until *mark* is passed."""
        with self._lock:
            self._held.append((mark, held))

    def passed(self) -> list[_T]:
        """Let go of what need not be held any more."""
        with self._lock:
            entries = [(mark.query(), mark, held) for mark, held in self._held]
            self._held = [(mark, held) for is_passed, mark, held in entries if not is_passed]
        return [held for is_passed, _, held in entries if is_passed]


class Lane(Protocol):
    """One device as the vector sees it. `note` and `hold` are about the training queue, and are
    called on the thread that trains."""

    def buffer(self, size_bytes: int) -> Tensor:
        """Memory of the device, uint8."""

    def note(self) -> Mark:
        """Mark what the training queue holds by now."""

    def hold(self, mark: Mark) -> None:
        """Let the training queue wait for a mark of the other."""

    def save(self, host: Tensor, taken: Tensor, total: Tensor, after: Mark) -> Mark:
        """Copy to host memory, in the queue beside.

        Args:
            host: Page-locked, of the dtype and length of *taken*.
            taken: What is copied.
            total: One float64 in host memory: becomes a sum, not finite where a number is not.
            after: When *taken* is ready.

        Returns:
            When *host* and *total* are.
        """

    def bring(self, landing: Tensor, host: Tensor, after: Mark) -> Mark:
        """Copy from host memory, in the queue beside.

        Args:
            landing: Device memory, uint8.
            host: Page-locked, of the same length.
            after: When *landing* is free.

        Returns:
            When it has arrived.
        """

    def run(self, work: Callable[[], _T], after: Mark) -> _T:
        """Do *work* in the queue beside, and let the calling thread wait for all of it."""


class CudaLane:
    """A CUDA device: its queues are streams.

    Args:
        device: Which.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._aside: Any = torch.cuda.Stream(device)

    def buffer(self, size_bytes: int) -> Tensor:
        """Memory of the device."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self._device)

    def note(self) -> Mark:
        """Mark what the current stream holds."""
        return _recorded(torch.cuda.current_stream(self._device))

    def hold(self, mark: Mark) -> None:
        """Let the current stream wait for an event."""
        _wait(torch.cuda.current_stream(self._device), mark)

    def save(self, host: Tensor, taken: Tensor, total: Tensor, after: Mark) -> Mark:
        """Copy to pinned memory on the side stream."""
        _wait(self._aside, after)
        with torch.cuda.stream(self._aside):
            host.copy_(taken, non_blocking=True)
            total.copy_(overflowing_sum(taken).double(), non_blocking=True)
        return _recorded(self._aside)

    def bring(self, landing: Tensor, host: Tensor, after: Mark) -> Mark:
        """Copy from pinned memory on the side stream."""
        _wait(self._aside, after)
        with torch.cuda.stream(self._aside):
            landing.copy_(host, non_blocking=True)
        return _recorded(self._aside)

    def run(self, work: Callable[[], _T], after: Mark) -> _T:
        """Do *work* on the side stream."""
        _wait(self._aside, after)
        with torch.cuda.stream(self._aside):
            result = work()
        _recorded(self._aside).synchronize()
        return result


def lane_of(device: torch.device) -> Lane | None:
    """The queues of a device; None for host memory, where whoever calls does the work.

    Raises:
        TrainingError: Models cannot be shared from such a device.
    """
    if device.type == "cpu":
        return None
    if device.type == "cuda":
        return CudaLane(device)
    raise TrainingError(f"the model lies on {device}: only cpu and cuda can be shared from")


def _recorded(stream: Any) -> Mark:
    # Blocking, or the network thread would spin while it waits.
    event: Any = torch.cuda.Event(blocking=True)
    event.record(stream)
    mark: Mark = event
    return mark


def _wait(stream: Any, mark: Mark) -> None:
    stream.wait_event(mark)
