"""What GoSGD decides while nothing goes wrong, in plain arithmetic on columns.

One text, used in two ways: Python runs it on lists, and numba, where it is installed, compiles it
for arrays (see `compiler`). It follows `rumor.gossip` event by event under these conditions:
every member is known and stays, nothing is lost or limited, shares are whole models in one message,
weights are whole units. What it emits is compared with what the protocols emit in every run (see
`proof`). Where a condition ends, it says so, and the protocols take over.

Times are in virtual seconds; weights in units, a founder's share being 2^40.
"""

from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

__all__ = [
    "BEYOND",
    "FULL",
    "OVER",
    "STEPS",
    "SUPPLY",
    "TIME",
    "Event",
    "Tables",
    "advance",
    "begin",
]

# Why `advance` has returned.
OVER: Final = 0
"""All workers have taken their steps."""
TIME: Final = 1
"""The time has come."""
STEPS: Final = 2
"""So many steps have been taken."""
SUPPLY: Final = 3
"""A worker's random words or durations are used up."""
FULL: Final = 4
"""A column may not hold what comes next."""
BEYOND: Final = 5
"""Something is due that only the protocols can decide."""

# Kinds of events, and of messages. Priorities as a fleet's: messages first, then alarms, then steps.
PUSH: Final = 0
ACK: Final = 1
QUERY: Final = 2
PENDING: Final = 3
ALARM: Final = 4
STEP: Final = 5

_RANK: Final = 1 << 60
_AFTER_MESSAGES: Final = 1
_AFTER_ALARMS: Final = 2

# Kinds of operations.
SNAPSHOT: Final = 0
MIX: Final = 1
RELEASE: Final = 2

# Places in `Tables.count`.
NUMBER: Final = 0  # of events put into the queue
RUNNING: Final = 1
TAKEN: Final = 2  # optimizer steps
SLOTS: Final = 3  # slots named
FREE: Final = 4  # rooms free
WINDOW: Final = 5
N_STEPS: Final = 6  # rows of this window
N_OPERATIONS: Final = 7
N_LEVELS: Final = 8
WANTING: Final = 9  # worker whose supply is used up
MESSAGES: Final = 10
BYTES: Final = 11
PUSHES: Final = 12
SKIPPED: Final = 13
REFUSALS: Final = 14
MIXED: Final = 15
STALENESS: Final = 16
EVENTS: Final = 17
N_COUNTS: Final = 18

# Operations and random words that one event can take at most.
OPERATIONS_MAX: Final = 64
WORDS_MAX: Final = 8
_ROUNDS_PASSED_MAX: Final = 64
_QUESTIONS_EXCUSED: Final = 2
_DOUBLINGS_MAX: Final = 10
_FIRST_TIMEOUT_S: Final = 1.0
_NEVER: Final = float("inf")

# Below it, halves are no whole units any more; above it, quotients of integers round twice.
_ESCROW_MIN: Final = 1 << 11
_WEIGHT_MAX: Final = 1 << 53

Event = tuple[float, int, int, int, int, int, int, int, int]
"""Time, rank and number, worker, kind, edge, sequence number, weight, step, room."""


