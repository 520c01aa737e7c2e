"""How slow each peer is, where several faults slow it."""

from collections.abc import Hashable
from itertools import count

__all__ = ["Slowness"]


class Slowness:
    """How many times as long the steps of each peer take, and why.

    Of causes that hold at once the largest factor counts, and the end of one takes only its own
    away. A cause is of a peer, not of one of its lives: the next is as slow as the last one was.
    """

    def __init__(self) -> None:
        self._causes: dict[Hashable, dict[int, float]] = {}
        self._numbers = count()

    def begin(self, peer: Hashable, factor: float) -> int:
        """Let a peer be so slow, until `end` is called with the number that this has."""
        number = next(self._numbers)
        self._causes.setdefault(peer, {})[number] = factor
        return number

    def end(self, peer: Hashable, number: int) -> None:
        """Take one cause away, if it still holds."""
        self._causes.get(peer, {}).pop(number, None)

    def of(self, peer: Hashable) -> float:
        """How slow a peer is now; 1 where nothing slows it."""
        return max(self._causes.get(peer, {}).values(), default=1.0)

    def clear(self) -> None:
        """Take everything away."""
        self._causes.clear()
