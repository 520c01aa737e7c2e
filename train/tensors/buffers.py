"""Pool of host memory for shares in flight: counted, bounded and reused.

New memory is slow, as the system maps and clears each page at its first use, which costs several
times the copy that follows. So returned buffers are kept for the next share for some seconds.
"""

import ctypes
import logging
import math
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from ...gossip.wire.schema import ALIGNMENT_BYTES
from .shared_memory import Segments

__all__ = [
    "IDLE_S",
    "Frames",
    "Memory",
    "Payload",
    "give_pages_back",
    "keep_pages",
]

_log = logging.getLogger("rumor")

# The memory of small models' shares does not matter.
_BOUND_BYTES_MIN: Final = 64 << 20
_BOUNDED_BYTES_MIN: Final = 4 << 20

# A model that is pushed less often costs a peer the time to allocate its buffer again.
IDLE_S: Final = 10.0
"""Time for which unused memory is kept, seconds."""


class _Idle(NamedTuple):
    since_s: float
    is_segment: bool
    buffer: Tensor


class Memory:
    """Lends one peer the buffers for its exchange, within a bound. Any thread may use it.

    Idle buffers are freed before the bound is exceeded; lending never fails, so the caller checks
    `lacks_room` first.

    Args:
        model_bytes: Size of the vector.
        models_max: The bound, in models, but at least 64 MiB; models of less than 4 MiB have none.
        pinned: Whether a GPU will copy from or to buffers, which needs page-locked memory.
        shared: Whether other processes will use all buffers, which then are segments.
    """

    def __init__(
        self,
        model_bytes: int,
        models_max: float = math.inf,
        *,
        pinned: bool = False,
        shared: bool = False,
    ) -> None:
        self.bound_bytes = math.inf
        """The bound, in bytes; infinity for none."""
        if models_max < math.inf and model_bytes >= _BOUNDED_BYTES_MIN:
            self.bound_bytes = max(models_max * model_bytes, float(_BOUND_BYTES_MIN))
        self.holds_messages = _messages_keep_pages.is_set() and not (pinned or shared)
        """True if shares are to stay in their messages, whose pages are used again: no GPU needs
        page-locked memory, and no other process the shares."""
        self.segments = Segments()
        """Buffers that other processes can read."""
        self._pinned, self._is_shared = pinned, shared
        self._used_bytes = 0
        self._idle: list[_Idle] = []
        # Garbage collection returns memory on any thread at any moment, even while the lock is
        # held: finalizers only append to this.
        self._returned: deque[tuple[bool, Tensor | int]] = deque()
        self._lock = threading.Lock()

    @property
    def is_bounded(self) -> bool:
        """True if there is a bound."""
        return self.bound_bytes < math.inf

    def lend(self, size_bytes: int, *, is_segment: bool = False) -> Tensor:
        """Lend a buffer with undefined content, uint8, shape ``(size_bytes,)``, which returns with
        its last view; neighbors on this machine can read one in a segment."""
        is_segment, buffer = is_segment or self._is_shared, None
        with self._lock:
            self._take_back()
            for index in reversed(range(len(self._idle))):
                idle = self._idle[index]
                if idle.buffer.numel() == size_bytes and idle.is_segment is is_segment:
                    buffer = self._idle.pop(index).buffer
                    break
            self._count(size_bytes)
        if buffer is None:
            buffer = self._make(size_bytes, is_segment=is_segment)
        # Only a socket knows when it has sent a frame, and then drops its view.
        array = buffer.numpy()
        weakref.finalize(array, self._returned.append, (is_segment, buffer)).atexit = False
        return torch.from_numpy(array)

    def hold(self, size_bytes: int) -> "Frames":
        """Count a share that stays in the messages that bring it, see `Frames`."""
        frames = Frames(size_bytes)
        with self._lock:
            self._take_back()
            self._count(size_bytes)
        weakref.finalize(frames, self._returned.append, (False, size_bytes)).atexit = False
        return frames

    def lacks_room(self, size_bytes: int, promised_bytes: int = 0) -> bool:
        """True if *size_bytes* more than those in use, and *promised_bytes*, which will be used
        without another check, would exceed the bound."""
        with self._lock:
            self._take_back()
            used = self._used_bytes + promised_bytes
        # A share larger than the bound must be exchanged too.
        return used > 0 and used + size_bytes > self.bound_bytes

    def free_idle(self, idle_s: float = IDLE_S) -> None:
        """Free buffers that were not used for *idle_s* seconds, and return their pages."""
        until_s = time.monotonic() - idle_s
        with self._lock:
            self._take_back()
            n_idle = len(self._idle)
            self._idle = [idle for idle in self._idle if idle.since_s > until_s]
            freed = len(self._idle) < n_idle
        if freed and self.is_bounded:
            give_pages_back()

    @property
    def used_bytes(self) -> int:
        """Size of all buffers that are lent, and of shares in messages."""
        with self._lock:
            self._take_back()
            return self._used_bytes

    @property
    def idle_bytes(self) -> int:
        """Size of the buffers kept for the next share."""
        with self._lock:
            self._take_back()
            return self._idle_bytes()

    def _idle_bytes(self) -> int:
        return sum(idle.buffer.numel() for idle in self._idle)

    def _count(self, size_bytes: int) -> None:
        self._used_bytes += size_bytes
        while self._idle and self._used_bytes + self._idle_bytes() > self.bound_bytes:
            del self._idle[0]

    def _take_back(self) -> None:
        while self._returned:
            is_segment, returned = self._returned.popleft()
            if isinstance(returned, int):
                self._used_bytes -= returned
                continue
            self._used_bytes -= returned.numel()
            # An abandoned segment is never lent again.
            if not is_segment or self.segments.name_of(returned):
                self._idle.append(_Idle(time.monotonic(), is_segment, returned))

    def _make(self, size_bytes: int, *, is_segment: bool) -> Tensor:
        if is_segment:
            try:
                return self.segments.make(size_bytes, pinned=self._pinned or self._is_shared)
            except (AttributeError, OSError, ValueError) as error:
                _log.debug("no segment of %d bytes: %s", size_bytes, error)
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=self._pinned, device="cpu")