class Tables(NamedTuple):
    """Everything that is decided on: columns by worker, by edge (directed), by room and by row.

    Each column is a list of Python's numbers, or a numpy array where compiled code runs.
    """

    queue: Any
    """Heap of events."""
    clock: Any
    """The time now."""
    count: Any
    """Numbers named by constants of this module."""

    # What stays as it is.
    p: float
    latency_s: float
    s_per_byte: float
    query_s_min: float
    query_s_max: float
    soonest_s: float
    outstanding_max: int
    staged_max: int
    steps_each: int
    period: int
    push_bytes: int
    ack_bytes: int
    credit_bytes: int
    """How much longer an answer is that lets a part of the next share follow its offer."""
    query_bytes: int
    pending_bytes: int
    offsets: Any
    """Where a worker's neighbors in a round begin: row ``worker * period + round``, and one more."""
    neighbors: Any
    """Edges to them."""
    source: Any
    to: Any
    name_bytes: Any
    mean_s: Any

    # Supplies of each worker, so many in a row.
    words_each: int
    high: Any
    low: Any
    word: Any
    """The next one."""
    spare: Any
    """The half of a word that is left over, or -1."""
    durations_each: int
    """1 where durations do not vary."""
    durations: Any
    block: Any
    """Which steps the durations at hand are those of: ``block * durations_each`` and on."""

    # Workers.
    weight: Any
    steps: Any
    round: Any
    passed: Any
    finished: Any
    alarm_s: Any
    uplink_free_s: Any
    pushes: Any
    mixed: Any
    level: Any
    n_outgoing: Any
    outgoing: Any
    """Edges of outstanding pushes in order, ``outgoing_max`` places for each worker."""
    outgoing_max: int
    excused: Any
    n_incoming: Any
    incoming_edge: Any
    incoming_step: Any
    incoming_room: Any

    # Edges.
    busy: Any
    sequence: Any
    escrow: Any
    pushed_s: Any
    deadline_s: Any
    questions: Any
    is_excused: Any
    roundtrip_s: Any
    """Negative where none was measured."""
    deviation_s: Any
    decided: Any
    """Sequence number of the last share that was decided at the receiver."""
    accepted: Any

    # Rooms: places of slots, used again.
    free_rooms: Any
    slot: Any
    room_level: Any
    room_window: Any

    # This window, in order.
    step_worker: Any
    step_level: Any
    step_number: Any
    operation: Any
    operation_worker: Any
    operation_level: Any
    operation_slot: Any
    operation_room: Any
    operation_id: Any
    fraction: Any


def begin(t: Tables) -> None:
    """Let every worker's first step be due."""
    for worker in range(len(t.weight)):
        _step_at(t, worker, t.durations[worker * t.durations_each])


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
        if len(queue) == 0 or queue[0][0] > until_s:
            t.clock[0] = until_s
            return TIME
        if count[TAKEN] >= steps_max:
            return STEPS
        worker, kind = queue[0][2], queue[0][3]
        if kind == STEP:
            why = _what_is_missing(t, worker)
            if why != OVER:
                return why
        event = heappop(queue)
        t.clock[0] = event[0]
        count[EVENTS] += 1
        edge, sequence = event[4], event[5]
        if kind == STEP:
            _take_step(t, worker)
        elif kind == PUSH:
            _take_push(t, worker, edge, sequence, event[7], event[8])
        elif kind == ACK:
            _take_ack(t, worker, edge, sequence, event[6])
        elif kind == ALARM:
            _wake(t, worker)
        elif kind == QUERY:
            _take_query(t, worker, edge, sequence)
        else:
            _take_pending(t, worker, edge, sequence)
    return OVER


def _what_is_missing(t: Tables, worker: int) -> int:
    """Why a worker's step cannot be decided here and now; `OVER` where it can."""
    count = t.count
    if (
        count[N_OPERATIONS] + OPERATIONS_MAX > len(t.operation)
        or count[N_STEPS] >= len(t.step_worker)
        or count[FREE] == 0
    ):
        return FULL
    is_new_block = t.durations_each > 1 and (
        (t.steps[worker] + 1) // t.durations_each != t.block[worker]
    )
    if is_new_block or t.word[worker] + WORDS_MAX > t.words_each:
        count[WANTING] = worker
        return SUPPLY
    total = t.weight[worker]
    if total < 2 * _ESCROW_MIN or t.n_outgoing[worker] == t.outgoing_max:
        return BEYOND
    first = worker * t.staged_max
    for at in range(first, first + t.n_incoming[worker]):
        total += t.escrow[t.incoming_edge[at]]
    return OVER if total < _WEIGHT_MAX else BEYOND


def _take_step(t: Tables, worker: int) -> None:
    """A worker comes to the end of a step: it pushes, then mixes what has come."""
    trained = t.finished[worker] == 0
    if trained:
        _note_step(t, worker)
    if _uniform(t, worker) < t.p:
        edge = _draw_neighbor(t, worker)
        if edge < 0:
            t.count[SKIPPED] += 1
        else:
            _push(t, worker, edge)
    _mix_all(t, worker)
    if trained and t.steps[worker] >= t.steps_each:
        t.finished[worker] = 1
        t.count[RUNNING] -= 1
    step_s = t.mean_s[worker]
    if t.finished[worker] == 0:
        step_s = t.durations[
            worker * t.durations_each + t.steps[worker] % t.durations_each
        ]
    _step_at(t, worker, t.clock[0] + step_s)
    _set_alarm(t, worker)


