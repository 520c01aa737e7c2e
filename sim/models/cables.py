"""Cables that connections share evenly, as those of TCP do: fair sharing in place of a queue."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Cable", "Connection", "FairSharing"]


class Cable:
    """An uplink, a downlink, or a line that several links share.

    Args:
        bytes_per_s: What it carries.
    """

    __slots__ = ("busy", "bytes_per_s")

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.busy: dict[Connection, None] = {}
        """Connections that have something to send through it, in the order in which they began."""


class Connection:
    """What one worker sends to another: one message after another.

    Args:
        cables: What they go through.
    """

    __slots__ = ("_at_s", "_turn", "cables", "left_bytes", "messages", "rate")

    def __init__(self, cables: Sequence[Cable]) -> None:
        self.cables = cables
        self.messages: deque[tuple[float, Callable[..., object], tuple[Any, ...]]] = deque()
        """Sizes, and what to do once each has left; the first one is being sent."""
        self.left_bytes = 0.0
        """Of that one, as it was when the rate last changed."""
        self.rate = 0.0
        """Bytes a second."""
        self._at_s = 0.0
        self._turn = 0

    def adapt(self, now: float) -> bool:
        """Send at the rate that is this connection's now; returns whether it is another one."""
        rate = min([cable.bytes_per_s / len(cable.busy) for cable in self.cables])
        if rate == self.rate:
            return False
        self.left_bytes = max(self.left_bytes - self.rate * (now - self._at_s), 0.0)
        self.rate, self._at_s = rate, now
        return True

    def begin(self, now: float) -> None:
        """Begin with the first message."""
        self.left_bytes, self._at_s = self.messages[0][0], now

    def due_s(self) -> float:
        """When the first message has left, if the rate stays as it is."""
        return self._at_s + self.left_bytes / self.rate

    def turn(self) -> int:
        """A number for the next moment at which it is due; those before are out of date."""
        self._turn += 1
        return self._turn

    def is_current(self, turn: int) -> bool:
        """Whether that moment is the last that was named."""
        return self._turn == turn


class FairSharing:
    """Messages on connections that share cables.

    Each connection gets, of every cable that it goes through, as much as each other one that has
    something to send there, and goes at the least of these rates. What others cannot use is not
    dealt out anew: where they are held up elsewhere, it lies idle.

    Args:
        now: Says which time it is, virtual seconds.
        at: Has something done at a time.
    """

    def __init__(self, now: Callable[[], float], at: Callable[..., None]) -> None:
        self._now = now
        self._at = at

    def send(
        self,
        connection: Connection,
        size_bytes: float,
        action: Callable[..., object],
        *arguments: object,
    ) -> None:
        """Send a message.

        Args:
            connection: On which; behind what it still has to send.
            size_bytes: Of the message.
            action: What to do, with *arguments*, once its last byte has left.
        """
        if not connection.cables:
            action(*arguments)
            return
        connection.messages.append((size_bytes, action, arguments))
        if len(connection.messages) == 1:
            for cable in connection.cables:
                cable.busy[connection] = None
            connection.begin(self._now())
            connection.rate = 0.0
            self._adapt(connection)

    def _adapt(self, changed: Connection) -> None:
        """Let all go at their new rates that share a cable with one that begins or ends."""
        now = self._now()
        beside = {other: None for cable in changed.cables for other in cable.busy}
        for connection in beside:
            if connection.adapt(now):
                self._expect(connection)

    def _expect(self, connection: Connection) -> None:
        self._at(connection.due_s(), self._left, connection, connection.turn())

    def _left(self, connection: Connection, turn: int) -> None:
        """The last byte of a message has left."""
        if not connection.is_current(turn):
            return
        _, action, arguments = connection.messages.popleft()
        if connection.messages:
            connection.begin(self._now())
            self._expect(connection)
        else:
            for cable in connection.cables:
                del cable.busy[connection]
            self._adapt(connection)
        action(*arguments)
