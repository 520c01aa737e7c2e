"""Memory that other processes of the same user on this machine can read.

A segment is an anonymous file in memory: it is in no folder, so it disappears with the last process
that holds it, however that process ends. Processes that know its name open it through ``/proc``.
"""

import fcntl
import logging
import math
import mmap
import os
import re
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "NAME",
    "TOKEN_BYTES",
    "Attachments",
    "Segments",
    "host_id",
    "sealed_file",
]

_log = logging.getLogger("rumor")

TOKEN_BYTES: Final = 16
"""Length of the secret token at the start of a file in memory, which is part of its name."""

# Before the payload: the token and padding, so that the payload begins at a page.
_HEAD_BYTES: Final = 4096

NAME: Final = re.compile(r"([1-9][0-9]{0,9}):([0-9]{1,9}):([0-9a-f]{32})", re.ASCII)
"""Name of such a file: process, descriptor and token."""


@lru_cache(maxsize=1)
def host_id() -> bytes:
    """Return an id, 16 bytes, that is equal in processes that can open each other's segments; empty
    if the system lacks them or does not allow opening them."""
    segments = Segments()
    try:
        buffer = segments.make(1)
        if Attachments().open(segments.name_of(buffer), 1) is None:
            return b""
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        digest = blake2b(boot, digest_size=16)
        for kind in ("pid", "user", "net"):
            digest.update(os.readlink(f"/proc/self/ns/{kind}").encode())
    except (AttributeError, OSError):
        return b""
    digest.update(str(os.geteuid()).encode())
    return digest.digest()