def _draw_neighbor(t: Tables, worker: int) -> int:
    """Edge to a neighbor that a share can be pushed to now; -1 where there is none."""
    if t.n_outgoing[worker] - t.excused[worker] >= t.outstanding_max:
        return -1
    for turn in range(_ROUNDS_PASSED_MAX + 1):
        row = worker * t.period + (t.round[worker] + t.passed[worker]) % t.period
        start, stop = t.offsets[row], t.offsets[row + 1]
        if t.n_outgoing[worker] == 0:
            if stop > start:
                return int(t.neighbors[start + _below(t, worker, stop - start)])
        else:
            n_free = 0
            for at in range(start, stop):
                n_free += 1 - t.busy[t.neighbors[at]]
            if n_free > 0:
                left = _below(t, worker, n_free)
                for at in range(start, stop):
                    edge = t.neighbors[at]
                    if t.busy[edge] == 0:
                        if left == 0:
                            return int(edge)
                        left -= 1
        if turn < _ROUNDS_PASSED_MAX:
            t.passed[worker] += 1
    return -1


def _push(t: Tables, worker: int, edge: int) -> None:
    """Half of the weight goes into escrow, and with a snapshot toward a neighbor."""
    now, escrow = t.clock[0], t.weight[worker] >> 1
    t.sequence[edge] += 1
    room = _snapshot(t, worker, t.round[worker] + 1)
    t.weight[worker] -= escrow
    t.escrow[edge] = escrow
    t.busy[edge] = 1
    t.pushed_s[edge] = now
    t.questions[edge] = 0
    t.is_excused[edge] = 0
    t.deadline_s[edge] = now + _patience_s(t, edge)
    t.outgoing[worker * t.outgoing_max + t.n_outgoing[worker]] = edge
    t.n_outgoing[worker] += 1
    t.count[PUSHES] += 1
    t.pushes[worker] += 1
    sequence, steps = t.sequence[edge], t.steps[worker]
    size_bytes = (
        t.push_bytes
        + _number_bytes(sequence)
        + _number_bytes(escrow)
        + _number_bytes(t.round[worker])
        + _number_bytes(steps)
    )
    _send(t, worker, t.to[edge], size_bytes, PUSH, edge, sequence, 0, steps, room)
    t.round[worker] += 1


def _mix_all(t: Tables, worker: int) -> None:
    """Mix what has come, in order of arrival."""
    n, first = t.n_incoming[worker], worker * t.staged_max
    t.n_incoming[worker] = 0
    for at in range(first, first + n):
        edge, room = t.incoming_edge[at], t.incoming_room[at]
        own, escrow = t.weight[worker], t.escrow[edge]
        level = max(t.level[worker], _level_of(t, room))
        t.level[worker] = level
        t.room_level[room] = level
        _operate(t, MIX, worker, level, room, 0, escrow / (own + escrow))
        _release(t, room)
        t.weight[worker] = own + escrow
        t.decided[edge] = t.sequence[edge]
        t.accepted[edge] = escrow
        _send_ack(t, worker, edge, t.sequence[edge], escrow)
        t.count[MIXED] += 1
        t.mixed[worker] += 1
        t.count[STALENESS] += t.steps[worker] - t.incoming_step[at]


def _take_push(t: Tables, worker: int, edge: int, sequence: int, step: int, room: int) -> None:
    n = t.n_incoming[worker]
    if n >= t.staged_max:
        t.decided[edge] = sequence
        t.accepted[edge] = 0
        _send_ack(t, worker, edge, sequence, 0)
        _release(t, room)
        return
    at = worker * t.staged_max + n
    t.incoming_edge[at] = edge
    t.incoming_step[at] = step
    t.incoming_room[at] = room
    t.n_incoming[worker] = n + 1


def _take_ack(t: Tables, worker: int, edge: int, sequence: int, accepted: int) -> None:
    if t.busy[edge] == 0 or t.sequence[edge] != sequence:
        return
    if t.questions[edge] == 0:
        _measure(t, edge, t.clock[0] - t.pushed_s[edge])
    _excuse(t, worker, edge, 0)
    t.busy[edge] = 0
    first = at = worker * t.outgoing_max
    while t.outgoing[at] != edge:
        at += 1
    t.n_outgoing[worker] -= 1
    while at < first + t.n_outgoing[worker]:
        t.outgoing[at] = t.outgoing[at + 1]
        at += 1
    t.weight[worker] += t.escrow[edge] - accepted
    if accepted == 0:
        t.count[REFUSALS] += 1


