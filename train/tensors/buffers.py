"""Host memory for shares on their way: made once, used again.

Fresh memory is slow: the system maps and clears each page at its first touch, which costs several
times the copy that follows.
"""

import ctypes
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ...gossip.errors import TrainingError
from ...gossip.wire.formats import Form
from .blocks import copy_finite
from .cuda import DeviceCopies, DeviceSnapshot, Mark
from .layout import Part, Placed

__all__ = ["BufferPool", "SnapshotCopy", "Write", "keep_pages", "not_finite"]


_SIZES_MAX = 16


class BufferPool:
    """Lends buffers of bytes; what comes back is lent again. Any thread may use it.

    Args:
        pinned: Whether a GPU will copy from or to them, which wants page-locked memory.
        kept_max: Buffers of one size kept for later; more than that are freed.
    """

    def __init__(self, *, pinned: bool, kept_max: int = 8) -> None:
        self._pinned = pinned
        # A bounded deque is safe between threads, and lets go of the oldest by itself.
        self._kept: dict[int, deque[Tensor]] = defaultdict(lambda: deque(maxlen=kept_max))

    def lend(self, size_bytes: int) -> Tensor:
        """A buffer whose content is of no meaning; uint8, shape ``(size_bytes,)``."""
        try:
            return self._kept[size_bytes].pop()
        except IndexError:
            return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=self._pinned)

    def take_back(self, buffer: Tensor) -> None:
        """Keep a buffer that nobody reads or writes any more."""
        self._kept[buffer.numel()].append(buffer)
        # Strangers may offer shares of many sizes; the first that were met are the swarm's own.
        for size_bytes in list(self._kept)[_SIZES_MAX:]:
            self._kept.pop(size_bytes, None)

    def frames(self, buffer: Tensor) -> memoryview:
        """View a lent buffer as bytes to send, not copied; parts of the view are views too.

        The buffer comes back by itself when the last of them is gone: only the socket knows when
        a frame has left, and it says so by letting go of it.
        """
        array = buffer.numpy()
        weakref.finalize(array, self.take_back, buffer).atexit = False
        return array.data


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30


def keep_pages() -> bool:
    """Let blocks of up to a gibibyte be used again by this process, instead of being returned.

    Stacks of vectors are made and dropped thousands of times a minute, and so are messages of
    ZeroMQ. glibc hands blocks of their size back to the system and faults every page in anew: a
    tenth of a simulation's time, and a third of what receiving costs a peer. It concerns the whole
    process, so that only a program may ask for it, and no library.

    Returns:
        Whether it could be asked for; elsewhere than on glibc nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(mallopt(which, _KEPT_BYTES) for which in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


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
                self._marks.append(copies.note())

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
            self._looks.append(copies.convert(room, numbers, partial(write, part)))
            return
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