def sealed_file(length: int, token: bytes) -> int:
    """Make an anonymous file in memory that begins with a token; return its descriptor.

    Raises:
        AttributeError, OSError: The system lacks such files, or memory.
    """
    fd = os.memfd_create("rumor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, length)
        os.pwrite(fd, token, 0)
        # A reader of a file that is truncated would die of SIGBUS.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd


class _PinnedMapping(mmap.mmap):
    """A mapping whose pages are locked, so that a GPU copies directly from and to them."""

    _unpin: Callable[[], object] | None = None

    def pin(self, buffer: Tensor) -> None:
        """Lock the pages of a buffer, a view of this mapping."""
        runtime: Any = torch.cuda.cudart()
        place = buffer.data_ptr()
        if int(runtime.cudaHostRegister(place, buffer.numel(), 0)):
            _log.debug("%d bytes cannot be pinned: copies to the GPU are slower", buffer.numel())
            return
        self._unpin = partial(runtime.cudaHostUnregister, place)

    def __del__(self) -> None:
        # The driver must unlock pages before they are unmapped: a finalizer runs after that. At the
        # end of the process the CUDA context may be gone, and all locks with it.
        if self._unpin is not None and not sys.is_finalizing():
            self._unpin()


class _Held(NamedTuple):
    """A segment of this process while others may open it."""

    fd: int
    token: bytes
    close: "weakref.finalize[..., mmap.mmap]"


class Segments:
    """Buffers of this process in segments, aligned to a page."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def make(self, size_bytes: int, *, pinned: bool = False) -> Tensor:
        """Return a buffer in its own segment, which is freed with its last view; *pinned* locks its
        pages if there is a GPU.

        Raises:
            AttributeError, OSError, ValueError: The system lacks segments, or memory.
        """
        length = -(-(_HEAD_BYTES + size_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        token = os.urandom(TOKEN_BYTES)
        fd = sealed_file(length, token)
        pinned = pinned and torch.cuda.is_available()
        try:
            # Pages are allocated at the first write, like private ones. Allocating them here takes
            # as long, but holds the GIL meanwhile.
            mapping = (_PinnedMapping if pinned else mmap.mmap)(fd, length, mmap.MAP_SHARED)
        except BaseException:
            os.close(fd)
            raise
        buffer = torch.frombuffer(mapping, dtype=torch.uint8, count=size_bytes, offset=_HEAD_BYTES)
        # Views keep the mapping alive; it is unmapped with the last of them.
        close = weakref.finalize(mapping, _close, self._held, buffer.data_ptr(), fd)
        close.atexit = False
        self._held[buffer.data_ptr()] = _Held(fd, token, close)
        if isinstance(mapping, _PinnedMapping):
            mapping.pin(buffer)
        return buffer

    def name_of(self, buffer: Tensor) -> str:
        """Return the name by which another process opens a buffer; empty if it cannot."""
        held = self._held.get(buffer.data_ptr())
        return f"{os.getpid()}:{held.fd}:{held.token.hex()}" if held is not None else ""

    def abandon(self, buffer: Tensor) -> None:
        """Prevent other processes from opening a buffer; some may still be reading it."""
        held = self._held.get(buffer.data_ptr())
        if held is not None:
            held.close()


# Not a method, which would keep the segments alive as long as any mapping.
def _close(held: dict[int, _Held], place: int, fd: int) -> None:
    os.close(fd)
    # Another segment may be at that address by now.
    if place in held and held[place].fd == fd:
        del held[place]


class _Mapped(NamedTuple):
    """A segment of another process."""

    buffer: Tensor
    path: str
    inode: int
    used_s: float
    """Time of the last use, seconds."""

    def is_there(self) -> bool:
        """True if its owner still holds it."""
        try:
            return os.stat(self.path).st_ino == self.inode
        except OSError:
            return False


class Attachments:
    """Segments of other processes, mapped and cached. Any thread may use it."""

    def __init__(self, *, writable: bool = False, pinned: bool = False) -> None:
        self._writable, self._pinned = writable, pinned
        self._kept: dict[str, _Mapped] = {}
        self._lock = threading.Lock()

    def open(self, name: str, size_bytes: int) -> Tensor | None:
        """Return a segment by its name, which is untrusted: uint8, shape ``(size_bytes,)``.

        None if it does not exist, belongs to another user, is smaller, or could be truncated.
        """
        with self._lock:
            mapped = self._kept.get(name)
            if mapped is None or mapped.buffer.numel() < size_bytes:
                mapped = _attach(name, size_bytes, writable=self._writable, pinned=self._pinned)
                if mapped is None:
                    return None
            self._kept[name] = mapped._replace(used_s=time.monotonic())
        return mapped.buffer[:size_bytes]

    def forget_gone(self, idle_s: float = math.inf) -> None:
        """Release segments whose owner has freed them or ended, and those not used for *idle_s*;
        segments in use stay mapped."""
        until_s = time.monotonic() - idle_s
        with self._lock:
            for name, mapped in list(self._kept.items()):
                if mapped.used_s < until_s or not mapped.is_there():
                    del self._kept[name]

    def close(self) -> None:
        """Release all segments; those in use stay mapped."""
        with self._lock:
            self._kept.clear()


def _attach(name: str, size_bytes: int, *, writable: bool, pinned: bool) -> _Mapped | None:
    match, length = NAME.fullmatch(name), _HEAD_BYTES + size_bytes
    if match is None or size_bytes < 1:
        return None
    path, token = f"/proc/{match[1]}/fd/{match[2]}", bytes.fromhex(match[3])
    try:
        found = os.stat(path)
        # Check before opening, because opening a pipe or a device may have side effects.
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        mode = os.O_RDWR if writable else os.O_RDONLY
        opened = os.open(path, mode | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            found = os.fstat(opened)
            # Only files in memory have seals: this raises for any other.
            sealed = fcntl.fcntl(opened, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            if not sealed or found.st_size < length or os.pread(opened, len(token), 0) != token:
                return None
            # Private and writable: torch has no read-only tensors. What this process does not write
            # stays the owner's memory, and follows its changes.
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY
            pinned = pinned and torch.cuda.is_available()
            mapping = (_PinnedMapping if pinned else mmap.mmap)(opened, length, access=access)
        finally:
            os.close(opened)
    except (OSError, ValueError) as error:
        _log.debug("segment %s of another process cannot be read: %s", name, error)
        return None
    buffer = torch.frombuffer(mapping, dtype=torch.uint8, offset=_HEAD_BYTES)
    if isinstance(mapping, _PinnedMapping):
        mapping.pin(buffer)
    return _Mapped(buffer, path, found.st_ino, time.monotonic())
