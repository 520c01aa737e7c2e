"""Host memory for shares on their way: lent, counted, bounded, and used again.

Fresh memory is slow: the system maps and clears each page at its first touch, which costs several
times the copy that follows. So what comes back is kept for the next share, for some seconds.
"""

import ctypes
import logging
import math
import sys
import threading
import time
import weakref
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor

from .shared_memory import Segments

__all__ = ["IDLE_S", "Kind", "Memory", "MemoryUse", "give_pages_back", "keep_pages"]

_log = logging.getLogger("rumor")

Kind = Literal["snapshots", "segments", "staged"]
"""What memory is lent for: shares that leave, those that neighbors on this machine read where they
lie, and shares that come."""

# What shares of small models take is no matter.
_BOUND_BYTES_MIN: Final = 64 << 20
_BOUNDED_BYTES_MIN: Final = 4 << 20

# A model that is pushed more seldom costs a peer the time in which its buffer is made anew.
IDLE_S: Final = 10.0
"""So long memory is kept that is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Host memory that a peer holds for the exchange, next to its model, bytes."""

    model_bytes: int
    """Size of the vector itself, the unit of `models`."""
    snapshots_bytes: int = 0
    """Shares that leave, in frames."""
    segments_bytes: int = 0
    """Shares that leave, where neighbors on this machine can read them."""
    staged_bytes: int = 0
    """Shares that come, until they are mixed."""
    idle_bytes: int = 0
    """Buffers kept for the next share; after seconds without use they are freed."""

    @property
    def total_bytes(self) -> int:
        """Sum of all but the model."""
        return self.snapshots_bytes + self.segments_bytes + self.staged_bytes + self.idle_bytes

    @property
    def models(self) -> float:
        """The sum in units of the model."""
        return self.total_bytes / self.model_bytes if self.model_bytes else 0.0


class _Idle(NamedTuple):
    since_s: float
    is_segment: bool
    buffer: Tensor


