"""The tables that exchanges are decided on, and what their numbers mean."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    *("ACK", "ALARM", "PENDING", "PUSH", "QUERY", "STEP"),
    *("FULL", "NEED_RANDOMS", "OVER", "STEPS", "TIME", "UNSUPPORTED"),
    *("BUFFER", "EDGE", "EVENT", "INCOMING", "SPAN", "TOTALS", "WORKER"),
    *("HALVES_MAX", "OPERATIONS_MAX", "QUEUE_SPARE", "STAGED_MAX"),
    *("Queue", "Tables"),
]

# Why `advance` has returned.
OVER: Final = 0
"""All workers have taken their steps."""
TIME: Final = 1
"""The time has come."""
STEPS: Final = 2
"""So many steps have been taken."""
NEED_RANDOMS: Final = 3
"""Random words or step durations of `TOTALS.starved_worker` are used up."""
FULL: Final = 4
"""A table may not hold what comes next."""
UNSUPPORTED: Final = 5
"""Something is due that only the protocols can decide."""

# Kinds of events, and of messages. At one time, messages come first, then alarms, then steps.
PUSH: Final = 0
ACK: Final = 1
QUERY: Final = 2
PENDING: Final = 3
ALARM: Final = 4
STEP: Final = 5

STAGED_MAX: Final = 64
"""Shares that may wait at a worker, at most."""

# Operations and halves of random words that one event takes at most.
OPERATIONS_MAX: Final = 2 * STAGED_MAX + 2
HALVES_MAX: Final = 16

QUEUE_SPARE: Final = 3 * STAGED_MAX + 3
"""Events that a turn leads to, at most: pushes, answers and three more."""

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)

EVENT: Final = np.dtype(
    [
        ("kind", _INT),
        ("worker", _INT),  # whose step or alarm it is, or who receives it
        ("edge", _INT),  # messages only, likewise all that follows
        ("sequence", _INT),
        ("size_bytes", _INT),  # 0 once the receiver's downlink has let it through
        ("accepted", _INT),  # weight; ACK
        ("step", _INT),  # the sender's; PUSH
        ("buffer", _INT),  # PUSH
    ],
    align=True,
)

WORKER: Final = np.dtype(
    [
        ("weight", _INT),
        ("steps", _INT),
        ("round", _INT),  # pushes under GoSGD, turns under SGP
        ("passed", _INT),  # rounds passed over in addition
        ("passed_over", _INT),  # SGP: edge to the first neighbor that got nothing, or -1
        ("halves_used", _INT),
        ("spare_half", _INT),  # of a random word of which one half was drawn, or -1
        ("block", _INT),  # its durations are those of steps from block * durations_each on
        ("level", _INT),
        ("snapshots", _INT),
        ("finished", _INT),
        ("pushes", _INT),
        ("mixed", _INT),
        ("known_steps", _INT),  # of all workers, as they were after its last one
        ("n_outgoing", _INT),
        ("excused", _INT),  # outgoing shares that use up no credit
        ("n_incoming", _INT),
        ("top_span", _INT),
        ("n_spans", _INT),
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
        ("name_bytes", _INT),  # of both names in a message
        ("busy", _INT),  # 1 while a share is under way
        ("sequence", _INT),
        ("escrow", _INT),
        ("questions", _INT),
        ("is_excused", _INT),
        ("decided", _INT),  # sequence number of the last share that the receiver has decided
        ("accepted", _INT),
        ("pushed_s", _FLOAT),
        ("deadline_s", _FLOAT),
        ("roundtrip_s", _FLOAT),  # negative before the first was measured
        ("deviation_s", _FLOAT),
    ],
    align=True,
)

INCOMING: Final = np.dtype(
    [
        ("edge", _INT),
        ("step", _INT),
        ("buffer", _INT),
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
        ("next_free", _INT),  # place in their ring
        ("window", _INT),
        ("n_steps", _INT),  # rows of this window, likewise the next two
        ("n_operations", _INT),
        ("n_levels", _INT),
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
    """Events that are due, a binary heap: what an event carries stays at its place."""

    times: NDArray[np.float64]
    orders: NDArray[np.int64]
    places: NDArray[np.int64]
    """Of the events in the heap, then the free ones."""
    events: Any
    """Records of `EVENT`."""
    size: NDArray[np.int64]
    """One number: how many events are due."""

    @classmethod
    def for_events(cls, n: int) -> "Queue":
        """Make an empty queue with room for so many events."""
        n += QUEUE_SPARE
        return cls(
            np.zeros(n), np.zeros(n, np.int64), np.arange(n), np.zeros(n, EVENT),
            np.zeros(1, np.int64),
        )  # fmt: skip

    def doubled(self) -> "Queue":
        """Make room for twice as many."""
        n = len(self.times)
        return Queue(
            np.concatenate([self.times, np.zeros(n)]),
            np.concatenate([self.orders, np.zeros(n, np.int64)]),
            np.concatenate([self.places, np.arange(n, 2 * n)]),
            np.concatenate([self.events, np.zeros(n, EVENT)]),
            self.size,
        )


class Tables(NamedTuple):
    """The state of a swarm: a structured array for each kind of thing, and what never changes."""

    queue: Any
    """See `Queue`."""
    totals: Any
    """One record of `TOTALS`."""
    workers: Any
    """Records of `WORKER`, axis ``worker``."""
    edges: Any
    """Records of `EDGE`, axis ``edge``."""
    incoming: Any
    """Shares that have come, in order: records of `INCOMING`, axes ``(worker, place)``."""
    outgoing: Any
    """Edges of outstanding pushes, in order, axes ``(worker, place)``."""
    spans: Any
    """When downlinks were busy: records of `SPAN`, axes ``(worker, place)``; see
    `rumor.sim.models.links.Port`."""
    halves: Any
    """Halves of random words, the lower ones first, uint32, axes ``(worker, half)``."""
    durations: Any
    """Of the next steps, seconds, axes ``(worker, step % durations_each)``."""
    buffers: Any
    """Slots, used again: records of `BUFFER`, axis ``buffer``."""
    free_buffers: Any
    """A ring, so that a buffer rests for as long as can be."""
    step_rows: Any
    """This window's steps in order: of each worker, level, number."""
    operation_rows: Any
    """This window's operations: of each kind, worker, level, slot, buffer, id of the snapshot.
    Where a learning rate changes: kind, worker, level, then the worker's steps and those of all
    that it knows."""
    fractions: Any
    """This window's operations: by which part each mixes, or when a learning rate changes."""
    offsets: Any
    """Where a worker's neighbors in a round begin: row ``worker * period + round``; one more."""
    neighbors: Any
    """Edges."""

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
    """Earlier than that after an alarm was set, no other is due."""
    outstanding_max: int
    steps_each: int
    steps_total: int
    """Steps of all workers together after which each stops at the end of the one it takes."""
    scales_lr: int
    """1 where the learning rate changes as training goes on."""
    period: int
    push_bytes: int
    ack_bytes: int
    credit_bytes: int
    """How much longer an answer is that lets a part of the next share follow its offer."""
    query_bytes: int
    pending_bytes: int
