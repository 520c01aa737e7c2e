"""Tables of the fast path, and the meaning of their numbers."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    *("ACK", "ALARM", "CHUNK", "GRANT", "OFFER", "PENDING", "PUSH", "QUERY", "STEP"),
    *("FULL", "NEED_RANDOMS", "OVER", "STEPS", "TIME", "UNSUPPORTED"),
    *("OFFERED", "SENT"),
    *("BUFFER", "EDGE", "EVENT", "INCOMING", "SPAN", "TOTALS", "WORKER"),
    *("HALVES_MAX", "OPERATIONS_MAX", "QUEUE_SPARE", "STAGED_MAX"),
    *("Queue", "Tables"),
]

# Why `advance` has returned.
OVER: Final = 0  # all workers have taken their steps
TIME: Final = 1  # the given time is reached
STEPS: Final = 2  # the given number of steps is reached
NEED_RANDOMS: Final = 3  # random words or step durations of `TOTALS.starved_worker` are used up
FULL: Final = 4  # a table may be too small for what comes next
UNSUPPORTED: Final = 5  # something is due that only the protocols can decide

# Kinds of events, and of messages. At one time, messages come first, then alarms, then steps.
PUSH: Final = 0
ACK: Final = 1
QUERY: Final = 2
PENDING: Final = 3
ALARM: Final = 4
STEP: Final = 5
OFFER: Final = 6
GRANT: Final = 7
CHUNK: Final = 8

# Progress of a share that keeps an edge busy.
SENT: Final = 1
OFFERED: Final = 2  # the sender still owns the buffer

STAGED_MAX: Final = 64  # maximum number of shares that wait at a worker

# Maximum number of operations, and of halves of random words, that one event takes.
OPERATIONS_MAX: Final = 2 * STAGED_MAX + 2
HALVES_MAX: Final = 16

# Maximum number of events of one turn: an offer, a frame and an ack per share, and three.
QUEUE_SPARE: Final = 3 * STAGED_MAX + 3

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)

EVENT: Final = np.dtype(
    [
        ("kind", _INT),
        ("worker", _INT),  # whose step or alarm it is, or the receiver
        ("edge", _INT),  # this and all that follow: messages only
        ("sequence", _INT),
        ("size_bytes", _INT),  # 0 once the receiver's downlink has passed it
        ("accepted", _INT),  # weight; ACK
        ("step", _INT),  # sender's step; PUSH and OFFER
        ("buffer", _INT),  # PUSH and CHUNK
        ("is_eager", _INT),  # 1 if the CHUNK follows without a grant; OFFER
        ("has_credit", _INT),  # 1 if the next share may follow its offer without a grant; ACK
    ],
    align=True,
)

WORKER: Final = np.dtype(
    [
        ("weight", _INT),
        ("steps", _INT),
        ("round", _INT),  # pushes under GoSGD, turns under SGP
        ("passed", _INT),  # additional rounds that were skipped
        ("passed_over", _INT),  # SGP: edge to the first neighbor that got nothing, or -1
        ("due", _INT),  # pushes at its next turn, -1 if not drawn yet
        ("halves_used", _INT),
        ("spare_half", _INT),  # unused half of a random word, or -1
        ("block", _INT),  # its durations are those of steps from block * durations_each on
        ("level", _INT),
        ("snapshots", _INT),
        ("finished", _INT),
        ("pushes", _INT),
        ("mixed", _INT),
        ("known_steps", _INT),  # steps of all workers, as of its last one
        ("exchanged", _INT),  # pushes and mixes that have already extended a step
        ("n_outgoing", _INT),
        ("excused", _INT),  # outgoing shares that use no credit
        ("n_incoming", _INT),
        ("top_span", _INT),
        ("n_spans", _INT),
        ("called_s", _FLOAT),  # time of its last turn, negative before the first
        ("mean_s", _FLOAT),
        ("alarm_s", _FLOAT),
        ("uplink_free_s", _FLOAT),
    ],
    align=True,
)

EDGE: Final = np.dtype(
    [
        ("source", _INT),
        ("to", _INT),
        ("name_bytes", _INT),  # both names in a message
        ("busy", _INT),  # 0, SENT or OFFERED
        ("sequence", _INT),
        ("escrow", _INT),
        ("questions", _INT),
        ("is_excused", _INT),
        ("decided", _INT),  # sequence number of the last share that the receiver has decided
        ("accepted", _INT),
        ("credit", _INT),  # 1 if the next share may follow its offer without a grant
        ("buffer", _INT),  # buffer of the offered share
        ("pushed_s", _FLOAT),
        ("deadline_s", _FLOAT),
        ("roundtrip_s", _FLOAT),  # negative before the first measurement
        ("deviation_s", _FLOAT),
    ],
    align=True,
)

INCOMING: Final = np.dtype(
    [
        ("edge", _INT),
        ("step", _INT),
        ("buffer", _INT),  # negative until its frame arrives
        ("offered_s", _FLOAT),  # offered shares only
    ],
    align=True,
)

SPAN: Final = np.dtype([("start_s", _FLOAT), ("stop_s", _FLOAT)], align=True)

BUFFER: Final = np.dtype(
    [("slot", _INT), ("level", _INT), ("window", _INT), ("readers", _INT)], align=True
)

TOTALS: Final = np.dtype(
    [
        ("now_s", _FLOAT),
        ("events_queued", _INT),  # since the start
        ("running", _INT),  # workers
        ("steps", _INT),
        ("slots", _INT),  # named since the start
        ("n_free", _INT),  # buffers
        ("next_free", _INT),  # position in their ring
        ("window", _INT),
        ("n_steps", _INT),  # rows of this window, as is the next
        ("n_operations", _INT),
        ("starved_worker", _INT),
        ("messages", _INT),
        ("bytes_sent", _INT),
        ("pushes", _INT),
        ("skipped", _INT),
        ("refusals", _INT),
        ("mixed", _INT),
        ("staleness_steps", _INT),
        ("events", _INT),
    ],
    align=True,
)


class Queue(NamedTuple):
    """Queue of events, a binary heap: an event's record stays at its place."""

    times: NDArray[np.float64]
    orders: NDArray[np.int64]
    places: NDArray[np.int64]  # places of the events in the heap, then free ones
    events: Any  # records of `EVENT`
    size: NDArray[np.int64]  # one number: how many events are queued

    @classmethod
    def for_events(cls, n: int) -> "Queue":
        """Make an empty queue with room for *n* events."""
        n += QUEUE_SPARE
        return cls(
            np.zeros(n), np.zeros(n, np.int64), np.arange(n), np.zeros(n, EVENT),
            np.zeros(1, np.int64),
        )  # fmt: skip

    def doubled(self) -> "Queue":
        """Return a queue with twice the room."""
        n = len(self.times)
        return Queue(
            np.concatenate([self.times, np.zeros(n)]),
            np.concatenate([self.orders, np.zeros(n, np.int64)]),
            np.concatenate([self.places, np.arange(n, 2 * n)]),
            np.concatenate([self.events, np.zeros(n, EVENT)]),
            self.size,
        )


