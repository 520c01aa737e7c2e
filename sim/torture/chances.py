"""Random numbers of a network: each purpose and link has its own, counted one by one.

What is drawn for one link never depends on what others carry, so that taking one fault away shifts
no number of another.
"""

import numpy as np

from ...gossip import stream

__all__ = ["Chances"]

_BLOCK = 32
"""Numbers drawn at a time."""

_PER_MESSAGE = 6


class Chances:
    """The streams of one seed.

    Args:
        seed: Of everything random.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[tuple[str, str], np.random.Generator] = {}
        self._numbers: dict[tuple[str, str], list[float]] = {}
        self._fates: dict[str, list[list[float]]] = {}

    def next(self, purpose: str, link: str) -> float:
        """The next number in [0, 1) of one purpose on one link."""
        numbers = self._numbers.get((purpose, link))
        if not numbers:
            drawn = self._stream(purpose, link).random(_BLOCK)
            numbers = self._numbers[purpose, link] = drawn.tolist()
        return numbers.pop()

    def of_message(self, link: str) -> list[float]:
        """The six numbers in [0, 1) that the next message on one link may need."""
        fates = self._fates.get(link)
        if not fates:
            drawn = self._stream("message", link).random((_BLOCK, _PER_MESSAGE))
            fates = self._fates[link] = drawn.tolist()
        return fates.pop()

    def _stream(self, purpose: str, link: str) -> np.random.Generator:
        if (purpose, link) not in self._streams:
            self._streams[purpose, link] = stream(self._seed, link, purpose)
        return self._streams[purpose, link]
