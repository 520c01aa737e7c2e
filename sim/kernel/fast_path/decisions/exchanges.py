"""What GoSGD and SGP decide while nothing goes wrong, in plain arithmetic on columns.

One text, used in two ways: Python runs it on lists, and numba, where it is installed, compiles it
for arrays (see `compiler`). It follows `rumor.gossip` event by event under these conditions:
every member is known and stays, nothing is lost or limited, shares are whole models in one message
or one frame, weights are whole units. What it emits is compared with what the protocols emit in
every run (see `choice.prove`). Where a condition ends, it says so, and the protocols take over.

Times are in virtual seconds; weights in units, a founder's share being 2^40.
"""

from typing import Final

from .event_queue import drop, expect, is_full, peek, size
from .messages import enqueue, number_bytes, send, waits
from .operations import has_room, let_go, mix, note_step, read, snapshot
from .randoms import below, uniform
from .tables import (
    ACK,
    ALARM,
    BEYOND,
    CHUNK,
    EVENTS,
    FULL,
    GRANT,
    MIXED,
    N_OPERATIONS,
    N_STEPS,
    OFFER,
    OFFERED,
    OPERATIONS_MAX,
    OVER,
    PENDING,
    PUSH,
    PUSHES,
    QUERY,
    REFUSALS,
    RUNNING,
    SENT,
    SKIPPED,
    STALENESS,
    STEP,
    STEPS,
    SUPPLY,
    TAKEN,
    TIME,
    WANTING,
    WORDS_MAX,
    Tables,
)  # fmt: skip

__all__ = ["advance", "begin"]

_AFTER_MESSAGES: Final = 1
_AFTER_ALARMS: Final = 2

_ROUNDS_PASSED_MAX: Final = 64
_QUESTIONS_EXCUSED: Final = 2
_DOUBLINGS_MAX: Final = 10
_FIRST_TIMEOUT_S: Final = 1.0
_NEVER: Final = float("inf")

# Below it, parts are no whole units any more; above it, quotients of integers round twice.
_ESCROW_MIN: Final = 1 << 11
_WEIGHT_MAX: Final = 1 << 53

_TIMES_OWN: Final = 9
# A share's sender hears of it so many times before it would give it up.
_SIGNS: Final = 10

_HARMLESS: Final = 4 << 40
_ACCEPTED_MAX: Final = 8 << 40


def begin(t: Tables) -> None:
    """Let every worker's first step be due."""
    for worker in range(0, t.n * t.stride, t.stride):
        _step_at(t, worker, t.floats[t.durations + worker])


def advance(t: Tables, until_s: float, steps_max: int) -> int:
    """Let happen what happens until then.

    Args:
        t: Everything; changed in place.
        until_s: Virtual seconds; what happens at that very time happens.
        steps_max: Optimizer steps, counted from the start of the run, after which it stops.

    Returns:
        Why it has stopped.
    """
    count, queue = t.count, t.queue
    while count[RUNNING] > 0:
        if size(queue) == 0 or peek(queue)[0] > until_s:
            t.floats[t.clock] = until_s
            return TIME
        if is_full(queue) or count[N_OPERATIONS] + OPERATIONS_MAX > len(t.fractions):
            return FULL
        if count[TAKEN] >= steps_max:
            return STEPS
        event = peek(queue)
        worker, kind = event[2], event[3]
        if kind == STEP:
            why = _what_is_missing(t, worker)
            if why != OVER:
                return why
        drop(queue)
        if size(queue) > 0:
            expect(queue, t.ints, t.number, t.outgoing, t.source)
        t.floats[t.clock] = event[0]
        count[EVENTS] += 1
        edge, sequence = event[4], event[5]
        if kind == STEP:
            _take_step(t, worker)
        elif kind == ALARM:
            if not _wake(t, worker):
                return BEYOND
        elif t.down_s_per_byte > 0.0 and waits(
            t, worker, kind, edge, sequence, event[6], event[7], event[8]
        ):
            pass  # it comes again when its receiver's downlink has let it through
        elif not _take_message(t, worker, kind, edge, sequence, event[6], event[7], event[8]):
            return BEYOND
    return OVER


