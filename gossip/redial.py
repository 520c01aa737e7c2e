"""When to dial again somebody who does not answer: for ever, and ever more rarely.

A swarm that gave its dead up would never heal a long partition; one that dialled them at every
heartbeat would spend its messages on them. Waits double up to a longest one. Each is drawn anew
around that, so that a thousand peers that lost one another at the same moment do not come back at
the same moment.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Redial"]

_T = TypeVar("_T", bound=Hashable)

_JITTER = 0.5
"""A wait lies within this part of its mean on either side."""


class _Wait(NamedTuple):
    since_s: float
    """When it was dialled last."""
    due_s: float
    wait_s: float
    """The mean of the next wait."""


class Redial(Generic[_T]):
    """Waits of those who do not answer, each on its own schedule.

    Args:
        first_s: The first wait, seconds.
        most_s: The longest, seconds.
        draw: Gives random numbers in [0, 1).
    """

    def __init__(self, first_s: float, most_s: float, draw: Callable[[], float]) -> None:
        self._first_s = first_s
        self._most_s = max(first_s, most_s)
        self._draw = draw
        self._waits: dict[_T, _Wait] = {}

    def due(self, silent: Iterable[_T], now: float, most: int) -> list[_T]:
        """Those of *silent* whose time has come; they are taken to be dialled now.

        Args:
            silent: Everybody who does not answer; who is not named is forgotten.
            now: Seconds.
            most: How many at a time, those first who have waited longest.
        """
        first = _Wait(now, now, self._first_s)
        self._waits = {one: self._waits.get(one, first) for one in silent}
        waiting = [one for one, wait in self._waits.items() if wait.due_s <= now]
        chosen = sorted(waiting, key=lambda one: self._waits[one].since_s)[:most]
        for one in chosen:
            wait_s = self._waits[one].wait_s
            drawn_s = wait_s * (1 + _JITTER * (2 * self._draw() - 1))
            self._waits[one] = _Wait(now, now + drawn_s, min(2 * wait_s, self._most_s))
        return chosen

    def hurry(self) -> None:
        """Let all be due again: what cut one of them off may be over for the others, too.

        Those come first who were not dialled for longest, so that one who comes and goes all the
        time does not keep the others from their turn.
        """
        self._waits = {
            one: _Wait(wait.since_s, wait.since_s, self._first_s)
            for one, wait in self._waits.items()
        }
