"""How far a snapshot has come, for the thread that sends what is there of it already."""

import threading

__all__ = ["Progress"]


class Progress:
    """Bytes that are written, from the first on. One thread writes, another waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._bytes = 0
        self._over = False

    def reached(self, size_bytes: int) -> None:
        """Note that so many bytes are there, and will not change."""
        with self._changed:
            self._bytes = size_bytes
            self._changed.notify_all()

    def over(self) -> None:
        """Note that no more will be written: all is there, or the rest never will be."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait(self, size_bytes: float) -> None:
        """Return when so many bytes are there, or nothing more will be written."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._bytes >= size_bytes)
