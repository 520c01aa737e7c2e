"""Host memory for shares on their way: made once, used again, counted, and bounded.

Fresh memory is slow: the system maps and clears each page at its first touch, which costs several
times the copy that follows. So what comes back is kept for the next share, for some seconds.
"""

import ctypes
import math
import sys
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol

import torch
from torch import Tensor

from ...gossip.errors import TrainingError
from ...gossip.wire.formats import Form
from .blocks import copy_finite
from .cuda import DeviceCopies, DeviceSnapshot, Mark
from .layout import Part, Placed

__all__ = [
    "IDLE_S",
    "BufferPool",
    "IdleBuffers",
    "Memory",
    "MemoryUse",
    "SnapshotCopy",
    "Write",
    "give_pages_back",
    "keep_pages",
    "messages_keep_pages",
    "not_finite",
]


Kind = Literal["snapshots", "segments", "staged", "ahead"]

# What shares of small models take is no matter, and to count it would cost more than it saves.
_BOUND_BYTES_MIN: Final = 64 << 20
_BOUNDED_BYTES_MIN: Final = 4 << 20

# So many changes are noted before they are added up.
_CHANGES_MAX: Final = 256

# A model that is pushed more seldom costs a peer the time in which its buffer is made anew.
IDLE_S: Final = 10.0
"""So long memory is kept that nobody uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """What a peer holds beside its model for the exchange, bytes of host memory."""

    model_bytes: int
    """Of the vector itself, of which the others are counted in multiples."""
    snapshots_bytes: int = 0
    """Shares that leave, in frames."""
    segments_bytes: int = 0
    """Shares that leave, where neighbors on this machine can read them."""
    staged_bytes: int = 0
    """Shares that come, until they are mixed."""
    idle_bytes: int = 0
    """Buffers kept for the next share; after seconds without use they are freed."""
    attached_bytes: int = 0
    """Segments of neighbors on this machine that are mapped here; they count there, not here."""

    @property
    def total_bytes(self) -> int:
        """All of it that counts here."""
        return self.snapshots_bytes + self.segments_bytes + self.staged_bytes + self.idle_bytes

    @property
    def models(self) -> float:
        """The same, in models."""
        return self.total_bytes / self.model_bytes if self.model_bytes else 0.0


class _Mapped(Protocol):
    """What is asked of whoever maps memory of others."""

    @property
    def size_bytes(self) -> int:
        """How much."""


class Memory:
    """Counts what one peer holds for the exchange, and says whether there is room for more.

    Snapshots, segments, staged shares and idle buffers have one bound together. Idle buffers are
    freed before it is passed. What is in use is not stopped here: whoever decides asks
    `lacks_room` first.

    Any thread may use it; buffers come back when something is collected, at any moment, so that
    counting takes no lock.

    Args:
        model_bytes: Of the vector.
        models_max: The bound, in models, but at least 64 MiB; models of less than 4 MiB have none.
    """

    def __init__(self, model_bytes: int, models_max: float = math.inf) -> None:
        self.model_bytes = model_bytes
        self.bound_bytes = math.inf
        """The bound, in bytes; infinity for none."""
        if models_max < math.inf and model_bytes >= _BOUNDED_BYTES_MIN:
            self.bound_bytes = max(models_max * model_bytes, float(_BOUND_BYTES_MIN))
        self._changes: deque[tuple[Kind, int]] = deque()
        # What is made ahead is for whoever comes next, as what is idle.
        self._used: dict[Kind, int] = {"snapshots": 0, "segments": 0, "staged": 0, "ahead": 0}
        self._lock = threading.Lock()
        # Weakly: each of them keeps this.
        self._pools: weakref.WeakSet[BufferPool] = weakref.WeakSet()
        self._mapped: weakref.WeakSet[_Mapped] = weakref.WeakSet()

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound."""
        return self.bound_bytes < math.inf

    def add(self, pool: "BufferPool") -> None:
        """Take the idle buffers of a pool into account, for as long as there is one."""
        self._pools.add(pool)

    def add_mapped(self, mapped: _Mapped) -> None:
        """Tell, too, what is mapped of others, for as long as there is any."""
        self._mapped.add(mapped)

    def take(self, kind: Kind, size_bytes: int) -> None:
        """Count memory that is in use from now on."""
        self._changes.append((kind, size_bytes))
        # Nobody else may ever ask. Finalizers, which must not wait for the lock, only give back.
        if len(self._changes) > _CHANGES_MAX:
            self._counted()

    def give_back(self, kind: Kind, size_bytes: int) -> None:
        """Count it no more."""
        self._changes.append((kind, -size_bytes))

    def lacks_room(self, size_bytes: int, promised_bytes: int = 0) -> bool:
        """Whether so much more would pass the bound, idle buffers not counted.

        Where nothing is in use, anything has room: a share that is larger than all that is allowed
        must come and go, too.

        Args:
            size_bytes: How much.
            promised_bytes: What will be in use without another question.
        """
        counted = self._counted()
        used = sum(counted.values()) - counted["ahead"] + promised_bytes
        return used > 0 and used + size_bytes > self.bound_bytes

    def is_filled_by(self, size_bytes: int) -> bool:
        """Whether so much more would pass the bound, idle buffers counted."""
        return self.use().total_bytes + size_bytes > self.bound_bytes

    def make_room(self) -> None:
        """Free idle buffers, as many as must go for what was taken."""
        if not self.is_bounded:
            return
        spare = self.bound_bytes - sum(self._counted().values())
        pools = list(self._pools)
        for pool in pools:
            surplus = sum(each.idle.size_bytes for each in pools) - spare
            if surplus > 0:
                pool.idle.free(surplus)

    def free_idle(self, idle_s: float = IDLE_S) -> None:
        """Free buffers that nobody has used for so many seconds, and their pages."""
        freed = any([pool.idle.free_older(idle_s) for pool in list(self._pools)])
        if freed and self.is_bounded:
            give_pages_back()

    def use(self) -> MemoryUse:
        """What is held now; a buffer that just comes or goes may be counted twice."""
        counted = self._counted()
        return MemoryUse(
            model_bytes=self.model_bytes,
            snapshots_bytes=counted["snapshots"],
            segments_bytes=counted["segments"],
            staged_bytes=counted["staged"],
            idle_bytes=counted["ahead"] + sum(each.idle.size_bytes for each in list(self._pools)),
            attached_bytes=sum(each.size_bytes for each in list(self._mapped)),
        )

    def _counted(self) -> dict[Kind, int]:
        with self._lock:
            while self._changes:
                kind, change = self._changes.popleft()
                self._used[kind] += change
            return dict(self._used)


