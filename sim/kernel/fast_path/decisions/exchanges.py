"""Decisions of GoSGD and SGP without faults, compiled to machine code.

Each function names the method that it mirrors. It does the same, event by event, under these
conditions: every member is known and stays, nothing is lost or limited, shares are whole models in
one message or one frame, weights are whole units. When a condition ends, `advance` returns
`UNSUPPORTED`, and the protocols take over. In every run the first window is also decided by the
protocols, and compared (see `rumor.sim.kernel.fast_path.choice.verify_against_protocol`).

Times are in virtual seconds; weights in units, a founder's share being 2^40.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from .....gossip import weight
from .....gossip.exchange import flow_control, incoming, outgoing
from .....gossip.protocol import context
from ... import program
from .. import compiler
from ..compiler import compiled, compiled_once
from . import tables
from .events import drop, enqueue, number_bytes, send, waits
from .operations import decref, has_buffer, incref, mix, note_step, snapshot
from .randoms import below, poisson, uniform
from .tables import Tables

__all__ = ["advance"]

# A numpy number, since numba would compile callees again for each literal.
_AFTER_MESSAGES: Final[Any] = np.int64(1)
_AFTER_ALARMS: Final[Any] = np.int64(2)

_NEVER: Final = float("inf")
_NO_BUFFER: Final[Any] = np.int64(-1)

# Below it, parts are not whole units; above it, quotients of integers round twice.
_ESCROW_MIN: Final = weight.WHOLE_MIN // weight.UNIT
_WEIGHT_MAX: Final = 1 << 53

_HARMLESS: Final = weight.HARMLESS // weight.UNIT
_ACCEPTED_MAX: Final = weight.FOUNDERS_MAX * weight.UNITS_PER_FOUNDER
_TIMES_OWN: Final = weight.TIMES_OWN

_FIRST_TIMEOUT_S: Final = flow_control.FIRST_TIMEOUT_S
_PROGRESS_REPORTS: Final = incoming.PROGRESS_REPORTS
_DOUBLINGS_MAX: Final = outgoing.DOUBLINGS_MAX
_EXCUSED_AFTER: Final = outgoing.EXCUSED_AFTER
_ROUNDS_PASSED_MAX: Final = context.ROUNDS_PASSED_MAX

_SOURCES: Final = (
    *Path(__file__).parent.glob("*.py"),
    *(
        Path(str(module.__file__))
        for module in (compiler, program, weight, flow_control, incoming, outgoing, context)
    ),
)


@compiled_once(_SOURCES)
def advance(t: Tables, until_s: float, steps_max: int) -> int:
    """Run all events until a virtual time, seconds, or a number of steps. Mirrors `Fleet.run`."""
    totals, queue = t.totals[0], t.queue
    if totals.events_queued == 0:
        for worker in range(len(t.workers)):
            _step_at(t, worker, t.durations[worker, 0])
    while totals.running > 0:
        if queue.size[0] == 0 or queue.times[0] > until_s:
            totals.now_s = until_s
            return tables.TIME
        # What one event leads to has to fit.
        is_full = queue.size[0] + tables.QUEUE_SPARE > len(queue.times)
        if is_full or totals.n_operations + tables.OPERATIONS_MAX > len(t.fractions):
            return tables.FULL
        if totals.steps >= steps_max:
            return tables.STEPS
        event = queue.events[queue.places[0]]
        worker, kind = event.worker, event.kind
        if kind == tables.STEP:
            why = _step_requirement(t, worker)
            if why != tables.OVER:
                return why
        totals.now_s = queue.times[0]
        totals.events += 1
        if kind == tables.STEP:
            drop(queue)
            _take_step(t, worker)
        elif kind == tables.ALARM:
            drop(queue)
            if not _wake(t, worker):
                return tables.UNSUPPORTED
        elif t.down_s_per_byte == 0.0 or not waits(t, event):
            # Whatever is pushed from here on may overwrite the event.
            edge, sequence, accepted = event.edge, event.sequence, event.accepted
            step, buffer = event.step, event.buffer
            is_eager, has_credit = event.is_eager, event.has_credit
            drop(queue)
            known = True
            if kind == tables.PUSH:
                _take_push(t, worker, edge, sequence, step, buffer)
            elif kind == tables.ACK:
                known = _take_ack(t, worker, edge, sequence, accepted, has_credit)
            elif kind == tables.OFFER:
                _take_offer(t, worker, edge, sequence, step, is_eager)
            elif kind == tables.GRANT:
                _take_grant(t, worker, edge, sequence)
            elif kind == tables.CHUNK:
                known = _take_chunk(t, worker, edge, sequence, buffer)
            elif kind == tables.QUERY:
                known = _take_query(t, worker, edge, sequence)
            else:
                _take_pending(t, worker, edge, sequence)
            if not known:
                return tables.UNSUPPORTED
    return tables.OVER


@compiled
def _step_requirement(t: Tables, worker: int) -> int:
    """Return why a worker's step cannot be decided here and now; `OVER` if it can."""
    totals, me = t.totals[0], t.workers[worker]
    if totals.n_steps >= len(t.step_times) or not has_buffer(t, worker):
        return tables.FULL
    n_durations = t.durations.shape[1]
    if (
        n_durations > 1 and (me.steps + 1) // n_durations != me.block
    ) or me.halves_used + tables.HALVES_MAX > t.halves.shape[1]:
        totals.starved_worker = worker
        return tables.NEED_RANDOMS
    if me.due < 0:
        why = _draw_due(t, worker, t.queue.times[0])
        if why != tables.OVER:
            return why
    n_pushes = max(0, min(me.due, t.outstanding_max + me.excused - me.n_outgoing))
    least = me.weight >> n_pushes
    if t.shares_out == 1:
        row = _row(t, worker, me.round)
        n_pushes = t.offsets[row + 1] - t.offsets[row]
        least = me.weight // (n_pushes + 1)
    if me.halves_used + tables.HALVES_MAX + n_pushes > t.halves.shape[1]:
        totals.starved_worker = worker
        return tables.NEED_RANDOMS if me.halves_used > 0 else tables.UNSUPPORTED
    if least < _ESCROW_MIN or me.n_outgoing + n_pushes > t.outgoing.shape[1]:
        return tables.UNSUPPORTED
    total = me.weight
    for at in range(me.n_incoming):
        total += t.edges[t.incoming[worker, at].edge].escrow
    return tables.OVER if total < _WEIGHT_MAX else tables.UNSUPPORTED


