"""`event_queue` for numba, in columns; imported only where that is installed.

What is compared and moved is short: times, ranks and places, at which the rest of an event stays.
"""

from typing import Any, Final, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .tables import STAGED_MAX, Event

__all__ = ["Queue", "drop", "expect", "is_full", "longer", "made", "peek", "push", "size"]

# A turn leads to so many offers, frames and answers at most, and to three events more.
_SPARE: Final = 3 * STAGED_MAX + 3
_N_OTHERS: Final = 7
_LINE: Final = 8  # numbers of a cache line


class Queue(NamedTuple):
    """A binary heap, and places for what its events carry."""

    times: NDArray[np.float64]
    orders: NDArray[np.int64]
    places: NDArray[np.int64]
    """Of the events in the heap, then the free ones."""
    others: NDArray[np.int64]
    """Axes ``(place, 7)``."""
    n_events: NDArray[np.int64]
    """One number: how many events there are."""


def made(n: int) -> Queue:
    """Make an empty queue with room for so many events."""
    room = n + _SPARE
    return Queue(
        np.zeros(room),
        np.zeros(room, np.int64),
        np.arange(room),
        np.zeros((room, _N_OTHERS), np.int64),
        np.zeros(1, np.int64),
    )


def longer(queue: Queue) -> Queue:
    """Make room for twice as many."""
    n = len(queue.times)
    return Queue(
        np.concatenate([queue.times, np.zeros(n)]),
        np.concatenate([queue.orders, np.zeros(n, np.int64)]),
        np.concatenate([queue.places, np.arange(n, 2 * n)]),
        np.concatenate([queue.others, np.zeros_like(queue.others)]),
        queue.n_events,
    )


@numba.njit(nogil=True, cache=True)
def is_full(queue: Queue) -> bool:
    """Whether there may be too little room for what one event leads to."""
    return bool(queue.n_events[0] + _SPARE > len(queue.times))


@intrinsic
def _prefetch_of(typing_context: Any, address: Any) -> Any:
    """Have the cache line at an address brought near, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        how = [ir.Constant(word, number) for number in (1, 3, 1)]
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(types.int64), generate


# To a type checker, it still takes the context.
_prefetch: Any = _prefetch_of


@numba.njit(nogil=True, cache=True)
def expect(queue: Queue, ints: NDArray[np.int64], worker: int, outgoing: int, edge: int) -> None:
    """Have the records that the next event is about brought near, while another one is decided.

    Args:
        queue: Not empty.
        ints: The records.
        worker: Where those of workers begin, and
        outgoing: the numbers after those of which each has one.
        edge: Where those of edges begin.
    """
    others, base = queue.others[queue.places[0]], ints.ctypes.data
    record = base + 8 * others[0]
    for line in range(worker, outgoing + 1, _LINE):
        _prefetch(record + 8 * line)
    _prefetch(base + 8 * (edge + others[2]))
    _prefetch(base + 8 * (edge + others[2] + _LINE))


@numba.njit(nogil=True, cache=True)
def size(queue: Queue) -> int:
    """How many events are due some time."""
    return int(queue.n_events[0])


@numba.njit(nogil=True, cache=True)
def peek(queue: Queue) -> Event:
    """The next event."""
    o = queue.others[queue.places[0]]
    return queue.times[0], queue.orders[0], o[0], o[1], o[2], o[3], o[4], o[5], o[6]


@numba.njit(nogil=True, cache=True)
def drop(queue: Queue) -> None:
    """Take the next event out."""
    times, orders, places = queue.times, queue.orders, queue.places
    queue.n_events[0] -= 1
    n = queue.n_events[0]
    free = places[0]
    time, order, place = times[n], orders[n], places[n]
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
    places[n] = free


@numba.njit(nogil=True, cache=True)
def push(queue: Queue, event: Event) -> None:
    """Put an event in."""
    times, orders, places = queue.times, queue.orders, queue.places
    time, order = event[0], event[1]
    at = queue.n_events[0]
    place = places[at]
    queue.n_events[0] += 1
    others = queue.others[place]
    others[0], others[1], others[2], others[3] = event[2], event[3], event[4], event[5]
    others[4], others[5], others[6] = event[6], event[7], event[8]
    while at > 0:
        parent = (at - 1) // 2
        if not _is_before(time, order, times[parent], orders[parent]):
            break
        times[at], orders[at], places[at] = times[parent], orders[parent], places[parent]
        at = parent
    times[at], orders[at], places[at] = time, order, place


@numba.njit(cache=True, inline="always")
def _is_before(time: float, order: int, other_time: float, other_order: int) -> Any:
    return time < other_time or (time == other_time and order < other_order)
