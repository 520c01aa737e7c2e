"""When things are due: messages that travel, and turns of workers."""

from typing import Final

from .event_queue import push
from .tables import BYTES, MESSAGES, NUMBER, OFFER, PUSH, Tables

__all__ = ["enqueue", "number_bytes", "send", "waits"]

_RANK: Final = 1 << 60
_THROUGH: Final = 0


def number_bytes(number: int) -> int:
    """Of an integer in a message, as msgpack writes it."""
    return (
        (1 if number < 128 else 2)
        if number < 256
        else (3 if number < 65536 else 5)
        if number < 1 << 32
        else 9
    )


def send(
    t: Tables, worker: int, to: int, size_bytes: int, kind: int,
    edge: int, sequence: int, accepted: int, step: int, room: int,
) -> None:  # fmt: skip
    """Let a message arrive, unless its receiver's downlink is busy then."""
    size_bytes += t.ints[t.name_bytes + edge]
    t.count[MESSAGES] += 1
    t.count[BYTES] += size_bytes
    departure_s = (
        max(t.floats[t.uplink_free_s + worker], t.floats[t.clock]) + size_bytes * t.s_per_byte
    )
    t.floats[t.uplink_free_s + worker] = departure_s
    behind_s = t.down_s_per_byte - t.s_per_byte
    if behind_s > 0.0:
        departure_s += size_bytes * behind_s
    # What a downlink needs to know goes where that kind of message has nothing to say.
    if kind == PUSH or kind == OFFER:
        accepted = size_bytes
    else:
        step = size_bytes
    enqueue(t, departure_s + t.latency_s, 0, to, kind, edge, sequence, accepted, step, room)


def waits(
    t: Tables, worker: int, kind: int, edge: int,
    sequence: int, accepted: int, step: int, room: int,
) -> bool:  # fmt: skip
    """Whether a message finds its receiver's downlink busy; it then comes again later."""
    now = t.floats[t.clock]
    is_share = kind == PUSH or kind == OFFER
    size_bytes = accepted if is_share else step
    if size_bytes == _THROUGH:
        return False
    through_s = _pass(t, worker, now, size_bytes)
    if through_s <= now:
        return False
    if is_share:
        accepted = _THROUGH
    else:
        step = _THROUGH
    enqueue(t, through_s, 0, worker, kind, edge, sequence, accepted, step, room)
    return True


def _pass(t: Tables, worker: int, now: float, size_bytes: int) -> float:
    """When a message is through a worker's downlink: `rumor.sim.models.links.Port.take`."""
    top, n = t.ints[t.top_span + worker], t.ints[t.n_spans + worker]
    start_s, through_s = now - size_bytes * t.down_s_per_byte, now
    while n > 0 and t.floats[t.span_stop_s + worker + top] > start_s:
        span_start_s = t.floats[t.span_start_s + worker + top]
        through_s += t.floats[t.span_stop_s + worker + top] - max(span_start_s, start_s)
        start_s = min(span_start_s, start_s)
        n -= 1
        top = (top - 1) % t.spans_max
    if through_s < now + t.instant_s:
        through_s = now
    top = (top + 1) % t.spans_max
    t.floats[t.span_start_s + worker + top] = start_s
    t.floats[t.span_stop_s + worker + top] = through_s
    t.ints[t.top_span + worker] = top
    t.ints[t.n_spans + worker] = min(n + 1, t.spans_max)
    return through_s


def enqueue(
    t: Tables, time_s: float, rank: int, worker: int, kind: int,
    edge: int, sequence: int, accepted: int, step: int, room: int,
) -> None:  # fmt: skip
    """Let something be due; at one time, of the lowest *rank* first."""
    t.count[NUMBER] += 1
    order = rank * _RANK + t.count[NUMBER]
    push(t.queue, (time_s, order, worker, kind, edge, sequence, accepted, step, room))
