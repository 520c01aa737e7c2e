"""Host memory for shares on their way: made once, used again.

Fresh memory is slow: the system maps and clears each page at its first touch, which costs several
times the copy that follows.
"""

import ctypes
import sys
import weakref
from collections import defaultdict, deque

import torch
from torch import Tensor

__all__ = ["BufferPool", "keep_pages"]


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