@compiled
def _draw_due(t: Tables, worker: int, now_s: float) -> int:
    """Draw how many pushes are due at a turn; return `OVER`, or why not. Mirrors `GoSGD._due`."""
    me = t.workers[worker]
    me.due = 0
    if t.is_timed == 1:
        elapsed_s = now_s - me.called_s if me.called_s >= 0.0 else 0.0
        used, spare = me.halves_used, me.spare_half
        me.due = poisson(t, worker, t.p * elapsed_s)
        if me.due < 0:
            # Draw again from the same word, with those that follow.
            me.halves_used, me.spare_half = used, spare
            t.totals[0].starved_worker = worker
            return tables.NEED_RANDOMS if used > 0 else tables.UNSUPPORTED
    elif t.shares_out == 0:
        me.due = int(uniform(t, worker) < t.p)
    return tables.OVER


@compiled
def _take_step(t: Tables, worker: int) -> None:
    """Push, then mix what has arrived. Mirrors `Fleet.step`, `GoSGD.step` and `SGP.step`."""
    totals, me = t.totals[0], t.workers[worker]
    trained = me.finished == 0
    if trained:
        note_step(t, worker)
    if t.shares_out == 1:
        _share_out(t, worker)
    else:
        buffer = _NO_BUFFER
        for _ in range(me.due):
            buffer = _push_half(t, worker, buffer)
    me.due, me.called_s = -1, totals.now_s
    _mix_all(t, worker)
    if trained and (totals.steps >= t.steps_total or me.steps >= t.steps_each):
        me.finished = 1
        totals.running -= 1
    step_s = me.mean_s
    if me.finished == 0:
        step_s = t.durations[worker, me.steps % t.durations.shape[1]]
    if t.exchange_s > 0.0:
        exchanged = me.pushes + me.mixed
        step_s += t.exchange_s * (exchanged - me.exchanged)
        me.exchanged = exchanged
    _step_at(t, worker, totals.now_s + step_s)
    _set_alarm(t, worker)


