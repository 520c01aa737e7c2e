"""What a peer may send by its own wish: so many bytes per second, and nothing queued for later."""

from .messages import PeerId

__all__ = ["Pacer", "Turn"]

Turn = tuple[int, PeerId]
"""A transfer: of which shard, and to whom."""


class Pacer:
    """Says when the next bytes may go out, for a rate that holds on average.

    One transfer at a time has the link, from its offer to its end, so that each is done as early as
    it can be; the others wait, and are not even offered, since a share that was offered and does
    not come would be given up by its receiver.

    Args:
        bytes_s: Bytes per second; None for as much as there is.
    """

    def __init__(self, bytes_s: float | None) -> None:
        self._bytes_s = bytes_s
        self._free_s = float("-inf")
        self._holder: Turn | None = None
        self._paused = False
        self._waiting: dict[Turn, None] = {}

    def is_free(self, now: float) -> bool:
        """Whether something new may be pushed: nothing has the link, and it is idle."""
        return self._holder is None and not self._waiting and now >= self._free_s

    def acquire(self, turn: Turn) -> bool:
        """Let a transfer have the link, if no other has it; if not, it waits, see `front`."""
        if self._bytes_s is None:
            return True
        if self._holder is None and next(iter(self._waiting), turn) == turn:
            self._waiting.pop(turn, None)
            self._holder, self._paused = turn, False
        if self._holder == turn:
            return True
        self._waiting.setdefault(turn)
        return False

    def may_send(self, now: float) -> bool:
        """Whether the next frame of the transfer that has the link may go out now."""
        if self._bytes_s is None:
            return True
        self._paused = now < self._free_s
        return not self._paused

    def release(self, turn: Turn) -> None:
        """Note that a transfer has no more to send."""
        self._waiting.pop(turn, None)
        if self._holder == turn:
            self._holder, self._paused = None, False

    def sent(self, size_bytes: int, now: float) -> None:
        """Note that so many bytes go out now."""
        if self._bytes_s is not None:
            self._free_s = max(self._free_s, now) + size_bytes / self._bytes_s

    @property
    def due_s(self) -> float:
        """When a transfer may go on that only bandwidth holds up, seconds."""
        held_up = self._paused or (self._holder is None and self._waiting)
        return self._free_s if held_up else float("inf")

    def front(self, now: float) -> Turn | None:
        """The transfer that may go on now, where only bandwidth held it up."""
        if now < self._free_s:
            return None
        if self._holder is not None:
            return self._holder if self._paused else None
        return next(iter(self._waiting), None)