class IdleBuffers:
    """Buffers that are kept for the next time. Any thread may use it, at any moment: no lock.

    Args:
        kept_max: Of one size; of more than that, the oldest are freed.
    """

    def __init__(self, kept_max: int) -> None:
        # A bounded deque is safe between threads, and lets go of the oldest by itself.
        self._kept: dict[int, deque[tuple[float, Tensor]]] = defaultdict(
            lambda: deque(maxlen=kept_max)
        )

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(size * len(kept) for size, kept in list(self._kept.items()))

    def take(self, size_bytes: int) -> Tensor | None:
        """One of that size, the one that came last; None where there is none."""
        try:
            return self._kept[size_bytes].pop()[1]
        except IndexError:
            return None

    def put(self, buffer: Tensor) -> None:
        """Keep one."""
        self._kept[buffer.numel()].append((time.monotonic(), buffer))

    def free(self, size_bytes: float = math.inf) -> None:
        """Free the oldest, until so much is free or none is left."""
        for _, size in sorted(self._ages()):
            if size_bytes <= 0:
                return
            if self._free_oldest(size):
                size_bytes -= size

    def free_older(self, idle_s: float) -> bool:
        """Free those that were put here so many seconds ago; whether there were any."""
        until_s = time.monotonic() - idle_s
        freed = [self._free_oldest(size) for since_s, size in self._ages() if since_s < until_s]
        # Strangers may offer shares of many sizes. A buffer that comes back just then is freed.
        for size, kept in list(self._kept.items()):
            if not kept:
                self._kept.pop(size, None)
        return any(freed)

    def _ages(self) -> Iterable[tuple[float, int]]:
        """Since when each is kept, and its size."""
        sizes = list(self._kept.items())
        return [(since_s, size) for size, kept in sizes for since_s, _ in kept.copy()]

    def _free_oldest(self, size_bytes: int) -> bool:
        try:
            self._kept[size_bytes].popleft()
        except IndexError:
            return False
        return True


