"""Between device and host memory: what leaves is copied aside first, what comes lands aside.

Training goes on meanwhile. The buffers on the device are made once and used again, each as soon as
the work that reads it is done; that is for the device to wait for, should it come to that.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ...gossip.errors import ConfigError, TrainingError
from .blocks import is_finite_tensor, overflowing_sum

__all__ = [
    "DONE",
    "CudaQueue",
    "DeviceArrival",
    "DeviceCopies",
    "DeviceSnapshot",
    "Held",
    "Mark",
    "Marks",
    "device_copies",
    "find_device",
    "queue_of",
]


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

    def drained(self) -> list[_T]:
        """Wait until nothing need be held any more, and let go of all."""
        with self._lock:
            entries, self._held = self._held, []
        for mark, _ in entries:
            mark.synchronize()
        return [held for _, held in entries]


class _Task:
    """A mark that is passed when a thread has done something."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def query(self) -> bool:
        return self._future.done()

    def synchronize(self) -> None:
        """Wait until it is done, and raise what it has raised."""
        self._future.result()


class CudaQueue:
    """A CUDA device as the vector sees it: a training queue, and two beside, which are streams.

    The training queue is the stream that was current where the object was made, or where `follow`
    was called last; so any thread may work on what lies there in order with training.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._training: Any = torch.cuda.current_stream(device)
        # A device copies both ways at once.
        self._outward: Any = torch.cuda.Stream(device)
        self._inward: Any = torch.cuda.Stream(device)
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

    def buffer(self, size_bytes: int) -> Tensor:
        """Memory of the device, uint8; free when the training queue has come to where it is."""
        with self.training():
            return torch.empty(size_bytes, dtype=torch.uint8, device=self._device)

    def note(self) -> Mark:
        """Mark what the training queue holds by now."""
        return _recorded(self._training)

    def hold(self, mark: Mark) -> None:
        """Let the training queue wait for a mark of the others."""
        self._training.wait_event(mark)

    def save(self, host: Tensor, numbers: Tensor, total: Tensor, after: Mark) -> Mark:
        """Copy to host memory, in a queue beside.

        Args:
            host: Page-locked, of the dtype and length of *numbers*.
            numbers: What is copied.
            total: One float64 in host memory: becomes a sum, not finite where a number is not.
            after: When *numbers* is ready.

        Returns:
            When *host* and *total* are.
        """
        self._outward.wait_event(after)
        with torch.cuda.stream(self._outward):
            host.copy_(numbers, non_blocking=True)
            total.copy_(overflowing_sum(numbers).double(), non_blocking=True)
        return _recorded(self._outward)

    def bring(self, landing: Tensor, host: Tensor, after: Mark) -> Mark:
        """Copy page-locked host memory to *landing* once that is free; when it has arrived."""
        self._inward.wait_event(after)
        with torch.cuda.stream(self._inward):
            landing.copy_(host, non_blocking=True)
        return _recorded(self._inward)

    def run(self, work: Callable[[], None], after: Mark) -> Mark:
        """Do *work* in a queue beside, on a thread that may wait for the device.

        Returns:
            When all of it is done; whoever waits for it is raised what *work* raises.
        """
        if self._waiting is None:
            self._waiting = ThreadPoolExecutor(1, thread_name_prefix="rumor-device")
        return _Task(self._waiting.submit(self._run, work, after))

    def _run(self, work: Callable[[], None], after: Mark) -> None:
        self._outward.wait_event(after)
        with torch.cuda.stream(self._outward):
            work()
        _recorded(self._outward).synchronize()


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
        raise ConfigError(f"device is {name!r}, which is not to be had: {reason}") from None
    return here.device


def queue_of(device: torch.device) -> CudaQueue | None:
    """The queues of a device; None for host memory, where whoever calls does the work.

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


# One on its way while the next is filled; more would cost device memory that a model may need.
_BUFFERS_MAX: Final = 2