def _take_query(t: Tables, worker: int, edge: int, sequence: int) -> None:
    first = worker * t.staged_max
    for at in range(first, first + t.n_incoming[worker]):
        if t.incoming_edge[at] == edge and t.sequence[edge] == sequence:
            size_bytes = t.pending_bytes + _number_bytes(sequence)
            _send(t, worker, t.source[edge], size_bytes, PENDING, edge, sequence, 0, 0, 0)
            return
    if t.decided[edge] == sequence:
        _send_ack(t, worker, edge, sequence, t.accepted[edge])


def _take_pending(t: Tables, worker: int, edge: int, sequence: int) -> None:
    if t.busy[edge] == 1 and t.sequence[edge] == sequence:
        _excuse(t, worker, edge, 0)
        t.deadline_s[edge] = t.clock[0] + _patience_s(t, edge)


def _wake(t: Tables, worker: int) -> None:
    """Ask about shares whose answer is late."""
    now, first = t.clock[0], worker * t.outgoing_max
    if t.alarm_s[worker] != now:
        return  # an earlier one was set since
    t.alarm_s[worker] = _NEVER
    for at in range(first, first + t.n_outgoing[worker]):
        edge = t.outgoing[at]
        if now >= t.deadline_s[edge]:
            t.questions[edge] += 1
            sequence = t.sequence[edge]
            size_bytes = t.query_bytes + _number_bytes(sequence)
            _send(t, worker, t.to[edge], size_bytes, QUERY, edge, sequence, 0, 0, 0)
            t.deadline_s[edge] = now + _patience_s(t, edge)
            if t.questions[edge] >= _QUESTIONS_EXCUSED:
                _excuse(t, worker, edge, 1)
    _set_alarm(t, worker)


def _set_alarm(t: Tables, worker: int) -> None:
    if t.alarm_s[worker] <= t.clock[0] + t.soonest_s:
        return
    due_s, first = _NEVER, worker * t.outgoing_max
    for at in range(first, first + t.n_outgoing[worker]):
        due_s = min(due_s, t.deadline_s[t.outgoing[at]])
    if due_s < t.alarm_s[worker]:
        t.alarm_s[worker] = due_s
        _queue(t, due_s, _AFTER_MESSAGES, worker, ALARM, 0, 0, 0, 0, 0)


def _patience_s(t: Tables, edge: int) -> float:
    """How long to wait for an answer before asking (again)."""
    wait_s = _FIRST_TIMEOUT_S
    if t.roundtrip_s[edge] >= 0.0:
        wait_s = t.roundtrip_s[edge] + 4 * t.deviation_s[edge]
    wait_s *= 2.0 ** min(t.questions[edge], _DOUBLINGS_MAX)
    return min(max(wait_s, t.query_s_min), t.query_s_max)


def _measure(t: Tables, edge: int, seconds: float) -> None:
    if t.roundtrip_s[edge] < 0.0:
        t.roundtrip_s[edge] = seconds
        t.deviation_s[edge] = seconds / 2
        return
    off_s = abs(seconds - t.roundtrip_s[edge])
    t.deviation_s[edge] += (off_s - t.deviation_s[edge]) / 4
    t.roundtrip_s[edge] += (seconds - t.roundtrip_s[edge]) / 8


def _excuse(t: Tables, worker: int, edge: int, yes: int) -> None:
    """Note whether an outstanding push uses up no credit, since nobody answers."""
    t.excused[worker] += yes - t.is_excused[edge]
    t.is_excused[edge] = yes


def _send_ack(t: Tables, worker: int, edge: int, sequence: int, accepted: int) -> None:
    size_bytes = t.ack_bytes + _number_bytes(sequence) + _number_bytes(accepted)
    if accepted > 0 and t.n_incoming[worker] < t.staged_max:
        size_bytes += t.credit_bytes
    _send(t, worker, t.source[edge], size_bytes, ACK, edge, sequence, accepted, 0, 0)