_PIECE_BYTES: Final = 8 << 20


class BufferPool:
    """Lends buffers of bytes; what comes back is lent again. Any thread may use it.

    Args:
        pinned: Whether a GPU will copy from or to them, which wants page-locked memory.
        kept_max: Buffers of one size kept for later; more than that are freed.
        memory: Where they are counted; None for nowhere.
        kind: As what.
    """

    def __init__(
        self,
        *,
        pinned: bool,
        kept_max: int = 8,
        memory: Memory | None = None,
        kind: Kind = "staged",
    ) -> None:
        self._pinned = pinned
        self._memory = Memory(0) if memory is None else memory
        self._memory.add(self)
        self._kind: Kind = kind
        # No lock: buffers come back when something is collected, on any thread, at any moment.
        self.idle = IdleBuffers(kept_max)
        """What was taken back."""
        self._closed = False

    def lend(self, size_bytes: int) -> Tensor:
        """A buffer whose content is of no meaning; uint8, shape ``(size_bytes,)``."""
        # Counted first, and taken back first: counted twice for a moment, and never too little.
        self._memory.take(self._kind, size_bytes)
        buffer = self.idle.take(size_bytes)
        if buffer is None:
            self._memory.make_room()
            buffer = self._make(size_bytes)
        return buffer

    def make_ahead(self, size_bytes: int) -> bool:
        """Make a buffer for later, and have the system make its pages, so that whoever lends it
        need not wait.

        Args:
            size_bytes: How large.

        Returns:
            Whether it is there; it is not where the bound of memory is, or would be, passed.
        """
        memory = self._memory
        if memory.is_filled_by(size_bytes):
            return False
        memory.take("ahead", size_bytes)
        try:
            buffer = self._make(size_bytes)
            for piece in buffer.split(_PIECE_BYTES):
                # Others may need it meanwhile.
                if memory.is_filled_by(0):
                    return False
                piece.zero_()
            if self._closed:
                return False
            self.idle.put(buffer)
            return True
        finally:
            memory.give_back("ahead", size_bytes)

    def take_back(self, buffer: Tensor) -> None:
        """Keep a buffer that nobody reads or writes any more."""
        if not self._closed:
            self.idle.put(buffer)
        self._memory.give_back(self._kind, buffer.numel())

    def frames(self, buffer: Tensor) -> memoryview:
        """View a lent buffer as bytes to send, not copied; parts of the view are views too.

        The buffer comes back by itself when the last of them is gone: only the socket knows when
        a frame has left, and it says so by letting go of it.
        """
        array = buffer.numpy()
        weakref.finalize(array, self.take_back, buffer).atexit = False
        return array.data

    def close(self) -> None:
        """Free what is kept; what is lent is freed when it comes back."""
        self._closed = True
        self.idle.free()

    def _make(self, size_bytes: int) -> Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=self._pinned, device="cpu")


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 1 << 30
_messages_keep_pages = threading.Event()


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
    libc = _libc()
    try:
        mallopt = None if libc is None else libc.mallopt
    except AttributeError:
        mallopt = None
    if mallopt is None:
        return False
    kept = all(mallopt(which, _KEPT_BYTES) for which in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))
    if kept and messages and mallopt(_M_ARENA_MAX, 1):
        _messages_keep_pages.set()
    return kept


def messages_keep_pages() -> bool:
    """Whether `keep_pages` was asked for messages: what is received then lies in pages that are
    used again, and costs no more than a copy of it would."""
    return _messages_keep_pages.is_set()


