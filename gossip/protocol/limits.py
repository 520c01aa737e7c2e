"""Token buckets."""

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["TokenBuckets"]

_T = TypeVar("_T")

_KEPT_MAX = 4096
"""Peers for each of which there is a bucket. Only those spend whose name is known here, and who has
not spent for longest is forgotten first, when its bucket is as good as full."""


class TokenBuckets(Generic[_T]):
    """A bucket of tokens for each of many: it begins full, and is refilled at a constant rate.

    Args:
        most: What a bucket holds, and so the largest burst.
        refill_s: Tokens per second.

    >>> buckets = TokenBuckets(2, 0.5)
    >>> [buckets.take("a", 1, now) for now in (0.0, 0.0, 0.0, 2.0, 2.0)]
    [True, True, False, True, False]
    """

    def __init__(self, most: float, refill_s: float) -> None:
        self._most = most
        self._refill_s = refill_s
        self._levels: OrderedDict[_T, tuple[float, float]] = OrderedDict()

    def take(self, who: _T, amount: float, now: float) -> bool:
        """Take so many tokens, if they are there.

        Args:
            who: Whose.
            amount: How many.
            now: Seconds.

        Returns:
            Whether they were.
        """
        level = self.level(who, now)
        enough = level >= amount
        self._set(who, level - amount if enough else level, now)
        return enough

    def spend(self, who: _T, amount: float, now: float) -> None:
        """Take tokens that are used already: a bucket may owe some then."""
        self._set(who, self.level(who, now) - amount, now)

    def level(self, who: _T, now: float) -> float:
        """How many tokens are there; below 0 where some are owed."""
        level, since_s = self._levels.get(who, (self._most, now))
        return min(self._most, level + (now - since_s) * self._refill_s)

    def _set(self, who: _T, level: float, now: float) -> None:
        self._levels[who] = level, now
        self._levels.move_to_end(who)
        if len(self._levels) > _KEPT_MAX:
            self._levels.popitem(last=False)