class Memory:
    """Lends what one peer needs for the exchange, and says whether there is room for more.

    Buffers in use and idle ones share one bound. Idle buffers are freed before it is passed;
    lending never fails, so the caller asks `lacks_room` first. Any thread may use it.

    Args:
        model_bytes: Of the vector.
        models_max: The bound, in models, but at least 64 MiB; models of less than 4 MiB have none.
        pinned: Whether a GPU will copy from or to buffers, which wants page-locked memory.
    """

    def __init__(
        self, model_bytes: int, models_max: float = math.inf, *, pinned: bool = False
    ) -> None:
        self.bound_bytes = math.inf
        """The bound, in bytes; infinity for none."""
        if models_max < math.inf and model_bytes >= _BOUNDED_BYTES_MIN:
            self.bound_bytes = max(models_max * model_bytes, float(_BOUND_BYTES_MIN))
        self.segments = Segments()
        """Those buffers that other processes can read."""
        self._model_bytes = model_bytes
        self._pinned = pinned
        self._used: Counter[Kind] = Counter()
        self._idle: list[_Idle] = []
        # Buffers come back when something is collected, on any thread, at any moment, also within
        # the lock: finalizers only append to this.
        self._returned: deque[tuple[Kind, Tensor]] = deque()
        self._lock = threading.Lock()

    @property
    def is_bounded(self) -> bool:
        """True if there is a bound."""
        return self.bound_bytes < math.inf

    def lend(self, size_bytes: int, kind: Kind) -> Tensor:
        """A buffer whose content is of no meaning; uint8, shape ``(size_bytes,)``.

        It comes back by itself when the last view of it is gone: only a socket knows when a frame
        has left, and it says so by letting go of it.
        """
        with self._lock:
            self._take_back()
            self._used[kind] += size_bytes
            buffer = self._found_idle(size_bytes, is_segment=kind == "segments")
            spare = self.bound_bytes - self._used.total()
            while self._idle and sum(idle.buffer.numel() for idle in self._idle) > spare:
                del self._idle[0]
        if buffer is None:
            buffer = self._make(size_bytes, is_segment=kind == "segments")
        array = buffer.numpy()
        weakref.finalize(array, self._returned.append, (kind, buffer)).atexit = False
        return torch.from_numpy(array)

    def lacks_room(self, size_bytes: int, promised_bytes: int = 0) -> bool:
        """True if so much more would pass the bound, idle buffers not counted, but what will be in
        use without another question.

        Where nothing is in use, anything has room: a share that is larger than all that is allowed
        must come and go, too.
        """
        with self._lock:
            self._take_back()
            used = self._used.total() + promised_bytes
        return used > 0 and used + size_bytes > self.bound_bytes

    def free_idle(self, idle_s: float = IDLE_S) -> None:
        """Free buffers that were not used for so many seconds, and their pages."""
        until_s = time.monotonic() - idle_s
        with self._lock:
            self._take_back()
            n_idle = len(self._idle)
            self._idle = [idle for idle in self._idle if idle.since_s > until_s]
            freed = len(self._idle) < n_idle
        if freed and self.is_bounded:
            give_pages_back()

    def use(self) -> MemoryUse:
        """Memory that is held now."""
        with self._lock:
            self._take_back()
            return MemoryUse(
                model_bytes=self._model_bytes,
                snapshots_bytes=self._used["snapshots"],
                segments_bytes=self._used["segments"],
                staged_bytes=self._used["staged"],
                idle_bytes=sum(idle.buffer.numel() for idle in self._idle),
            )

    def _take_back(self) -> None:
        while self._returned:
            kind, buffer = self._returned.popleft()
            self._used[kind] -= buffer.numel()
            is_segment = kind == "segments"
            # One that was abandoned is never lent again.
            if not is_segment or self.segments.name_of(buffer):
                self._idle.append(_Idle(time.monotonic(), is_segment, buffer))

    def _found_idle(self, size_bytes: int, *, is_segment: bool) -> Tensor | None:
        """The idle buffer of that size that came back last."""
        for index in reversed(range(len(self._idle))):
            idle = self._idle[index]
            if idle.buffer.numel() == size_bytes and idle.is_segment is is_segment:
                del self._idle[index]
                return idle.buffer
        return None

    def _make(self, size_bytes: int, *, is_segment: bool) -> Tensor:
        if is_segment:
            try:
                return self.segments.make(size_bytes, pinned=self._pinned)
            except (AttributeError, OSError, ValueError) as error:
                _log.debug("no segment of %d bytes: %s", size_bytes, error)
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=self._pinned, device="cpu")


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 1 << 30


def keep_pages(*, messages: bool = False) -> bool:
    """Let blocks of up to a gibibyte be used again by this process, instead of being returned.

    Stacks of vectors are made and dropped thousands of times a minute, and so are messages of
    ZeroMQ. glibc hands blocks of their size back to the system and faults every page in anew: a
    tenth of a simulation's time, and a third of what receiving costs a peer. It concerns the whole
    process, so that only a program may ask for it, and no library. A peer that has freed a buffer
    then returns what lies free, see `give_pages_back`.

    Args:
        messages: Whether to keep those of other threads' blocks, too, such as what ZeroMQ receives:
            an arena of a thread's own is returned whatever is kept, so that all use the main one.
            For processes in which other threads allocate little. Call it before they are started.

    Returns:
        Whether it could be asked for; elsewhere than on glibc nothing changes.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is None:
        return False
    if messages:
        mallopt(_M_ARENA_MAX, 1)
    return all(mallopt(which, _KEPT_BYTES) for which in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


def give_pages_back() -> bool:
    """Return to the system what lies free in this process now; what is freed later is kept again.

    Returns:
        Whether there was anything; elsewhere than on glibc nothing happens.
    """
    malloc_trim = _of_glibc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(0))


def _of_glibc(name: str) -> Any:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
