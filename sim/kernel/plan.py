"""What a fleet is made of, and what it has done."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...gossip import PeerId, ProtocolConfig, Rule, Schema
from ...gossip.protocol.state import Neighbors
from ..models.step_time import StepTime
from .faults import Fault
from .links import Links

__all__ = ["FaultPlan", "FleetPlan", "Stop", "Traffic"]


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
    fault_plan: FaultPlan | None = None
    """What goes wrong; None where all members are known and stay, so that nobody gossips."""


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