def _take_message(
    t: Tables, worker: int, kind: int, edge: int, sequence: int, accepted: int, step: int, room: int
) -> bool:
    """A message arrives; returns False where only the protocols can decide what follows."""
    if kind == PUSH:
        _take_push(t, worker, edge, sequence, step, room)
    elif kind == ACK:
        return _take_ack(t, worker, edge, sequence, accepted, room)
    elif kind == OFFER:
        _take_offer(t, worker, edge, sequence, step, room)
    elif kind == GRANT:
        _take_grant(t, worker, edge, sequence)
    elif kind == CHUNK:
        return _take_chunk(t, worker, edge, sequence, room)
    elif kind == QUERY:
        return _take_query(t, worker, edge, sequence)
    else:
        _take_pending(t, worker, edge, sequence)
    return True


def _what_is_missing(t: Tables, worker: int) -> int:
    """Why a worker's step cannot be decided here and now; `OVER` where it can."""
    count = t.count
    if 3 * count[N_STEPS] >= len(t.step_rows) or not has_room(t, worker):
        return FULL
    is_new_block = t.durations_each > 1 and (
        (t.ints[t.steps + worker] + 1) // t.durations_each != t.ints[t.block + worker]
    )
    if is_new_block or t.ints[t.half + worker] + 2 * WORDS_MAX > t.halves_each:
        count[WANTING] = worker
        return SUPPLY
    total, n_pushes = t.ints[t.weight + worker], 1
    if t.shares_out == 1:
        row = _row(t, worker, t.ints[t.round + worker])
        n_pushes = t.ints[t.offsets + row + 1] - t.ints[t.offsets + row]
    if (
        total // (n_pushes + 1) < _ESCROW_MIN
        or t.ints[t.n_outgoing + worker] + n_pushes > t.outgoing_max
    ):
        return BEYOND
    for at in range(worker, worker + t.ints[t.n_incoming + worker]):
        total += t.ints[t.escrow + t.ints[t.incoming_edge + at]]
    return OVER if total < _WEIGHT_MAX else BEYOND


def _take_step(t: Tables, worker: int) -> None:
    """A worker comes to the end of a step: it pushes, then mixes what has come."""
    trained = t.ints[t.finished + worker] == 0
    if trained:
        note_step(t, worker)
    if t.shares_out == 1:
        _share_out(t, worker)
    else:
        chance = uniform(t, worker)
        if chance < t.p:
            _push_half(t, worker)
    _mix_all(t, worker)
    are_all_taken = t.count[TAKEN] >= t.steps_total
    if trained and (are_all_taken or t.ints[t.steps + worker] >= t.steps_each):
        t.ints[t.finished + worker] = 1
        t.count[RUNNING] -= 1
    step_s = t.floats[t.mean_s + worker]
    if t.ints[t.finished + worker] == 0:
        step_s = t.floats[t.durations + worker + t.ints[t.steps + worker] % t.durations_each]
    if t.exchange_s > 0.0:
        exchanged = t.ints[t.pushes + worker] + t.ints[t.mixed + worker]
        step_s += t.exchange_s * (exchanged - t.ints[t.exchanged + worker])
        t.ints[t.exchanged + worker] = exchanged
    _step_at(t, worker, t.floats[t.clock] + step_s)
    _set_alarm(t, worker)


def _push_half(t: Tables, worker: int) -> None:
    """GoSGD: half of the weight goes toward a random neighbor."""
    edge = _draw_neighbor(t, worker)
    if edge < 0:
        t.count[SKIPPED] += 1
    else:
        room = snapshot(t, worker)
        _push(t, worker, edge, t.ints[t.weight + worker] >> 1, room)
        t.ints[t.round + worker] += 1


