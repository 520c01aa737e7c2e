"""Plan of a fleet and of its faults, and its traffic."""

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
    *("Traffic", "worker_names"),
]


@frozen
class Checkpoint:
    """State passed to a worker's next incarnation, in addition to the values kept with it."""

    steps: int  # optimizer steps taken: the position in its data
    peers: tuple[PeerId, ...]  # peers that it knew
    clock: tuple[ClockRow, ...]


class Attack(NamedTuple):
    """Workers that are Byzantine for a while."""

    kind: str
    liars: frozenset[int]
    strength: float
    start_s: float
    stop_s: float


Measuring = Callable[[Sequence[Level], int, Sequence[int]], Sequence[float]]
"""Computes everything scheduled so far, then how far the shares in these slots are from a worker's
model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Faults of a fleet, whose workers then gossip about membership."""

    faults: tuple[Fault, ...]
    """Faults in order of time, with names in place of positions."""
    founders: int
    """Number of workers present at the start; the others are newcomers, in order."""
    checkpoint_every_s: float
    rolls: tuple[int, ...] = ()
    """Numbers of founders that found a swarm together, in order; by default all found one."""
    latecomers_s: tuple[float, ...] = ()
    """Virtual seconds at which the workers after the founders start."""
    ends: bool = True
    """True if the run ends with the last optimizer step, not only once no process is needed."""
    linger_s: float = 5.0
    """How long a process still answers once it is not needed any more, virtual seconds."""
    calm_s: float = math.inf
    """Virtual time after which the network has no more faults, seconds."""
    begins_within_s: float | None = None
    """Founders begin at random moments within this many virtual seconds; by default between two
    exchanges of the member table, so that heartbeats are not in step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """Configuration of a fleet."""

    ids: tuple[PeerId, ...]
    schema: Schema
    anchor: bytes
    rule: Callable[[], Rule]
    neighbors: Neighbors
    pace: StepTime
    links: Callable[[], Links]
    """Makes a fresh network: a plan may be decided several times."""
    seed: int
    steps: int | None
    """Optimizer steps of each worker; None for as many as time allows."""
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    steps_total: int | None = None
    """Optimizer steps of all workers together after which they stop."""
    machines: Mapping[PeerId, bytes] = field(default_factory=dict)
    """Names of the machines that workers run on; empty if all share one."""
    fault_plan: FaultPlan | None = None
    """Planned faults; None if all members are known and stay, so that none gossips."""
    attacks: tuple[Attack, ...] = ()
    samples: Sequence[int] = ()
    """Samples per step of each worker, for a rule that weighs steps by them; else empty."""
    overlaps: bool = False
    """True if the rule pushes shards during a step."""
    lr: Callable[[int], float] | None = None
    """Full learning rate of each step, counted from 0, for a rule that uses it; else None."""
    lr_factor: Callable[[int, int, float], float] | None = None
    """Factor of a worker's learning rate, given its own steps, those of all workers as far as it
    knows, and the virtual time in seconds; None if the rate stays."""
    measure: Measuring | None = None
    """Answers a rule that measures values; None if values are computed later."""
    exchange_s: float = 0.0
    """How much each push, and each mix, extends a worker's next step, seconds."""
    turn_s: Callable[[int], float] | None = None
    """Virtual seconds between turns of a finished worker; by default the mean of its steps."""
    # Ten times the longest wait between two queries about a share.
    stuck_s: float = 300.0
    """Workers that have all waited for each other for this many seconds leave."""


@dataclass(slots=True)
class Traffic:
    """Counts of what all workers together have sent and mixed."""

    messages: int = 0
    bytes_sent: int = 0
    pushes: int = 0
    skipped: int = 0
    refusals: int = 0
    mixed: int = 0
    staleness_steps: int = 0
    errors: int = 0
    events: int = 0
    membership_bytes: int = 0  # part of the bytes sent that is messages about membership


def worker_names(workers: int, fault_plan: FaultPlan | None = None) -> tuple[PeerId, ...]:
    """Name all workers: those present at the start, then newcomers in order."""
    width = len(str(workers - 1))
    names = [f"peer-{index:0{width}d}" for index in range(workers)]
    joined = 0 if fault_plan is None else joining(fault_plan.faults)
    return (*names, *names_of_newcomers(joined))
