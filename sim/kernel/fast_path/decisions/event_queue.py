"""Events in order of time, then of rank and number: a binary heap."""

from typing import Any

from ..compiler import compiled
from .tables import QUEUE_SPARE, Queue

__all__ = ["drop", "is_full", "peek", "postpone", "push"]


@compiled
def is_full(queue: Queue) -> bool:
    """Whether there may be too little room for what one event leads to."""
    return queue.size[0] + QUEUE_SPARE > len(queue.times)


@compiled
def peek(queue: Queue) -> Any:
    """The next event."""
    return queue.events[queue.places[0]]


@compiled
def push(queue: Queue, time: float, order: int) -> Any:
    """Let an event be due; returns its record, which holds what an earlier one has left there."""
    times, orders, places = queue.times, queue.orders, queue.places
    at = queue.size[0]
    place = places[at]
    queue.size[0] += 1
    while at > 0:
        parent = (at - 1) // 2
        if not _is_before(time, order, times[parent], orders[parent]):
            break
        times[at], orders[at], places[at] = times[parent], orders[parent], places[parent]
        at = parent
    times[at], orders[at], places[at] = time, order, place
    return queue.events[place]


@compiled
def drop(queue: Queue) -> None:
    """Take the next event out; the next one pushed is written over its record."""
    times, orders, places = queue.times, queue.orders, queue.places
    queue.size[0] -= 1
    n = queue.size[0]
    free = places[0]
    _sink(queue, n, times[n], orders[n], places[n])
    places[n] = free


@compiled
def postpone(queue: Queue, time: float, order: int) -> None:
    """Let the next event be due later."""
    _sink(queue, queue.size[0], time, order, queue.places[0])


@compiled
def _sink(queue: Queue, n: int, time: float, order: int, place: int) -> None:
    """Fill the top of a heap of *n* events, which is free."""
    times, orders, places = queue.times, queue.orders, queue.places
    at, child = 0, 1
    while child < n:
        other = child + 1
        if other < n and _is_before(times[other], orders[other], times[child], orders[child]):
            child = other
        if not _is_before(times[child], orders[child], time, order):
            break
        times[at], orders[at], places[at] = times[child], orders[child], places[child]
        at, child = child, 2 * child + 1
    times[at], orders[at], places[at] = time, order, place


@compiled
def _is_before(time: float, order: int, other_time: float, other_order: int) -> bool:
    return time < other_time or (time == other_time and order < other_order)