def _share_out(t: Tables, worker: int) -> None:
    """SGP: even parts of the weight go toward all neighbors of the round."""
    row = _row(t, worker, t.ints[t.round + worker])
    start = t.neighbors + t.ints[t.offsets + row]
    n = t.ints[t.offsets + row + 1] - t.ints[t.offsets + row]
    t.ints[t.round + worker] += 1
    escrow, first, room = t.ints[t.weight + worker] // (n + 1), 0, -1
    for at in range(n):
        if t.ints[start + at] == t.ints[t.passed_over + worker]:
            first = at
    t.ints[t.passed_over + worker] = -1
    for at in range(n):
        edge = t.ints[start + (first + at) % n]
        if _has_credit(t, worker) and t.ints[t.busy + edge] == 0:
            if room < 0:
                room = snapshot(t, worker)
            else:
                read(t, room)
            _push(t, worker, edge, escrow, room)
        else:
            t.count[SKIPPED] += 1
            if t.ints[t.passed_over + worker] < 0:
                t.ints[t.passed_over + worker] = edge


def _draw_neighbor(t: Tables, worker: int) -> int:
    """Edge to a neighbor that a share can be pushed to now; -1 where there is none."""
    if not _has_credit(t, worker):
        return -1
    for turn in range(_ROUNDS_PASSED_MAX + 1):
        row = _row(t, worker, t.ints[t.round + worker] + t.ints[t.passed + worker])
        start, stop = t.ints[t.offsets + row], t.ints[t.offsets + row + 1]
        if t.ints[t.n_outgoing + worker] == 0:
            if stop > start:
                return int(t.ints[t.neighbors + start + below(t, worker, stop - start)])
        else:
            n_free = 0
            for at in range(start, stop):
                n_free += t.ints[t.busy + t.ints[t.neighbors + at]] == 0
            if n_free > 0:
                left = below(t, worker, n_free)
                for at in range(start, stop):
                    edge = t.ints[t.neighbors + at]
                    if t.ints[t.busy + edge] == 0:
                        if left == 0:
                            return int(edge)
                        left -= 1
        if turn < _ROUNDS_PASSED_MAX:
            t.ints[t.passed + worker] += 1
    return -1


def _row(t: Tables, worker: int, round: int) -> int:
    """Which of the rows of neighbors is that of a round."""
    return int(t.ints[t.first_row + worker] + round % t.period)


def _has_credit(t: Tables, worker: int) -> bool:
    return bool(t.ints[t.n_outgoing + worker] - t.ints[t.excused + worker] < t.outstanding_max)


def _push(t: Tables, worker: int, edge: int, escrow: int, room: int) -> None:
    """Weight goes into escrow, and with a snapshot toward a neighbor."""
    now = t.floats[t.clock]
    t.ints[t.sequence + edge] += 1
    t.ints[t.weight + worker] -= escrow
    t.ints[t.escrow + edge] = escrow
    t.ints[t.busy + edge] = SENT
    t.floats[t.pushed_s + edge] = now
    t.ints[t.questions + edge] = 0
    t.ints[t.is_excused + edge] = 0
    t.floats[t.deadline_s + edge] = now + _patience_s(t, edge)
    t.ints[t.outgoing + worker + t.ints[t.n_outgoing + worker]] = edge
    t.ints[t.n_outgoing + worker] += 1
    t.count[PUSHES] += 1
    t.ints[t.pushes + worker] += 1
    sequence, steps = t.ints[t.sequence + edge], t.ints[t.steps + worker]
    size_bytes = number_bytes(sequence) + number_bytes(escrow) + number_bytes(steps)
    size_bytes += number_bytes(t.ints[t.round + worker])
    to = t.ints[t.to + edge]
    if t.in_frames == 0:
        send(t, worker, to, size_bytes + t.push_bytes, PUSH, edge, sequence, 0, steps, room)
        return
    is_eager = t.ints[t.credit + edge]
    t.ints[t.credit + edge] = 0
    t.ints[t.room + edge] = room
    t.ints[t.busy + edge] = OFFERED
    t.floats[t.deadline_s + edge] = now + t.stall_s
    size_bytes += t.offer_bytes + is_eager * t.eager_bytes
    send(t, worker, to, size_bytes, OFFER, edge, sequence, 0, steps, is_eager)
    if is_eager == 1:
        _send_chunk(t, worker, edge)


