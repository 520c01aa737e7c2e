"""Events in order of time, then of rank and number: a list, as Python's own heaps are.

`event_heap` has the same names for machine code.
"""

from heapq import heappop, heappush
from typing import Any, Final

from .tables import Event

__all__ = [
    "OPERATIONS",
    "Queue",
    "drop",
    "expect",
    "is_full",
    "longer",
    "made",
    "peek",
    "push",
    "size",
]

OPERATIONS: Final = ("drop", "expect", "is_full", "peek", "push", "size")
"""What `decisions` does with a queue."""

Queue = list[Event]

drop: Final = heappop
"""Takes the next event out of a queue."""

push: Final = heappush
"""Puts an event in."""

size: Final = len
"""How many events are due some time."""


def peek(queue: Queue) -> Event:
    """The next event."""
    return queue[0]


def expect(queue: Queue, ints: Any, worker: int, outgoing: int, edge: int) -> None:
    """Have what the next event is about brought near; Python has no say in that."""


def is_full(queue: Queue) -> bool:
    """Whether there may be too little room for what one event leads to."""
    return False


def made(n: int) -> Queue:
    """Make an empty queue with room for so many events."""
    return []


def longer(queue: Queue) -> Queue:
    """Make room for twice as many, which there always is."""
    return queue