@compiled
def _push_half(t: Tables, worker: int, buffer: int) -> int:
    """Push half of the weight to a random neighbor. Mirrors `RuleContext.push_half`."""
    # Takes and returns the buffer of what was pushed before at this turn, if anything was.
    me = t.workers[worker]
    edge = _draw_neighbor(t, worker)
    if edge < 0:
        t.totals[0].skipped += 1
        return buffer
    if buffer < 0:
        buffer = snapshot(t, worker)
    else:
        incref(t, buffer)
    _push(t, worker, edge, me.weight >> 1, buffer)
    me.round += 1
    return buffer


@compiled
def _share_out(t: Tables, worker: int) -> None:
    """Push even parts of the weight to all neighbors of the round. Mirrors `SGP._share_out`."""
    me = t.workers[worker]
    row = _row(t, worker, me.round)
    start = t.offsets[row]
    n = t.offsets[row + 1] - start
    me.round += 1
    escrow, first, buffer = me.weight // (n + 1), 0, _NO_BUFFER
    for at in range(n):
        if t.neighbors[start + at] == me.passed_over:
            first = at
    me.passed_over = -1
    for at in range(n):
        edge = t.neighbors[start + (first + at) % n]
        if _has_credit(t, worker) and t.edges[edge].busy == 0:
            if buffer < 0:
                buffer = snapshot(t, worker)
            else:
                incref(t, buffer)
            _push(t, worker, edge, escrow, buffer)
        else:
            t.totals[0].skipped += 1
            if me.passed_over < 0:
                me.passed_over = edge


@compiled
def _draw_neighbor(t: Tables, worker: int) -> int:
    """Return an edge to a random neighbor with credit, or -1. Mirrors `RuleContext.draw`."""
    me = t.workers[worker]
    if not _has_credit(t, worker):
        return -1
    for turn in range(_ROUNDS_PASSED_MAX + 1):
        row = _row(t, worker, me.round + me.passed)
        start, stop = t.offsets[row], t.offsets[row + 1]
        if me.n_outgoing == 0:
            if stop > start:
                return t.neighbors[start + below(t, worker, stop - start)]
        else:
            n_free = 0
            for at in range(start, stop):
                n_free += t.edges[t.neighbors[at]].busy == 0
            if n_free > 0:
                left = below(t, worker, n_free)
                for at in range(start, stop):
                    edge = t.neighbors[at]
                    if t.edges[edge].busy == 0:
                        if left == 0:
                            return edge
                        left -= 1
        if turn < _ROUNDS_PASSED_MAX:
            me.passed += 1
    return -1


@compiled
def _row(t: Tables, worker: int, round: int) -> int:
    """Return the row of a worker's neighbors in a round. Mirrors `RuleContext.neighbors`."""
    return worker * t.period + round % t.period


@compiled
def _has_credit(t: Tables, worker: int) -> bool:
    """Return True if one more push may be outstanding. Mirrors `RuleContext._has_credit`."""
    me = t.workers[worker]
    return me.n_outgoing - me.excused < t.outstanding_max


