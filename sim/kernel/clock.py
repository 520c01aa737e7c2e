"""Virtual time: a queue of scheduled actions in a deterministic order."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

__all__ = ["ALARM", "DELIVERY", "FAULT", "TURN", "Clock"]

# Order of actions that are due at the same time. A message that arrives at the time of a turn is
# there for that turn. Plain integers compare faster than those of an enum.
FAULT: Final = -1
DELIVERY: Final = 0
ALARM: Final = 1
TURN: Final = 2

Action = Callable[..., object]


class Clock:
    """A virtual clock that runs scheduled actions in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        """Current virtual time, seconds."""
        self.events = 0
        """Number of actions run so far."""
        self._queue: list[tuple[float, int, int, Action, tuple[Any, ...]]] = []
        self._arrivals = 0
        self._stopped = False

    def at(self, time_s: float, priority: int, action: Action, *arguments: object) -> None:
        """Schedule an action for *time_s*, seconds; *priority* ranks actions of the same time."""
        # Ties break by order of scheduling, since actions cannot be compared.
        self._arrivals += 1
        heappush(self._queue, (time_s, priority, self._arrivals, action, arguments))

    def stop(self) -> None:
        self._stopped = True

    def run(self, until_s: float, stop: Callable[[], bool] | None = None) -> bool:
        """Run every action that is due up to *until_s*, inclusive, until *stop* returns True."""
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
        """Return True if an action is due by *until_s*."""
        return bool(self._queue) and self._queue[0][0] <= until_s
