"""The columns that exchanges are decided on, and what their numbers mean."""

from typing import Any, Final, NamedTuple

__all__ = [
    "ACK",
    "ALARM",
    "BEYOND",
    "BYTES",
    "CHUNK",
    "COLUMNS",
    "EVENTS",
    "FREE",
    "FULL",
    "GRANT",
    "MESSAGES",
    "MIX",
    "MIXED",
    "NEXT_FREE",
    "NUMBER",
    "N_COUNTS",
    "N_LEVELS",
    "N_OPERATIONS",
    "N_STEPS",
    "OFFER",
    "OFFERED",
    "OPERATIONS_MAX",
    "OVER",
    "PENDING",
    "PUSH",
    "PUSHES",
    "QUERY",
    "REFUSALS",
    "RELEASE",
    "ROOM",
    "ROOM_LEVEL",
    "ROOM_READERS",
    "ROOM_WINDOW",
    "RUNNING",
    "SCALE_LR",
    "SENT",
    "SKIPPED",
    "SLOTS",
    "SNAPSHOT",
    "STAGED_MAX",
    "STALENESS",
    "STEP",
    "STEPS",
    "SUPPLY",
    "TAKEN",
    "TIME",
    "WANTING",
    "WINDOW",
    "WORDS_MAX",
    "Event",
    "Tables",
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

# Kinds of events, and of messages. Of those of one time, messages come first, then alarms.
PUSH: Final = 0
ACK: Final = 1
QUERY: Final = 2
PENDING: Final = 3
ALARM: Final = 4
STEP: Final = 5
OFFER: Final = 6
GRANT: Final = 7
CHUNK: Final = 8

# How far a share has come that keeps an edge busy.
SENT: Final = 1
OFFERED: Final = 2
"""Its values are still its sender's."""

# Kinds of operations.
SNAPSHOT: Final = 0
MIX: Final = 1
RELEASE: Final = 2
SCALE_LR: Final = 3

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
NEXT_FREE: Final = 18  # place of the next free room in their ring
N_COUNTS: Final = 19

# Of a room there are so many numbers: its slot's, and in these places its level, the window that
# this is of, and how many shares read it.
ROOM: Final = 4
ROOM_LEVEL: Final = 1
ROOM_WINDOW: Final = 2
ROOM_READERS: Final = 3

STAGED_MAX: Final = 64
"""Shares that may wait at a worker, at most."""

# Operations and random words that one event can take at most.
OPERATIONS_MAX: Final = 2 * STAGED_MAX + 2
WORDS_MAX: Final = 8

Event = tuple[float, int, int, int, int, int, int, int, int]
"""Time, rank and number, worker, kind, edge, sequence number, weight, step, room."""


class Tables(NamedTuple):
    """Everything that is decided on.

    What belongs to a worker or to an edge lies side by side in its record, so that an event, which
    is about one of each, touches few cache lines. Both are named by where their records begin, from
    the first one on: ``ints[t.weight + worker]`` is a worker's weight. ``ints`` and ``floats`` are
    two views of one memory where compiled code runs; for Python a list and an array.
    """

    queue: Any
    """Heap of events."""
    count: Any
    """Numbers named by constants of this module."""
    ints: Any
    floats: Any
    rooms: Any
    """Slots, used again: ``ROOM`` numbers of each."""
    free_rooms: Any
    """A ring, so that a room rests for as long as can be."""
    step_rows: Any
    """This window's steps in order: of each worker, level, number."""
    operation_rows: Any
    """This window's operations: of each kind, worker, level, slot, room, id of the snapshot. Where
    a learning rate changes: kind, worker, level, then the worker's steps and those of all that
    it knows."""
    fractions: Any
    """This window's operations: by which part each mixes, or when a learning rate changes."""

    # What stays as it is.
    n: int
    """Workers."""
    stride: int
    """From one worker's record to the next one's."""
    shares_out: int
    """1 under SGP, 0 under GoSGD."""
    p: float
    latency_s: float
    s_per_byte: float
    """Of uplinks; 0 where nothing limits them."""
    down_s_per_byte: float
    """Of downlinks, likewise."""
    instant_s: float
    """Less than that is no time."""
    query_s_min: float
    query_s_max: float
    soonest_s: float
    outstanding_max: int
    outgoing_max: int
    staged_max: int
    spans_max: int
    steps_each: int
    steps_total: int
    """Steps of all workers together after which each stops at the end of the one it takes."""
    exchange_s: float
    """By how much each push, and each mix, makes a worker's next step longer."""
    scales_lr: int
    """1 where the learning rate changes as training goes on."""
    period: int
    halves_each: int
    durations_each: int
    push_bytes: int
    ack_bytes: int
    credit_bytes: int
    """How much longer an answer is that lets a part of the next share follow its offer."""
    query_bytes: int
    pending_bytes: int
    in_frames: int
    """1 where shares are offered first, and then come in a frame of their own."""
    offer_bytes: int
    eager_bytes: int
    """How much longer an offer is that its share follows unasked."""
    grant_bytes: int
    chunk_bytes: int
    stall_s: float
    """A share that is not there so long after it was let in is another matter."""
    arriving_max: int

    # The graph.
    offsets: int
    """Where a worker's neighbors in a round begin; rows of a worker follow one another."""
    neighbors: int
    """Edges."""

    # In the record of a worker.
    number: int
    """Which worker it is, counted from 0."""
    first_row: int
    """Of its rows of `offsets`, one for each round of a period."""
    halves: int
    """Of random words, lower and upper in turn, ``halves_each``; among the floats, which Python
    keeps without an object for each."""
    half: int
    """The lower one of the next word."""
    spare: int
    """The half of a word that is left over, or -1."""
    block: int
    """Which steps the durations at hand are those of: ``block * durations_each`` and on."""
    weight: int
    steps: int
    round: int
    """Pushes of GoSGD, turns of SGP."""
    passed: int
    passed_over: int
    """Under SGP: edge to the first neighbor that got nothing the last time, or -1."""
    snapshots: int
    finished: int
    pushes: int
    mixed: int
    known_steps: int
    """Steps of all workers, as they were after its last one."""
    exchanged: int
    """Pushes and mixes that steps so far were longer for."""
    level: int
    n_outgoing: int
    outgoing: int
    """Edges of outstanding pushes in order; ``outgoing_max`` places."""
    excused: int
    n_incoming: int
    top_span: int
    n_spans: int
    incoming_edge: int
    """Of shares that have come, in order; ``staged_max`` places."""
    incoming_step: int
    incoming_room: int
    """Negative until its frame has come."""
    incoming_s: int
    """When it was offered; ``arriving_max`` places."""
    mean_s: int
    durations: int
    """Of its next ``durations_each`` steps."""
    alarm_s: int
    uplink_free_s: int
    span_start_s: int
    """``spans_max`` spans in which its downlink was busy: `models.links.Port`."""
    span_stop_s: int

    # In the record of an edge.
    source: int
    to: int
    name_bytes: int
    """Of both in a message."""
    busy: int
    """0, `SENT` or `OFFERED`."""
    sequence: int
    escrow: int
    questions: int
    is_excused: int
    decided: int
    """Sequence number of the last share that was decided at the receiver."""
    accepted: int
    credit: int
    """1 where the next share may follow its offer unasked."""
    room: int
    """Of what is offered."""
    pushed_s: int
    deadline_s: int
    roundtrip_s: int
    """Negative where none was measured."""
    deviation_s: int

    clock: int
    """The time now."""


COLUMNS: Final = (
    "queue", "count", "ints", "floats", "rooms", "free_rooms", "step_rows", "operation_rows",
    "fractions",
)  # fmt: skip
"""The first fields of `Tables`, which change; all others are numbers that stay as they are."""
