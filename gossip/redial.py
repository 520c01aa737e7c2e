"""When to dial again somebody who does not answer: for ever, and ever more rarely.

A swarm that gave its dead up would never heal a long partition; one that dialled them at every
heartbeat would spend its messages on them. Waits double up to a longest one. Each is drawn anew
around that, so that a thousand peers that lost one another at the same moment do not come back at
the same moment.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

__all__ = ["Redial"]

_T = TypeVar("_T", bound=Hashable)

_JITTER = 0.5
"""A wait lies within this part of its mean on either side."""


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
        self._waits: dict[_T, tuple[float, float]] = {}

    def due(self, silent: Iterable[_T], now: float, most: int) -> list[_T]:
        """Those of *silent* whose time has come; they are taken to be dialled now.

        Args:
            silent: Everybody who does not answer; who is not named is forgotten.
            now: Seconds.
            most: How many at a time, those first who have waited longest.
        """
        self._waits = {one: self._waits.get(one, (now, self._first_s)) for one in silent}
        waiting = sorted((due_s, n, one) for n, (one, (due_s, _)) in enumerate(self._waits.items()))
        chosen = [one for due_s, _, one in waiting[:most] if due_s <= now]
        for one in chosen:
            wait_s = self._waits[one][1]
            drawn_s = wait_s * (1 + _JITTER * (2 * self._draw() - 1))
            self._waits[one] = now + drawn_s, min(2 * wait_s, self._most_s)
        return chosen

    def hurry(self) -> None:
        """Begin anew with all: what cut one of them off may be over for the others, too."""
        self._waits.clear()
