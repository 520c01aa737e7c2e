"""The C library's allocator, told to keep what it is given back."""

import ctypes
import sys

__all__ = ["keep_pages"]

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
