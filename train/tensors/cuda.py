"""Between a CUDA device and host memory, while training goes on.

What leaves is copied aside on the device in order with training, and crosses from there in a queue
beside. What comes crosses in order with training: the device waits for it, and no thread does.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from ...gossip.errors import ConfigError, TrainingError
from .blocks import is_finite_tensor, overflowing_sum

__all__ = ["DONE", "CudaQueue", "Mark", "Marks", "depart", "find_device", "queue_of"]


class Mark(Protocol):
    """A place in a queue, as `torch.cuda.Event` is one."""

    def query(self) -> bool:
        """True if all work before it is done; never waits."""

    def synchronize(self) -> None:
        """Let the calling thread wait until it is, and raise what the work has raised."""


class Marks(tuple[Mark, ...]):
    """Several marks as one: all of them must be passed."""

    def query(self) -> bool:
        return all(mark.query() for mark in self)

    def synchronize(self) -> None:
        for mark in self:
            mark.synchronize()


DONE: Final = Marks()
"""What a thread of the host has done itself is done at once."""


class _Task:
    """A mark that is passed when a thread has done something."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def query(self) -> bool:
        return self._future.done()

    def synchronize(self) -> None:
        self._future.result()


class CudaQueue:
    """A CUDA device as the vector sees it: a training queue, and one beside, which are streams.

    The training queue is the stream that was current where the object was made, or where `follow`
    was called last; so any thread may work on what lies there in order with training.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._training: Any = torch.cuda.current_stream(device)
        self._beside: Any = torch.cuda.Stream(device)
        self._waiting: ThreadPoolExecutor | None = None

    def follow(self) -> None:
        """Take the calling thread's current stream for the training queue from now on, which waits
        for what the one before holds."""
        stream: Any = torch.cuda.current_stream(self._device)
        if stream != self._training:
            stream.wait_stream(self._training)
            self._training = stream

    def training(self) -> AbstractContextManager[Any]:
        """Put what the calling thread asks for into the training queue, within a block."""
        return torch.cuda.stream(self._training)

    def note(self) -> Mark:
        """Mark what the training queue holds by now."""
        return _recorded(self._training)

    def beside(self, work: Callable[[], object], reads: Tensor, *, waits: bool = False) -> Mark:
        """Do *work*, which reads a tensor of the training queue, in the queue beside, once the
        training queue has come to where it is now; on a thread of its own where *work* waits."""
        after = self.note()
        if not waits:
            return self._run(work, reads, after)
        if self._waiting is None:
            self._waiting = ThreadPoolExecutor(1, thread_name_prefix="rumor-device")
        return _Task(self._waiting.submit(lambda: self._run(work, reads, after).synchronize()))

    def _run(self, work: Callable[[], object], reads: Tensor, after: Mark) -> Mark:
        self._beside.wait_event(after)
        # Or its memory would be given to others while this queue reads it.
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
    """Send numbers to host memory as they are now.

    Args:
        room: Where their bytes shall go, page-locked, uint8.
        write: Fills a room on the device with numbers in another format, and says whether all are
            finite; it may wait for the device. None where they travel as they are.

    Returns:
        When they are there, and whether all are finite, to be asked then.
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

    # A sum may overflow where all numbers are finite.
    return queue.beside(save, aside), lambda: bool(torch.isfinite(total)) or is_finite_tensor(host)


def find_device(name: str, dtype: torch.dtype = torch.float32) -> torch.device:
    """The device of that name, with its index; ``auto`` is a GPU if there is one, else the CPU.

    Args:
        name: As torch has it: ``cpu``, ``cuda``, ``cuda:1``.
        dtype: What it must be able to hold.

    Raises:
        ConfigError: There is no such device, or it gives no values back.
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
    """The queues of a device; None for host memory, where the caller does the work.

    Raises:
        TrainingError: Models cannot be shared from such a device.
    """
    if device.type == "cpu":
        return None
    if device.type == "cuda":
        return CudaQueue(device)
    raise TrainingError(f"the model lies on {device}: only cpu and cuda can be shared from")


def _recorded(stream: Any) -> Mark:
    # Blocking, or a thread that waits would spin meanwhile.
    event: Any = torch.cuda.Event(blocking=True)
    event.record(stream)
    mark: Mark = event
    return mark