class Tables(NamedTuple):
    """State of a swarm: a structured array per kind of object, and constants."""

    queue: Any  # see `Queue`
    totals: Any  # one record of `TOTALS`
    workers: Any  # records of `WORKER`, axis ``worker``
    edges: Any  # records of `EDGE`, axis ``edge``
    incoming: Any  # shares that have arrived in order: records of `INCOMING`, as `outgoing`
    outgoing: Any  # edges of outstanding pushes, in order, axes ``(worker, place)``
    spans: Any  # busy times of downlinks, see `Port`: records of `SPAN`, axes ``(worker, place)``
    halves: Any  # halves of random words, the lower ones first, uint32, axes ``(worker, half)``
    durations: Any  # durations of the next steps, seconds, axes ``(worker, step % durations_each)``
    buffers: Any  # slots, reused: records of `BUFFER`, axis ``buffer``
    free_buffers: Any  # a ring, so that a buffer rests for as long as possible
    # This window's steps in order: worker, level, number, steps of all workers that it knows of.
    step_rows: Any
    step_times: Any  # virtual time of each
    # This window's operations: kind, worker, level, slot, buffer, id of the snapshot.
    operation_rows: Any
    fractions: Any  # of each mix
    offsets: Any  # start of a worker's neighbors in a round: row ``worker * period + round``
    neighbors: Any  # edges

    shares_out: int  # 1 under SGP, 0 under GoSGD
    p: float
    is_timed: int  # 1 if p is the mean number of pushes per second
    latency_s: float
    s_per_byte: float  # uplinks' time per byte; 0 if they are unlimited
    down_s_per_byte: float  # downlinks' time per byte; 0 if they are unlimited
    instant_s: float  # shorter times count as 0
    query_s_min: float
    query_s_max: float
    soonest_s: float  # minimum time from setting an alarm until it is due
    stall_s: float  # the protocols decide on a share that was offered longer ago than this
    outstanding_max: int
    steps_each: int
    steps_total: int  # of all workers; then each stops at the end of its current one
    exchange_s: float  # how much each push, and each mix, extends a worker's next step
    period: int
    push_bytes: int
    ack_bytes: int
    credit_bytes: int  # more of an ack that lets a part of the next share follow its offer
    query_bytes: int
    pending_bytes: int
    in_frames: int  # 1 if shares are offered first, and then follow in their own frame
    offer_bytes: int
    eager_bytes: int  # additional bytes of an offer whose share follows without a grant
    grant_bytes: int
    chunk_bytes: int
