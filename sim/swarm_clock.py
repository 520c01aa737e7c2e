"""Virtual time: what is due when, one thing after another."""

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count

__all__ = ["Clock", "Priority"]


class Priority(IntEnum):
    """What comes first where two things are due at the same time."""

    FAULT = 0
    """What goes wrong at an instant goes wrong before anything else happens then."""
    DELIVERY = 1
    """A message that comes at the very instant of a turn is there for it."""
    ALARM = 2
    TURN = 3


class Clock:
    """A clock that moves when it is told to, and does on its way what has become due."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds."""
        self._queue: list[tuple[float, int, int, Callable[[], object]]] = []
        self._arrivals = count()

    def at(self, time_s: float, action: Callable[[], object], priority: Priority) -> None:
        """Do something at a time; at once, when the clock next moves, where that is past.

        Args:
            time_s: Virtual time, in seconds.
            action: What to do.
            priority: Its rank among what is due at the same time.
        """
        # Ties break by order of arrival. Actions cannot be compared.
        heappush(self._queue, (max(time_s, self.now), priority, next(self._arrivals), action))

    def run(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Let everything happen that is due until then.

        Args:
            until_s: Virtual time, in seconds; what is due at that very time happens.
            stop: Looked at before each thing; where it holds, the clock stands still there.

        Returns:
            Whether *stop* holds.
        """
        while not stop():
            if not self._queue or self._queue[0][0] > until_s:
                self.now = max(self.now, until_s)
                return False
            self.now, _, _, action = heappop(self._queue)
            action()
        return True