@compiled
def _push(t: Tables, worker: int, edge: int, escrow: int, buffer: int) -> None:
    """Put weight into escrow, and push it with a snapshot to a neighbor. Mirrors `Outbox.push`."""
    totals, me, link = t.totals[0], t.workers[worker], t.edges[edge]
    link.sequence += 1
    me.weight -= escrow
    link.escrow = escrow
    link.busy = tables.SENT
    link.pushed_s = totals.now_s
    link.questions = 0
    link.is_excused = 0
    link.deadline_s = totals.now_s + _patience_s(t, edge)
    t.outgoing[worker, me.n_outgoing] = edge
    me.n_outgoing += 1
    totals.pushes += 1
    me.pushes += 1
    size_bytes = number_bytes(link.sequence) + number_bytes(escrow)
    size_bytes += number_bytes(me.steps) + number_bytes(me.round)
    if t.in_frames == 0:
        size_bytes += t.push_bytes
        message = send(t, worker, link.to, size_bytes, edge, link.sequence)
        message.kind = tables.PUSH
        message.step, message.buffer = me.steps, buffer
        return
    is_eager = link.credit
    link.credit = 0
    link.buffer = buffer
    link.busy = tables.OFFERED
    link.deadline_s = totals.now_s + t.stall_s
    size_bytes += t.offer_bytes + is_eager * t.eager_bytes
    message = send(t, worker, link.to, size_bytes, edge, link.sequence)
    message.kind = tables.OFFER
    message.step, message.is_eager = me.steps, is_eager
    if is_eager == 1:
        _send_chunk(t, worker, edge)


@compiled
def _mix_all(t: Tables, worker: int) -> None:
    """Mix shares in order of arrival. Mirrors `RuleContext.mix` and `Inbox.decide`."""
    totals, me = t.totals[0], t.workers[worker]
    n, n_arriving = me.n_incoming, 0
    me.n_incoming = 0
    for at in range(n):
        share = t.incoming[worker, at]
        if share.buffer < 0:
            arriving = t.incoming[worker, n_arriving]
            arriving.edge, arriving.step = share.edge, share.step
            arriving.buffer, arriving.offered_s = share.buffer, share.offered_s
            n_arriving += 1
            continue
        link = t.edges[share.edge]
        accepted = _acceptable(me.weight, link.escrow)
        mix(t, worker, share.buffer, accepted / (me.weight + accepted))
        decref(t, share.buffer)
        me.weight += accepted
        link.decided, link.accepted = link.sequence, accepted
        _send_ack(t, worker, share.edge, link.sequence, accepted)
        totals.mixed += 1
        me.mixed += 1
        totals.staleness_steps += max(0, me.steps - share.step)
    me.n_incoming = n_arriving


@compiled
def _acceptable(own: int, offered: int) -> int:
    """Mirrors `rumor.gossip.weight.acceptable`, for whole units from a peer that stays."""
    most = max(_TIMES_OWN * min(own, _ACCEPTED_MAX), _HARMLESS)
    return min(offered, most, _ACCEPTED_MAX)


@compiled
def _take_push(t: Tables, worker: int, edge: int, sequence: int, step: int, buffer: int) -> None:
    """Mirrors `Inbox.push`."""
    if not _let_in(t, worker, edge, sequence, step, buffer):
        decref(t, buffer)


@compiled
def _take_offer(t: Tables, worker: int, edge: int, sequence: int, step: int, is_eager: int) -> None:
    """Mirrors `Inbox.offer`."""
    at = t.workers[worker].n_incoming
    if _let_in(t, worker, edge, sequence, step, _NO_BUFFER):
        t.incoming[worker, at].offered_s = t.totals[0].now_s
        if is_eager == 0:
            size_bytes = t.grant_bytes + number_bytes(sequence)
            send(t, worker, t.edges[edge].source, size_bytes, edge, sequence).kind = tables.GRANT


@compiled
def _let_in(t: Tables, worker: int, edge: int, sequence: int, step: int, buffer: int) -> bool:
    """Admit a share or refuse it; return True if admitted. Mirrors `Inbox._open`."""
    me, link = t.workers[worker], t.edges[edge]
    if me.n_incoming == t.incoming.shape[1]:
        link.decided, link.accepted = sequence, 0
        _send_ack(t, worker, edge, sequence, link.accepted)
        return False
    share = t.incoming[worker, me.n_incoming]
    share.edge, share.step, share.buffer = edge, step, buffer
    me.n_incoming += 1
    return True


