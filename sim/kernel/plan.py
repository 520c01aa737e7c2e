"""What a fleet is made of, what goes wrong in it, and what it has done."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...gossip import ProtocolConfig, Rule
from ...gossip.protocol.state import Neighbors
from ...gossip.types import PeerId, frozen
from ...gossip.wire.messages import ClockRow
from ...gossip.wire.schema import Schema
from ...train.faults.schedule import Fault, joining, names_of_newcomers
from ..models.links import Links
from ..models.step_time import StepTime
from .program import Level

__all__ = [
    *("Attack", "Checkpoint", "FaultPlan", "FleetPlan", "Measuring"),
    *("Stop", "Traffic", "names_of", "worker_names"),
]


@frozen
class Checkpoint:
    """What a worker's next life knows of this one, beside the values that are kept with it."""

    steps: int
    """Optimizer steps taken: where its data stands."""
    peers: tuple[PeerId, ...]
    """Whom it knew."""
    clock: tuple[ClockRow, ...]


class Attack(NamedTuple):
    """Workers that lie for a while."""

    kind: str
    liars: frozenset[int]
    """Their rows."""
    strength: float
    start_s: float
    stop_s: float


Measuring = Callable[[Sequence[Level], int, Sequence[int]], Sequence[float]]
"""Computes what was decided by now, and then how far the shares in these slots are from a worker's
model."""


class Stop(NamedTuple):
    """Where a worker's values stopped being finite, as a run over the same plan has found."""

    order: int
    """Which step of the whole schedule it was, counted from 0."""
    worker: int
    step: int
    """Which of the worker's own, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What goes wrong in a fleet, whose workers then gossip about who lives."""

    faults: tuple[Fault, ...]
    """In order of time, with names in place of positions."""
    founders: int
    """So many of the workers are there at the start; the others are newcomers, in order."""
    checkpoint_every_s: float
    """Virtual seconds from one checkpoint of a worker to its next."""
    rolls: tuple[int, ...] = ()
    """How many of the founders call each roll together, in order; one roll of all unless given."""
    latecomers_s: tuple[float, ...] = ()
    """When the workers that follow the founders start, virtual seconds."""
    ends: bool = True
    """Whether all is over with the last optimizer step, and not when nobody is needed any more."""
    linger_s: float = 5.0
    """How long a process that nobody needs any more still answers, virtual seconds."""
    calm_s: float = math.inf
    """When the network's faults are over in any case, virtual seconds."""
    begins_within_s: float | None = None
    """Founders begin at random moments of so many virtual seconds, unless given those between two
    exchanges of the member table: nobody's heartbeat then keeps time with another's."""
    seeds_max: int = 3
    """So many addresses a process is told at its start, some of which may not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a fleet is made of."""

    ids: tuple[PeerId, ...]
    schema: Schema
    anchor: bytes
    rule: Callable[[], Rule]
    """Makes each worker's own."""
    neighbors: Neighbors
    pace: StepTime
    links: Callable[[], Links]
    """Makes the network anew: a run may have to start over."""
    seed: int
    steps: int | None
    """Optimizer steps of each worker, None for as many as time allows."""
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """How shares are exchanged."""
    steps_total: int | None = None
    """Optimizer steps of all workers together after which they stop."""
    machines: Mapping[PeerId, bytes] = field(default_factory=dict)
    """Names of the machines on which they run; empty where all share one."""
    fault_plan: FaultPlan | None = None
    """What goes wrong; None where all members are known and stay, so that nobody gossips."""
    attacks: tuple[Attack, ...] = ()
    """Which workers lie, and how."""
    samples: Sequence[int] = ()
    """Samples of a step of each worker, for a rule that weighs steps by them; else empty."""
    overlaps: bool = False
    """Whether the rule pushes shards while a step goes on."""
    lr: Callable[[int], float] | None = None
    """Full learning rate of each step, counted from 0, for a rule that looks at it; else None."""
    lr_factor: Callable[[int, int, float], float] | None = None
    """Which part of its learning rate a worker uses for a step, told how many it has taken, how
    many all together have, as it knows, and the virtual time in seconds; None where it stays."""
    measure: Measuring | None = None
    """Answers a rule that asks of values; None where values are computed later."""
    exchange_s: float = 0.0
    """By how much each push, and each mix, makes a worker's next step longer, seconds."""
    turn_s: Callable[[int], float] | None = None
    """How long a worker that has finished waits for its next turn, told its row, virtual seconds;
    as long as its steps took on average unless given."""
    stuck_s: float = 300.0
    """Workers that have all waited for one another for so long leave: ten times the longest wait
    between two questions about a share."""


@dataclass(slots=True)
class Traffic:
    """What all workers together have sent and mixed."""

    messages: int = 0
    bytes_sent: int = 0
    pushes: int = 0
    skipped: int = 0
    refusals: int = 0
    mixed: int = 0
    staleness_steps: int = 0
    errors: int = 0
    events: int = 0
    membership_bytes: int = 0
    """Of those that were sent, bytes of messages about who lives."""


def worker_names(workers: int, joined: int = 0) -> tuple[PeerId, ...]:
    """Name all workers: those that are there at the start, then newcomers in order.

    >>> worker_names(2, 1)
    ('peer-0', 'peer-1', 'join-1')
    """
    width = len(str(workers - 1))
    names = [f"peer-{index:0{width}d}" for index in range(workers)]
    return (*names, *names_of_newcomers(joined))


def names_of(workers: int, fault_plan: FaultPlan | None) -> tuple[PeerId, ...]:
    """Name all workers that a plan has, see `worker_names`."""
    return worker_names(workers, 0 if fault_plan is None else joining(fault_plan.faults))
