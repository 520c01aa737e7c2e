"""Virtual time: one queue of what is due, in an order that never varies."""

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any

__all__ = ["Clock", "Priority"]


class Priority(IntEnum):
    """What comes first where several things are due at the same time."""

    FAULT = -1
    """What goes wrong at an instant goes wrong before anything else happens then."""
    DELIVERY = 0
    """A message that comes at the very instant of a turn is there for it."""
    ALARM = 1
    """Nobody waits on an alarm."""
    TURN = 2


Action = Callable[..., object]


class Clock:
    """A clock that moves when it is told to, and does on its way what has become due."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds."""
        self.events = 0
        """How many things were done so far."""
        self._queue: list[tuple[float, int, int, Action, tuple[Any, ...]]] = []
        self._arrivals = 0
        self._stopped = False

    def at(self, time_s: float, priority: int, action: Action, *arguments: object) -> None:
        """Do something at a time, seconds; a `Priority` ranks what is due at the same one."""
        # Ties break by order of arrival. Actions cannot be compared.
        self._arrivals += 1
        heappush(self._queue, (time_s, priority, self._arrivals, action, arguments))

    def stop(self) -> None:
        """Let time stand still after what is being done now."""
        self._stopped = True

    def run(self, until_s: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let everything happen that is due until then, at that very time included.

        *stop* is looked at before each thing: where it holds, the clock stands still there.
        """
        queue, self._stopped = self._queue, False
        while not self._stopped and (stop is None or not stop()):
            if not queue or queue[0][0] > until_s:
                self.now = max(until_s, self.now)
                return False
            self.now, _, _, action, arguments = heappop(queue)
            self.events += 1
            action(*arguments)
        return True

    def is_due(self, until_s: float) -> bool:
        """Whether something is due until then."""
        return bool(self._queue) and self._queue[0][0] <= until_s