def _send(
    t: Tables,
    worker: int,
    to: int,
    size_bytes: int,
    kind: int,
    edge: int,
    sequence: int,
    accepted: int,
    step: int,
    room: int,
) -> None:
    size_bytes += t.name_bytes[worker] + t.name_bytes[to]
    t.count[MESSAGES] += 1
    t.count[BYTES] += size_bytes
    departure_s = max(t.uplink_free_s[worker], t.clock[0]) + size_bytes * t.s_per_byte
    t.uplink_free_s[worker] = departure_s
    _queue(t, departure_s + t.latency_s, 0, to, kind, edge, sequence, accepted, step, room)


def _step_at(t: Tables, worker: int, time_s: float) -> None:
    _queue(t, time_s, _AFTER_ALARMS, worker, STEP, 0, 0, 0, 0, 0)


def _queue(
    t: Tables,
    time_s: float,
    rank: int,
    worker: int,
    kind: int,
    edge: int,
    sequence: int,
    accepted: int,
    step: int,
    room: int,
) -> None:
    t.count[NUMBER] += 1
    order = rank * _RANK + t.count[NUMBER]
    heappush(t.queue, (time_s, order, worker, kind, edge, sequence, accepted, step, room))


def _number_bytes(number: int) -> int:
    """Of an integer in a message, as msgpack writes it."""
    if number < 128:
        return 1
    if number < 256:
        return 2
    if number < 65536:
        return 3
    return 5 if number < 1 << 32 else 9


def _uniform(t: Tables, worker: int) -> float:
    """A number in [0, 1), as numpy's ``Generator.random`` draws it."""
    at = worker * t.words_each + t.word[worker]
    t.word[worker] += 1
    return float((t.high[at] << 21) | (t.low[at] >> 11)) * 2.0**-53


def _below(t: Tables, worker: int, n: int) -> int:
    """A number in [0, n), as numpy's ``Generator.integers`` draws it.

    Source: Lemire, ACM Transactions on Modeling and Computer Simulation 29, 2019.
    """
    if n == 1:
        return 0
    product = _half_word(t, worker) * n
    if product & 0xFFFFFFFF < n:
        least = (0x100000000 - n) % n
        while product & 0xFFFFFFFF < least:
            product = _half_word(t, worker) * n
    return product >> 32


def _half_word(t: Tables, worker: int) -> int:
    """32 bits: the lower half of a word first, then the upper one."""
    if t.spare[worker] >= 0:
        found = t.spare[worker]
        t.spare[worker] = -1
        return int(found)
    at = worker * t.words_each + t.word[worker]
    t.word[worker] += 1
    t.spare[worker] = t.high[at]
    return int(t.low[at])


def _note_step(t: Tables, worker: int) -> None:
    level = t.level[worker] + 1
    t.level[worker] = level
    t.count[N_LEVELS] = max(t.count[N_LEVELS], level + 1)
    at = t.count[N_STEPS]
    t.step_worker[at] = worker
    t.step_level[at] = level
    t.step_number[at] = t.steps[worker]
    t.count[N_STEPS] = at + 1
    t.count[TAKEN] += 1
    t.steps[worker] += 1


def _snapshot(t: Tables, worker: int, id: int) -> int:
    t.count[FREE] -= 1
    room = int(t.free_rooms[t.count[FREE]])
    t.slot[room] = t.count[SLOTS]
    t.count[SLOTS] += 1
    t.room_level[room] = t.level[worker]
    t.room_window[room] = t.count[WINDOW]
    _operate(t, SNAPSHOT, worker, t.level[worker], room, id, 0.0)
    return room


def _release(t: Tables, room: int) -> None:
    _operate(t, RELEASE, 0, _level_of(t, room), room, 0, 0.0)
    t.free_rooms[t.count[FREE]] = room
    t.count[FREE] += 1


def _level_of(t: Tables, room: int) -> int:
    if t.room_window[room] != t.count[WINDOW]:
        t.room_window[room] = t.count[WINDOW]
        t.room_level[room] = 0
    return int(t.room_level[room])


def _operate(
    t: Tables, operation: int, worker: int, level: int, room: int, id: int, fraction: float
) -> None:
    at = t.count[N_OPERATIONS]
    t.operation[at] = operation
    t.operation_worker[at] = worker
    t.operation_level[at] = level
    t.operation_slot[at] = t.slot[room]
    t.operation_room[at] = room
    t.operation_id[at] = id
    t.fraction[at] = fraction
    t.count[N_OPERATIONS] = at + 1