# Strangers may offer shares of many sizes; the first that were met are the swarm's own.
_SIZES_MAX: Final = 16


class DeviceSnapshot:
    """A snapshot that may still be on its way to host memory.

    Args:
        finite: Whether all that is in host memory already is finite.
        marks: When the rest has come.
        looks: Say then whether that is finite.
    """

    def __init__(
        self,
        *,
        finite: bool = True,
        marks: Sequence[Mark] = (),
        looks: Sequence[Callable[[], bool]] = (),
    ) -> None:
        self.mark = Marks(marks)
        """When nothing is written to its host memory any more, but by who waits for it."""
        self._looks = tuple(looks)
        self._lock = threading.Lock()
        self._finite = finite
        self._waited = False

    @property
    def is_over(self) -> bool:
        """Whether `wait` returns at once."""
        return self._waited or self.mark.query()

    def wait(self) -> bool:
        """Wait until all is in host memory.

        Returns:
            Whether all of it is finite.
        """
        with self._lock:
            if not self._waited:
                self.mark.synchronize()
                self._finite = self._finite and all(look() for look in self._looks)
                self._waited, self._looks = True, ()
            return self._finite


class DeviceArrival:
    """A part of a share on the device where it is to be mixed, or on its way there.

    Args:
        raw: Its bytes there, uint8.
        mark: When they have arrived, and the host memory that they came from is read.
    """

    def __init__(self, raw: Tensor, mark: Mark = DONE) -> None:
        self.raw = raw
        self.mark = mark
        self.used = mark
        """When the bytes are not needed any more, as far as anybody has begun to use them."""


class DeviceCopies:
    """One device, and the buffers there.

    Args:
        queue: The device's queues.
        size_bytes: What the vector takes there.
    """

    def __init__(self, queue: CudaQueue, size_bytes: int) -> None:
        self.queue = queue
        self._leaving = _Reused(queue)
        self._landing = _Reused(queue)
        self._ahead_bytes_max = _BUFFERS_MAX * size_bytes
        self._ahead_bytes = 0
        self._lock = threading.Lock()

    def depart(
        self, host: Tensor, numbers: Tensor, *, lasting: bool = False
    ) -> tuple[Mark, Callable[[], bool]]:
        """Send numbers to host memory as they are now.

        Args:
            host: Of the same dtype and length.
            numbers: On the device.
            lasting: Whether nothing changes them, so that they need not be copied aside.

        Returns:
            When they are there, and whether all are finite, to be asked then.
        """
        total = torch.empty(1, dtype=torch.float64, pin_memory=numbers.is_cuda, device="cpu")

        def look() -> bool:
            return bool(torch.isfinite(total)) or is_finite_tensor(host)

        if lasting:
            return self.queue.save(host, numbers, total, self.queue.note()), look
        aside = self._copied(numbers)
        mark = self.queue.save(host, aside.view(numbers.dtype), total, self.queue.note())
        self._leaving.take_back(aside, mark)
        return mark, look

    def convert(
        self, host: Tensor, numbers: Tensor, write: Callable[[Tensor, Tensor], bool]
    ) -> tuple[Mark, Callable[[], bool]]:
        """Send numbers to host memory, as they are now, in another format.

        Args:
            host: Where their bytes shall go, uint8.
            numbers: On the device.
            write: Fills a room on the device with numbers, and says whether all are finite; called
                on a thread that may wait for the device.

        Returns:
            As `depart` does.
        """
        aside = self._copied(numbers)
        after = self.queue.note()
        finite: list[bool] = []

        def work() -> None:
            room = torch.empty(host.numel(), dtype=torch.uint8, device=aside.device)
            finite.append(write(room, aside.view(numbers.dtype)))
            # This waits, so that the buffer is read when it is taken back.
            host.copy_(room)
            self._leaving.take_back(aside, after)

        return self.queue.run(work, after), lambda: finite[0]

    def bring(self, host: Tensor) -> DeviceArrival | None:
        """Let bytes begin their way to the device before they are needed; on any thread.

        Args:
            host: uint8; it may change again when the arrival's mark is passed.

        Returns:
            What `landed` takes, and `release` in the end; None where twice the vector is on its
            way already, or has arrived and was not needed yet.
        """
        with self._lock:
            if self._ahead_bytes + host.numel() > self._ahead_bytes_max:
                return None
            self._ahead_bytes += host.numel()
        return self._begin(host)

    def release(self, arrival: DeviceArrival) -> None:
        """Let the memory be used again of what was brought, whether or not it was needed."""
        with self._lock:
            self._ahead_bytes -= arrival.raw.numel()
        self._landing.take_back(arrival.raw, arrival.used)

    @contextmanager
    def landed(self, host: Tensor, ahead: DeviceArrival | None = None) -> Iterator[DeviceArrival]:
        """Bring bytes to the device; the training queue waits for them, the thread does not.

        Args:
            host: uint8; it may change again when the arrival's mark is passed.
            ahead: The same bytes, where they are on their way by now.

        Yields:
            The bytes on the device, until the block ends.
        """
        arrival = ahead or self._begin(host)
        self.queue.hold(arrival.mark)
        try:
            yield arrival
        finally:
            arrival.used = self.queue.note()
            if ahead is None:
                self._landing.take_back(arrival.raw, arrival.used)

    def _begin(self, host: Tensor) -> DeviceArrival:
        landing, free = self._landing.lend(host.numel())
        return DeviceArrival(landing, self.queue.bring(landing, host, free))

    def _copied(self, numbers: Tensor) -> Tensor:
        """Copy numbers aside in the training queue; the bytes, in a buffer of `_leaving`."""
        aside, free = self._leaving.lend(numbers.numel() * numbers.element_size())
        self.queue.hold(free)
        aside.view(numbers.dtype).copy_(numbers)
        return aside