def _mix_all(t: Tables, worker: int) -> None:
    """Mix what has come, in order of arrival."""
    n = t.ints[t.n_incoming + worker]
    t.ints[t.n_incoming + worker] = 0
    arriving = worker
    for at in range(worker, worker + n):
        edge, room = t.ints[t.incoming_edge + at], t.ints[t.incoming_room + at]
        if room < 0:
            t.ints[t.incoming_edge + arriving] = edge
            t.ints[t.incoming_step + arriving] = t.ints[t.incoming_step + at]
            t.ints[t.incoming_room + arriving] = room
            t.floats[t.incoming_s + arriving] = t.floats[t.incoming_s + at]
            arriving += 1
            continue
        own, escrow = t.ints[t.weight + worker], t.ints[t.escrow + edge]
        # As `acceptable` says; all are whole units, and none is leaving.
        accepted = min(escrow, max(_TIMES_OWN * min(own, _ACCEPTED_MAX), _HARMLESS), _ACCEPTED_MAX)
        mix(t, worker, room, accepted / (own + accepted))
        let_go(t, room)
        t.ints[t.weight + worker] = own + accepted
        t.ints[t.decided + edge] = t.ints[t.sequence + edge]
        t.ints[t.accepted + edge] = accepted
        _send_ack(t, worker, edge, t.ints[t.sequence + edge], accepted)
        t.count[MIXED] += 1
        t.ints[t.mixed + worker] += 1
        t.count[STALENESS] += max(0, t.ints[t.steps + worker] - t.ints[t.incoming_step + at])
    t.ints[t.n_incoming + worker] = arriving - worker


def _take_push(t: Tables, worker: int, edge: int, sequence: int, step: int, room: int) -> None:
    came = _let_in(t, worker, edge, sequence, step, room)
    if not came:
        let_go(t, room)


def _take_offer(t: Tables, worker: int, edge: int, sequence: int, step: int, is_eager: int) -> None:
    at = worker + t.ints[t.n_incoming + worker]
    came = _let_in(t, worker, edge, sequence, step, -1)
    if came:
        t.floats[t.incoming_s + at] = t.floats[t.clock]
        if is_eager == 0:
            size_bytes = t.grant_bytes + number_bytes(sequence)
            send(t, worker, t.ints[t.source + edge], size_bytes, GRANT, edge, sequence, 0, 0, 0)


def _let_in(t: Tables, worker: int, edge: int, sequence: int, step: int, room: int) -> bool:
    """Let a share in, or refuse it; returns whether it was let in."""
    n = t.ints[t.n_incoming + worker]
    if n < t.staged_max:
        at = worker + n
        t.ints[t.incoming_edge + at] = edge
        t.ints[t.incoming_step + at] = step
        t.ints[t.incoming_room + at] = room
        t.ints[t.n_incoming + worker] = n + 1
    else:
        t.ints[t.decided + edge] = sequence
        t.ints[t.accepted + edge] = 0
        _send_ack(t, worker, edge, sequence, 0)
    return bool(n < t.staged_max)


def _take_grant(t: Tables, worker: int, edge: int, sequence: int) -> None:
    if t.ints[t.busy + edge] == OFFERED and t.ints[t.sequence + edge] == sequence:
        _send_chunk(t, worker, edge)


