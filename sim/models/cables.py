"""Cables that connections share evenly, as those of TCP do: fair sharing in place of a queue."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Cable", "Connection", "FairSharing"]


_INFINITE = float("inf")

# Rates that differ by less are the same, and so a change need not be followed any further.
_PART = 1e-6
# A change comes back to a cable so many times at most.
_VISITS_MAX = 8


class Cable:
    """An uplink, a downlink, or a line that several links share."""

    __slots__ = ("busy", "bytes_per_s", "level")

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.busy: dict[Connection, None] = {}
        """Connections that have something to send through it, in the order in which they began."""
        self.level = _INFINITE
        """The rate that it leaves to each, bytes a second; infinite where others hold up all."""

    def share(self) -> bool:
        """Deal out the rate anew; returns whether the level has changed."""
        level = self._level()
        if abs(level - self.level) <= _PART * level < _INFINITE or level == self.level:
            return False
        self.level = level
        return True

    def _level(self) -> float:
        left, n = self.bytes_per_s, len(self.busy)
        for limit in sorted([connection.limit(self) for connection in self.busy]):
            if limit * n >= left:
                return left / n
            left -= limit
            n -= 1
        return _INFINITE


class Connection:
    """What one worker sends to another: one message after another."""

    __slots__ = ("_at_s", "cables", "left_bytes", "messages", "rate", "turn")

    def __init__(self, cables: Sequence[Cable]) -> None:
        self.cables = cables
        self.messages: deque[tuple[float, Callable[..., object], tuple[Any, ...]]] = deque()
        """Sizes, and what to do once each has left; the first one is being sent."""
        self.left_bytes = 0.0
        """Of that one, as it was when the rate last changed."""
        self.rate = 0.0
        """Bytes a second."""
        self.turn = 0
        """Of the last moment that was named at which it is due; those before are out of date."""
        self._at_s = 0.0

    def limit(self, cable: Cable) -> float:
        """At which rate it would go but for one of its cables."""
        return min([other.level for other in self.cables if other is not cable], default=_INFINITE)

    def adapt(self, now: float) -> bool:
        """Send at the rate that is this connection's now; returns whether it is another one."""
        rate = min([min(cable.level, cable.bytes_per_s) for cable in self.cables])
        if rate == self.rate:
            return False
        self.left_bytes = max(self.left_bytes - self.rate * (now - self._at_s), 0.0)
        self.rate, self._at_s = rate, now
        return True

    def go_alone(self) -> None:
        """Set the levels of its cables, which no other one uses now.

        They are those that dealing out would find. It is the most frequent case, and a run takes a
        tenth longer without it.
        """
        least = min([cable.bytes_per_s for cable in self.cables])
        for cable in self.cables:
            is_full = self.messages and cable.bytes_per_s == least
            cable.level = least if is_full else _INFINITE

    def begin(self, now: float) -> None:
        """Begin with the first message."""
        self.left_bytes, self._at_s = self.messages[0][0], now

    def due_s(self) -> float:
        """When the first message has left, if the rate stays as it is."""
        return self._at_s + self.left_bytes / self.rate


class FairSharing:
    """Messages on connections that share cables.

    Each connection gets, of every cable that it goes through, as much as each other one that has
    something to send there; what some cannot use, since another cable holds them up, the others
    get (max-min fairness). A change is followed from cable to cable until rates stay as they are.

    Source: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2; found cable by cable as in
    Charny, Clark and Jain, ICC 1995.

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
            self._adapt(connection)

    def _adapt(self, changed: Connection) -> None:
        """Let all go at their new rates whom it concerns that one begins or ends."""
        concerned = {changed: None} if changed.messages else {}
        if all([len(cable.busy) == len(concerned) for cable in changed.cables]):
            changed.go_alone()
        else:
            self._deal_out(changed.cables, concerned)
        now = self._now()
        for connection in concerned:
            # One that begins is due anew, though it may go as fast as it last went.
            if connection.adapt(now) or connection is changed:
                self._expect(connection)

    def _deal_out(self, cables: Sequence[Cable], concerned: dict[Connection, None]) -> None:
        """Find the levels of cables anew, and add to the connections that it concerns."""
        waiting = dict.fromkeys(cables)
        visits: Counter[Cable] = Counter()
        while waiting:
            cable = next(iter(waiting))
            del waiting[cable]
            visits[cable] += 1
            if visits[cable] > _VISITS_MAX or not cable.share():
                continue
            for connection in cable.busy:
                concerned[connection] = None
                waiting.update(dict.fromkeys(c for c in connection.cables if c is not cable))

    def _expect(self, connection: Connection) -> None:
        connection.turn += 1
        self._at(connection.due_s(), self._left, connection, connection.turn)

    def _left(self, connection: Connection, turn: int) -> None:
        """The last byte of a message has left."""
        if turn != connection.turn:
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