def give_pages_back() -> bool:
    """Return to the system what lies free in this process now; what is freed later is kept again.

    Returns:
        Whether there was anything; elsewhere than on glibc nothing happens.
    """
    libc = _libc()
    try:
        return libc is not None and bool(libc.malloc_trim(0))
    except AttributeError:
        return False


def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None)
    except OSError:
        return None


Write = Callable[[Part, Tensor, Tensor], bool]
"""Fills a room with the numbers of a part that do not travel as they are."""


class SnapshotCopy:
    """Fills one host buffer.

    Args:
        host: The buffer, uint8.
        copies_of: For a device: its buffers and queues, None for host memory.
        written: Told how many bytes of the buffer are there by now, from its start.
    """

    def __init__(
        self,
        host: Tensor,
        copies_of: Callable[[torch.device], DeviceCopies | None],
        written: Callable[[int], None] | None = None,
    ) -> None:
        self._written = written
        self._host = host
        self._copies_of = copies_of
        self._finite, self._in_order = True, True
        self._marks: list[Mark] = []
        self._looks: list[Callable[[], bool]] = []

    def add(self, parts: Sequence[Part], flats: Sequence[Tensor], write: Write | None) -> None:
        """Put numbers where they belong.

        Args:
            parts: Which, and where.
            flats: Where they are taken from.
            write: For those that do not travel as they are; None where nothing changes *flats*.
        """
        for part in parts:
            room, numbers = part.room(self._host), part.of(flats)
            copies = self._copies_of(numbers.device)
            if copies is None and part.wire is None:
                # Nothing is told of what follows numbers that come from a device, or are
                # converted, or are not finite.
                tell = self._written if self._in_order and self._finite else None
                copied = None if tell is None else partial(_from, part.start_bytes, tell)
                self._finite &= copy_finite(room.view(part.dtype), numbers, copied)
                continue
            self._in_order = False
            if copies is not None:
                self._add_from_device(copies, part, numbers, write)
            elif write is not None:
                self._finite &= write(part, room, numbers)

    def add_local(self, room_bytes: tuple[int, int], local: Sequence[Placed]) -> None:
        """Put local buffers where they belong.

        Args:
            room_bytes: Where in the host buffer.
            local: Which; the first of them lies where the room begins.
        """
        start, stop = room_bytes
        # What lies in the gaps between them is nobody's business.
        self._host[start:stop].zero_()
        for placed in local:
            offset = start + placed.offset_bytes - local[0].offset_bytes
            placed.room(self._host, offset).copy_(placed.tensor, non_blocking=True)
            copies = self._copies_of(placed.tensor.device)
            if copies is not None:
                self._marks.append(copies.queue.note())

    def taken(self, form: Form) -> DeviceSnapshot:
        """What has been put there so far.

        Raises:
            TrainingError: Something is not finite, as far as is known.
        """
        if not self._finite and not self._marks and not self._looks:
            raise not_finite(form)
        return DeviceSnapshot(finite=self._finite, marks=self._marks, looks=self._looks)

    def _add_from_device(
        self, copies: DeviceCopies, part: Part, numbers: Tensor, write: Write | None
    ) -> None:
        room = part.room(self._host)
        if part.wire is not None and write is not None:
            mark, look = copies.convert(room, numbers, partial(write, part))
        else:
            lasting = write is None and part.lines is None
            mark, look = copies.depart(room.view(part.dtype), numbers, lasting=lasting)
        self._marks.append(mark)
        self._looks.append(look)


def _from(start_bytes: int, tell: Callable[[int], None], size_bytes: int) -> None:
    tell(start_bytes + size_bytes)


def not_finite(form: Form) -> TrainingError:
    """What to say of a model whose values must not reach another peer."""
    beyond = "" if form.wire == Form().wire else f", or too far from the anchor for {form.wire}"
    return TrainingError(f"a parameter is not finite{beyond}, so nothing is shared: lower the lr")