def _take_chunk(t: Tables, worker: int, edge: int, sequence: int, room: int) -> bool:
    """The values of a share are there; False where its sender would have to hear of their pace."""
    for at in range(worker, worker + t.ints[t.n_incoming + worker]):
        if t.ints[t.incoming_edge + at] == edge and t.ints[t.sequence + edge] == sequence:
            t.ints[t.incoming_room + at] = room
            late_s: float = t.floats[t.incoming_s + at] + t.stall_s / _SIGNS
            return bool(t.floats[t.clock] < late_s)
    let_go(t, room)
    return True


def _take_ack(
    t: Tables, worker: int, edge: int, sequence: int, accepted: int, has_credit: int
) -> bool:
    """An answer settles; False where it tells that a share did not come for long."""
    if t.ints[t.busy + edge] == 0 or t.ints[t.sequence + edge] != sequence:
        return True
    lasted_s = t.floats[t.clock] - t.floats[t.pushed_s + edge]
    if t.ints[t.busy + edge] == OFFERED:
        let_go(t, t.ints[t.room + edge])
    elif t.ints[t.questions + edge] == 0:
        _measure(t, edge, lasted_s)
    if has_credit == 1:
        t.ints[t.credit + edge] = 1
    _excuse(t, worker, edge, 0)
    t.ints[t.busy + edge] = 0
    at = worker
    while t.ints[t.outgoing + at] != edge:
        at += 1
    t.ints[t.n_outgoing + worker] -= 1
    while at < worker + t.ints[t.n_outgoing + worker]:
        t.ints[t.outgoing + at] = t.ints[t.outgoing + at + 1]
        at += 1
    t.ints[t.weight + worker] += t.ints[t.escrow + edge] - accepted
    if accepted == 0:
        t.count[REFUSALS] += 1
        return t.in_frames == 0 or lasted_s < t.stall_s / 2
    return True


def _take_query(t: Tables, worker: int, edge: int, sequence: int) -> bool:
    """A question is answered; False where what it is about is given up, or still to come."""
    for at in range(worker, worker + t.ints[t.n_incoming + worker]):
        if t.ints[t.incoming_edge + at] == edge and t.ints[t.sequence + edge] == sequence:
            size_bytes = t.pending_bytes + number_bytes(sequence)
            send(t, worker, t.ints[t.source + edge], size_bytes, PENDING, edge, sequence, 0, 0, 0)
            return t.ints[t.incoming_room + at] >= 0 or not _is_stalled(t, at)
    if t.ints[t.decided + edge] == sequence:
        _send_ack(t, worker, edge, sequence, t.ints[t.accepted + edge])
    return bool(t.ints[t.decided + edge] >= sequence)


def _take_pending(t: Tables, worker: int, edge: int, sequence: int) -> None:
    if t.ints[t.busy + edge] == SENT and t.ints[t.sequence + edge] == sequence:
        _excuse(t, worker, edge, 0)
        t.floats[t.deadline_s + edge] = t.floats[t.clock] + _patience_s(t, edge)


def _wake(t: Tables, worker: int) -> bool:
    """Ask about shares whose answer is late; False where some did not get going."""
    now = t.floats[t.clock]
    if t.floats[t.alarm_s + worker] != now:
        return True  # an earlier one was set since
    t.floats[t.alarm_s + worker] = _NEVER
    for at in range(worker, worker + t.ints[t.n_incoming + worker]):
        if t.ints[t.incoming_room + at] < 0 and _is_stalled(t, at):
            return False
    for at in range(worker, worker + t.ints[t.n_outgoing + worker]):
        edge = t.ints[t.outgoing + at]
        if now >= t.floats[t.deadline_s + edge]:
            if t.ints[t.busy + edge] == OFFERED:
                return False
            t.ints[t.questions + edge] += 1
            sequence = t.ints[t.sequence + edge]
            size_bytes = t.query_bytes + number_bytes(sequence)
            send(t, worker, t.ints[t.to + edge], size_bytes, QUERY, edge, sequence, 0, 0, 0)
            t.floats[t.deadline_s + edge] = now + _patience_s(t, edge)
            if t.ints[t.questions + edge] >= _QUESTIONS_EXCUSED:
                _excuse(t, worker, edge, 1)
    _set_alarm(t, worker)
    return True