@compiled
def _take_grant(t: Tables, worker: int, edge: int, sequence: int) -> None:
    """Mirrors `Outbox.grant`."""
    link = t.edges[edge]
    if link.busy == tables.OFFERED and link.sequence == sequence:
        _send_chunk(t, worker, edge)


@compiled
def _take_chunk(t: Tables, worker: int, edge: int, sequence: int, buffer: int) -> bool:
    """Return False if the sender is to learn of its values' pace. Mirrors `Inbox.chunk`."""
    share = _incoming_share(t, worker, edge, sequence)
    if share < 0:
        decref(t, buffer)
        return True
    t.incoming[worker, share].buffer = buffer
    late_s = t.incoming[worker, share].offered_s + t.stall_s / _PROGRESS_REPORTS
    return t.totals[0].now_s < late_s


@compiled
def _incoming_share(t: Tables, worker: int, edge: int, sequence: int) -> int:
    """Return the position of a share among the admitted ones, or -1. Mirrors `Inbox._find`."""
    for at in range(t.workers[worker].n_incoming):
        if t.incoming[worker, at].edge == edge and t.edges[edge].sequence == sequence:
            return at
    return -1


@compiled
def _take_ack(
    t: Tables, worker: int, edge: int, sequence: int, accepted: int, has_credit: int
) -> bool:
    """Settle an ack; return False if it says that a share has stalled. Mirrors `Outbox.ack`."""
    me, link = t.workers[worker], t.edges[edge]
    if link.busy == 0 or link.sequence != sequence:
        return True
    lasted_s = t.totals[0].now_s - link.pushed_s
    if link.busy == tables.OFFERED:
        decref(t, link.buffer)
    elif link.questions == 0:
        _measure(t, edge, lasted_s)
    if has_credit == 1:
        link.credit = 1
    _excuse(t, worker, edge, False)
    link.busy = 0
    at = 0
    while t.outgoing[worker, at] != edge:
        at += 1
    me.n_outgoing -= 1
    while at < me.n_outgoing:
        t.outgoing[worker, at] = t.outgoing[worker, at + 1]
        at += 1
    me.weight += link.escrow - accepted
    if accepted == 0:
        t.totals[0].refusals += 1
        return t.in_frames == 0 or lasted_s < t.stall_s / 2
    return True


@compiled
def _take_query(t: Tables, worker: int, edge: int, sequence: int) -> bool:
    """Return False if a query's share is given up, or still to come. Mirrors `Inbox.query`."""
    link = t.edges[edge]
    share = _incoming_share(t, worker, edge, sequence)
    if share >= 0:
        size_bytes = t.pending_bytes + number_bytes(sequence)
        send(t, worker, link.source, size_bytes, edge, sequence).kind = tables.PENDING
        return not _is_stalled(t, worker, share)
    if link.decided == sequence:
        _send_ack(t, worker, edge, sequence, link.accepted)
    return link.decided >= sequence


@compiled
def _take_pending(t: Tables, worker: int, edge: int, sequence: int) -> None:
    """Mirrors `Outbox.pending`."""
    link = t.edges[edge]
    if link.busy == tables.SENT and link.sequence == sequence:
        _excuse(t, worker, edge, False)
        link.deadline_s = t.totals[0].now_s + _patience_s(t, edge)


@compiled
def _wake(t: Tables, worker: int) -> bool:
    """Return False if some shares have stalled. Mirrors `Inbox.expire` and `Outbox.query_due`."""
    now_s, me = t.totals[0].now_s, t.workers[worker]
    if me.alarm_s != now_s:
        return True  # an earlier alarm was set since
    me.alarm_s = _NEVER
    for at in range(me.n_incoming):
        if _is_stalled(t, worker, at):
            return False
    for at in range(me.n_outgoing):
        edge = t.outgoing[worker, at]
        link = t.edges[edge]
        if now_s >= link.deadline_s:
            if link.busy == tables.OFFERED:
                return False
            link.questions += 1
            size_bytes = t.query_bytes + number_bytes(link.sequence)
            send(t, worker, link.to, size_bytes, edge, link.sequence).kind = tables.QUERY
            link.deadline_s = now_s + _patience_s(t, edge)
            if link.questions >= _EXCUSED_AFTER:
                _excuse(t, worker, edge, True)
    _set_alarm(t, worker)
    return True


