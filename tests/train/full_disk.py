"""A disk that is full, for files of one name."""

import errno
import os
from pathlib import Path

import pytest

__all__ = ["FullDisk"]


class FullDisk:
    """Takes so many bytes more of files whose name is given, and then none.

    Args:
        monkeypatch: Puts all back at the end of the test.
        name: Files that are called so are refused; others are written as ever.
        room_bytes: What the disk still takes of them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, room_bytes: int = 0) -> None:
        self.is_full = True
        self._name = name
        self._room_bytes = room_bytes
        self._write = os.write
        monkeypatch.setattr(os, "write", self._take)

    def _take(self, fd: int, data: bytes) -> int:
        if not self.is_full or Path(os.readlink(f"/proc/self/fd/{fd}")).name != self._name:
            return self._write(fd, data)
        if not self._room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self._write(fd, data[: self._room_bytes])
        self._room_bytes -= taken
        return taken