def _set_alarm(t: Tables, worker: int) -> None:
    if t.floats[t.alarm_s + worker] > t.floats[t.clock] + t.soonest_s:
        due_s = _NEVER
        for at in range(worker, worker + t.ints[t.n_outgoing + worker]):
            due_s = min(due_s, t.floats[t.deadline_s + t.ints[t.outgoing + at]])
        for at in range(worker, worker + t.ints[t.n_incoming + worker]):
            if t.ints[t.incoming_room + at] < 0:
                due_s = min(due_s, t.floats[t.incoming_s + at] + t.stall_s)
        # Its own step may have outlasted what a message has moved nearer.
        due_s = max(due_s, t.floats[t.clock])
        if due_s < t.floats[t.alarm_s + worker]:
            t.floats[t.alarm_s + worker] = due_s
            enqueue(t, due_s, _AFTER_MESSAGES, worker, ALARM, 0, 0, 0, 0, 0)


def _is_stalled(t: Tables, at: int) -> bool:
    """Whether a share that was let in has not come for too long."""
    return bool(t.floats[t.clock] >= t.floats[t.incoming_s + at] + t.stall_s)


def _send_chunk(t: Tables, worker: int, edge: int) -> None:
    """The values of what was offered follow."""
    t.ints[t.busy + edge] = SENT
    t.floats[t.deadline_s + edge] = t.floats[t.clock] + _patience_s(t, edge)
    sequence, room = t.ints[t.sequence + edge], t.ints[t.room + edge]
    size_bytes = t.chunk_bytes + number_bytes(sequence)
    send(t, worker, t.ints[t.to + edge], size_bytes, CHUNK, edge, sequence, 0, 0, room)


def _patience_s(t: Tables, edge: int) -> float:
    """How long to wait for an answer before asking (again)."""
    wait_s: float = _FIRST_TIMEOUT_S
    if t.floats[t.roundtrip_s + edge] >= 0.0:
        wait_s = t.floats[t.roundtrip_s + edge] + 4 * t.floats[t.deviation_s + edge]
    wait_s *= 2.0 ** min(t.ints[t.questions + edge], _DOUBLINGS_MAX)
    return min(max(wait_s, t.query_s_min), t.query_s_max)


def _measure(t: Tables, edge: int, seconds: float) -> None:
    if t.floats[t.roundtrip_s + edge] < 0.0:
        t.floats[t.roundtrip_s + edge] = seconds
        t.floats[t.deviation_s + edge] = seconds / 2
    else:
        off_s = abs(seconds - t.floats[t.roundtrip_s + edge])
        t.floats[t.deviation_s + edge] += (off_s - t.floats[t.deviation_s + edge]) / 4
        t.floats[t.roundtrip_s + edge] += (seconds - t.floats[t.roundtrip_s + edge]) / 8


def _excuse(t: Tables, worker: int, edge: int, yes: int) -> None:
    """Note whether an outstanding push uses up no credit, since nobody answers."""
    t.ints[t.excused + worker] += yes - t.ints[t.is_excused + edge]
    t.ints[t.is_excused + edge] = yes


def _send_ack(t: Tables, worker: int, edge: int, sequence: int, accepted: int) -> None:
    size_bytes = t.ack_bytes + number_bytes(sequence) + number_bytes(accepted)
    has_credit = 0
    if accepted > 0 and t.ints[t.n_incoming + worker] < t.staged_max:
        has_credit = 1
        size_bytes += t.credit_bytes
    to = t.ints[t.source + edge]
    send(t, worker, to, size_bytes, ACK, edge, sequence, accepted, 0, has_credit)


def _step_at(t: Tables, worker: int, time_s: float) -> None:
    enqueue(t, time_s, _AFTER_ALARMS, worker, STEP, 0, 0, 0, 0, 0)
