"""Copies between a CUDA device and host memory during training.

Outgoing numbers are copied on the device in order with training, and from there to the host in a
second stream. Incoming numbers are copied in order with training: the device waits for them, but no
thread does.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...gossip.errors import ConfigError, TrainingError
from .blocks import is_finite_tensor, overflowing_sum

__all__ = ["CudaQueue", "Mark", "depart", "find_device", "passed", "queue_of", "wait"]


class Mark(NamedTuple):
    """A position in the work of a device, or of a thread."""

    is_passed: Callable[[], bool]
    """True if all work before it is done."""
    wait: Callable[[], object]
    """Waits until all work before it is done, and raises its error, if any."""


def passed(marks: Sequence[Mark]) -> bool:
    """True if all marks are passed."""
    return all(mark.is_passed() for mark in marks)


def wait(marks: Sequence[Mark]) -> None:
    """Wait until all marks are passed."""
    for mark in marks:
        mark.wait()


class CudaQueue:
    """A CUDA device as the vector sees it: a training queue and a side queue, which are streams.

    The training queue is the stream that was current when the object was made, or when `follow` was
    last called; so any thread may work on the device in order with training.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._training: Any = torch.cuda.current_stream(device)
        self._beside: Any = torch.cuda.Stream(device)
        self._waiting: ThreadPoolExecutor | None = None

    def follow(self) -> None:
        """Make the calling thread's current stream the training queue; it waits for the work in the
        previous one."""
        stream: Any = torch.cuda.current_stream(self._device)
        if stream != self._training:
            stream.wait_stream(self._training)
            self._training = stream

    def training(self) -> AbstractContextManager[Any]:
        """Within a block, queue the calling thread's work in the training queue."""
        return torch.cuda.stream(self._training)

    def note(self) -> Mark:
        """Return a mark of the work in the training queue so far."""
        return _mark(_recorded(self._training))

    def beside(self, work: Callable[[], object], reads: Tensor, *, waits: bool = False) -> Mark:
        """Do *work*, which reads a tensor of the training queue, in the side queue once the
        training queue has reached its current position; with *waits*, on its own thread."""
        after = _recorded(self._training)
        if not waits:
            return _mark(self._run(work, reads, after))
        if self._waiting is None:
            self._waiting = ThreadPoolExecutor(1, thread_name_prefix="rumor-device")
        done = self._waiting.submit(lambda: self._run(work, reads, after).synchronize())
        return Mark(done.done, done.result)

    def _run(self, work: Callable[[], object], reads: Tensor, after: Any) -> Any:
        self._beside.wait_event(after)
        # Without this, its memory would be reused while this queue reads it.
        reads.record_stream(self._beside)
        with torch.cuda.stream(self._beside):
            work()
        return _recorded(self._beside)


def depart(
    queue: CudaQueue,
    room: Tensor,
    numbers: Tensor,
    write: Callable[[Tensor, Tensor], bool] | None,
) -> tuple[Mark, Callable[[], bool]]:
    """Copy the current numbers to host memory.

    Args:
        room: Target of their bytes, page-locked, uint8.
        write: Writes numbers to a room on the device in another format, and returns True if all are
            finite; it may wait for the device. None if they are sent unchanged.

    Returns:
        A mark that is passed when they have arrived; then, the callback says if all are finite.
    """
    aside = numbers.clone()
    if write is not None:
        found: list[bool] = []

        def convert() -> None:
            there = torch.empty(room.numel(), dtype=torch.uint8, device=aside.device)
            found.append(write(there, aside))
            room.copy_(there)

        return queue.beside(convert, aside, waits=True), lambda: found[0]
    host = room.view(numbers.dtype)
    total = torch.empty(1, dtype=torch.float64, pin_memory=numbers.is_cuda, device="cpu")

    def save() -> None:
        host.copy_(aside, non_blocking=True)
        total.copy_(overflowing_sum(aside).double(), non_blocking=True)

    # The sum may overflow although all numbers are finite.
    return queue.beside(save, aside), lambda: bool(torch.isfinite(total)) or is_finite_tensor(host)


def find_device(name: str, dtype: torch.dtype = torch.float32) -> torch.device:
    """Return a torch device with its index; ``auto`` is a GPU if available, else the CPU.

    Raises:
        ConfigError: The device is not available, lacks *dtype*, or does not return values.
    """
    found = name
    if name == "auto":
        found = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        here = torch.zeros(1, dtype=dtype, device=found)
        here.cpu()
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device is {name!r}, which is not available: {reason}") from None
    return here.device


def queue_of(device: torch.device) -> CudaQueue | None:
    """Return the queues of a CUDA device; None for host memory, where the caller does the work."""
    if device.type == "cpu":
        return None
    if device.type == "cuda":
        return CudaQueue(device)
    raise TrainingError(f"the model lies on {device}: only cpu and cuda can be shared from")


def _recorded(stream: Any) -> Any:
    # Blocking, so that a waiting thread does not spin.
    event: Any = torch.cuda.Event(blocking=True)
    event.record(stream)
    return event


def _mark(event: Any) -> Mark:
    return Mark(event.query, event.synchronize)
