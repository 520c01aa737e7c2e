"""Event queue: messages in flight and workers' turns, in a binary heap."""

from typing import Any, Final

import numpy as np

from ..compiler import compiled
from .tables import Queue, Tables

__all__ = ["drop", "enqueue", "number_bytes", "send", "waits"]

_RANK: Final = 1 << 60
# A numpy number, since numba would compile callees again for each literal.
_FIRST: Final[Any] = np.int64(0)


@compiled
def number_bytes(number: int) -> int:
    """Return the size of an integer in a message, as msgpack writes it."""
    if number < 128:
        return 1
    if number < 256:
        return 2
    if number < 65536:
        return 3
    return 5 if number < 1 << 32 else 9


@compiled
def send(t: Tables, worker: int, to: int, size_bytes: int, edge: int, sequence: int) -> Any:
    """Schedule a message, and return its event to be filled in. Mirrors `Mailbox.send`."""
    totals, me = t.totals[0], t.workers[worker]
    size_bytes += t.edges[edge].name_bytes
    totals.messages += 1
    totals.bytes_sent += size_bytes
    departure_s = max(me.uplink_free_s, totals.now_s) + size_bytes * t.s_per_byte
    me.uplink_free_s = departure_s
    behind_s = t.down_s_per_byte - t.s_per_byte
    if behind_s > 0.0:
        departure_s += size_bytes * behind_s
    message = enqueue(t, departure_s + t.latency_s, _FIRST, to)
    message.edge, message.sequence, message.size_bytes = edge, sequence, size_bytes
    return message


@compiled
def waits(t: Tables, message: Any) -> bool:
    """Postpone the next message if its receiver's downlink is busy. Mirrors `Mailbox.expect`."""
    now_s = t.totals[0].now_s
    if message.size_bytes == 0:
        return False
    through_s = _pass_downlink(t, message.worker, now_s, message.size_bytes)
    if through_s <= now_s:
        return False
    message.size_bytes = 0
    _postpone(t.queue, through_s, _next_order(t, _FIRST))
    return True


@compiled
def _pass_downlink(t: Tables, worker: int, now_s: float, size_bytes: int) -> float:
    """Return when a message has passed a worker's downlink. Mirrors `Port.take`."""
    me, spans = t.workers[worker], t.spans[worker]
    top, n, n_max = me.top_span, me.n_spans, len(spans)
    start_s, through_s = now_s - size_bytes * t.down_s_per_byte, now_s
    while n > 0 and spans[top].stop_s > start_s:
        span = spans[top]
        through_s += span.stop_s - max(span.start_s, start_s)
        start_s = min(span.start_s, start_s)
        n -= 1
        top = (top - 1) % n_max
    if through_s < now_s + t.instant_s:
        through_s = now_s
    top = (top + 1) % n_max
    span = spans[top]
    span.start_s, span.stop_s = start_s, through_s
    me.top_span, me.n_spans = top, min(n + 1, n_max)
    return through_s


@compiled
def enqueue(t: Tables, time_s: float, rank: int, worker: int) -> Any:
    """Add an event, at one time after those of lower *rank*; return it."""
    event = _push(t.queue, time_s, _next_order(t, rank))
    event.worker = worker
    return event


@compiled
def _next_order(t: Tables, rank: int) -> int:
    """Return the position among events of one time, by rank, then by time of insertion."""
    totals = t.totals[0]
    totals.events_queued += 1
    order: int = rank * _RANK + totals.events_queued
    return order


@compiled
def _push(queue: Queue, time: float, order: int) -> Any:
    """Add an event; return its record, which holds leftovers of an earlier one."""
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
    """Remove the next event; the next push overwrites its record."""
    times, orders, places = queue.times, queue.orders, queue.places
    queue.size[0] -= 1
    n = queue.size[0]
    free = places[0]
    _sink(queue, n, times[n], orders[n], places[n])
    places[n] = free


@compiled
def _postpone(queue: Queue, time: float, order: int) -> None:
    """Postpone the next event."""
    _sink(queue, queue.size[0], time, order, queue.places[0])


@compiled
def _sink(queue: Queue, n: int, time: float, order: int, place: int) -> None:
    """Fill the free top of a heap of *n* events."""
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