# No dtype that peers exchange is longer.
_ITEM_BYTES_MAX: Final = 8


class Frames:
    """A share that stays in the messages of ZeroMQ that brought it, and is mixed from there.

    The network thread adds frames; once all are there, any thread may read. A message lives as long
    as this, or a view of it.
    """

    # That saves the receiver one of two copies of each byte: ZeroMQ copies from the socket to the
    # message in any case, and a frame of 4 MiB has left the cache when it is mixed. Measured over
    # loopback at 44 MB, an exchange without this (and with another pass for the checksum) took 14 %
    # longer.
    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._frames: dict[int, Tensor] = {}

    def numel(self) -> int:
        """Return the size of the share in bytes, as a tensor of them would."""
        return self._size_bytes

    def add(self, start_bytes: int, raw: Tensor) -> None:
        """Keep a frame, which begins at *start_bytes* of the share; uint8."""
        # A short message lies in a buffer with others, at any address.
        self._frames[start_bytes] = raw.clone() if raw.data_ptr() % _ITEM_BYTES_MAX else raw

    def __getitem__(self, slot: slice) -> Tensor:
        """Return the bytes of a slot: a view if they are in one frame, else a copy."""
        found = self.pieces(slot)
        if len(found) == 1:
            return found[0]
        return torch.cat(found) if found else torch.empty(0, dtype=torch.uint8, device="cpu")

    def pieces(self, slot: slice) -> list[Tensor]:
        """Return the bytes of a slot frame by frame, as views."""
        found = []
        for first, raw in sorted(self._frames.items()):
            low, high = max(slot.start - first, 0), slot.stop - first
            if low < min(high, raw.numel()):
                found.append(raw[low:high])
        # A sender chooses the length of frames, and could cut numbers apart.
        is_apart = any(raw.numel() % ALIGNMENT_BYTES for raw in found[:-1])
        return [torch.cat(found)] if is_apart else found


Payload = Tensor | Frames
"""Bytes of a share: uint8, shape ``(size_bytes,)``."""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 1 << 30
_messages_keep_pages = threading.Event()


def keep_pages(*, messages: bool = False) -> bool:
    """Let this process reuse blocks of up to a gibibyte instead of returning them to the system.

    The setting affects the whole process, so only a program may call this, not a library; without
    glibc nothing changes.

    Args:
        messages: Whether to keep other threads' blocks too, such as those ZeroMQ receives: an arena
            of a thread is always returned, so all threads then use the main one. For processes in
            which other threads allocate little. Call it before they start. Shares are then mixed
            from their messages; in fresh pages, these would cost more than the copy they save.

    Returns:
        True if the setting took effect.
    """
    # Stacks of vectors and messages of ZeroMQ are allocated and freed thousands of times a minute.
    # glibc returns blocks of their size to the system and faults in every page again: a tenth of a
    # simulation's time, and a third of the cost of receiving.
    mallopt = _of_glibc("mallopt")
    if mallopt is None:
        return False
    kept = all(mallopt(which, _KEPT_BYTES) for which in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))
    if kept and messages and mallopt(_M_ARENA_MAX, 1):
        _messages_keep_pages.set()
    return kept


def give_pages_back() -> bool:
    """Return this process's free memory to the system; True if there was any, and glibc."""
    malloc_trim = _of_glibc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(0))


def _of_glibc(name: str) -> Any:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