@compiled
def _set_alarm(t: Tables, worker: int) -> None:
    """Mirrors `Fleet.set_alarm` and `Protocol.deadline`."""
    now_s, me = t.totals[0].now_s, t.workers[worker]
    if me.alarm_s > now_s + t.soonest_s:
        due_s = _NEVER
        for at in range(me.n_outgoing):
            due_s = min(due_s, t.edges[t.outgoing[worker, at]].deadline_s)
        for at in range(me.n_incoming):
            share = t.incoming[worker, at]
            if share.buffer < 0:
                due_s = min(due_s, share.offered_s + t.stall_s)
        # Its own step may have outlasted a deadline that a message has moved nearer.
        due_s = max(due_s, now_s)
        if due_s < me.alarm_s:
            me.alarm_s = due_s
            enqueue(t, due_s, _AFTER_MESSAGES, worker).kind = tables.ALARM


@compiled
def _is_stalled(t: Tables, worker: int, at: int) -> bool:
    """Return True if a share has stalled. Mirrors `Inbox._give_up_if_stalled`."""
    share = t.incoming[worker, at]
    return share.buffer < 0 and t.totals[0].now_s >= share.offered_s + t.stall_s


@compiled
def _send_chunk(t: Tables, worker: int, edge: int) -> None:
    """Send the values of an offered share. Mirrors `Outbox._stream`."""
    link = t.edges[edge]
    link.busy = tables.SENT
    link.deadline_s = t.totals[0].now_s + _patience_s(t, edge)
    size_bytes = t.chunk_bytes + number_bytes(link.sequence)
    message = send(t, worker, link.to, size_bytes, edge, link.sequence)
    message.kind = tables.CHUNK
    message.buffer = link.buffer


@compiled
def _patience_s(t: Tables, edge: int) -> float:
    """Return the timeout before a query, or before the next one. Mirrors `Outbox._patience_s`."""
    link = t.edges[edge]
    wait_s = _FIRST_TIMEOUT_S
    if link.roundtrip_s >= 0.0:
        wait_s = link.roundtrip_s + 4 * link.deviation_s
    wait_s *= 2.0 ** min(link.questions, _DOUBLINGS_MAX)
    return min(max(wait_s, t.query_s_min), t.query_s_max)


@compiled
def _measure(t: Tables, edge: int, seconds: float) -> None:
    """Mirrors `LinkEstimator.answered`."""
    link = t.edges[edge]
    if link.roundtrip_s < 0.0:
        link.roundtrip_s, link.deviation_s = seconds, seconds / 2
    else:
        link.deviation_s += (abs(seconds - link.roundtrip_s) - link.deviation_s) / 4
        link.roundtrip_s += (seconds - link.roundtrip_s) / 8


@compiled
def _excuse(t: Tables, worker: int, edge: int, yes: bool) -> None:
    """Record if a push uses no credit, since no answer comes. Mirrors `Outbox._ask`."""
    link = t.edges[edge]
    t.workers[worker].excused += yes - link.is_excused
    link.is_excused = yes


@compiled
def _send_ack(t: Tables, worker: int, edge: int, sequence: int, accepted: int) -> None:
    """Mirrors `Inbox._acknowledge`."""
    size_bytes = t.ack_bytes + number_bytes(sequence) + number_bytes(accepted)
    has_credit = 0
    if accepted > 0 and t.workers[worker].n_incoming < t.incoming.shape[1]:
        has_credit = 1
        size_bytes += t.credit_bytes
    message = send(t, worker, t.edges[edge].source, size_bytes, edge, sequence)
    message.kind = tables.ACK
    message.accepted, message.has_credit = accepted, has_credit


@compiled
def _step_at(t: Tables, worker: int, time_s: float) -> None:
    """Mirrors `Fleet.turn_at`."""
    enqueue(t, time_s, _AFTER_ALARMS, worker).kind = tables.STEP
