"""What a peer may send by its own wish: so many bytes per second, and nothing queued for later."""

from .messages import PeerId

__all__ = ["Pacer"]

Turn = tuple[int, PeerId]
"""Whose frames wait: a shard, and whom it goes to."""


class Pacer:
    """Says when the next bytes may go out, for a rate that holds on average.

    Transfers that were held back go on one after another, in the order in which they first were,
    so that each is done as early as it can be.

    Args:
        bytes_s: Bytes per second; None for as much as there is.
    """

    def __init__(self, bytes_s: float | None) -> None:
        self._bytes_s = bytes_s
        self.free_s = float("-inf")
        """When what was sent so far has gone out at that rate, seconds."""
        self._waiting: dict[Turn, None] = {}

    def is_free(self, now: float) -> bool:
        """Whether something new may be sent: the link is idle, and nothing waits for it."""
        return now >= self.free_s and not self._waiting

    def admits(self, turn: Turn, now: float) -> bool:
        """Whether the next frame of a transfer may be sent; if not, it waits, see `front`."""
        if self._bytes_s is None:
            return True
        self._waiting.setdefault(turn)
        return now >= self.free_s and next(iter(self._waiting)) == turn

    @property
    def due_s(self) -> float:
        """When a transfer that waits may go on, seconds."""
        return self.free_s if self._waiting else float("inf")

    def front(self, now: float) -> Turn | None:
        """Whose turn it is, where one waits and the link is idle."""
        return next(iter(self._waiting), None) if now >= self.free_s else None

    def withdraw(self, turn: Turn) -> None:
        """Note that a transfer has no frame to send now."""
        self._waiting.pop(turn, None)

    def sent(self, size_bytes: int, now: float) -> None:
        """Note that so many bytes go out now."""
        if self._bytes_s is not None:
            self.free_s = max(self.free_s, now) + size_bytes / self._bytes_s