def device_copies(
    sizes: Iterable[tuple[torch.device, int]],
    queues: Callable[[torch.device], CudaQueue | None],
) -> dict[torch.device, DeviceCopies | None]:
    """Queues and buffers of each device, None for host memory.

    Args:
        sizes: Where each tensor of the vector lies, and how many bytes it takes there.
        queues: Opens the queues of a device.

    Raises:
        TrainingError: A device is not known.
    """
    size_bytes: Counter[torch.device] = Counter()
    for device, taken_bytes in sizes:
        size_bytes[device] += taken_bytes
    opened = {device: queues(device) for device in size_bytes}
    return {
        device: None if queue is None else DeviceCopies(queue, size_bytes[device])
        for device, queue in opened.items()
    }


class _Reused:
    """Buffers on a device, each with the mark after which it may be written to."""

    def __init__(self, queue: CudaQueue) -> None:
        self._queue = queue
        self._kept: dict[int, list[tuple[Tensor, Mark]]] = {}
        self._lock = threading.Lock()

    def lend(self, size_bytes: int) -> tuple[Tensor, Mark]:
        with self._lock:
            kept = self._kept.setdefault(size_bytes, [])
            for index, (_, mark) in enumerate(kept):
                if mark.query():
                    return kept.pop(index)
            if len(kept) >= _BUFFERS_MAX:
                return kept.pop(0)
        # Fresh memory may still be read by what was queued before its last owner let go of it.
        return self._queue.buffer(size_bytes), self._queue.note()

    def take_back(self, buffer: Tensor, mark: Mark) -> None:
        with self._lock:
            kept = self._kept.setdefault(buffer.numel(), [])
            kept.append((buffer, mark))
            for size_bytes in list(self._kept)[_SIZES_MAX:]:
                if all(mark.query() for _, mark in self._kept[size_bytes]):
                    del self._kept[size_bytes]
            # Freed while the other queue reads it, its memory would be given to somebody else.
            passed = [index for index, (_, mark) in enumerate(kept) if mark.query()]
            for index in reversed(passed[: max(0, len(kept) - _BUFFERS_MAX)]):
                del kept[index]
