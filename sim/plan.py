"""What a fleet is made of, and what it has done."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..gossip import PeerId, ProtocolConfig, Rule, Schema
from ..gossip.state import Neighbors
from .links import Links
from .pace import Pace

__all__ = ["FleetPlan", "Traffic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a fleet is made of."""

    ids: tuple[PeerId, ...]
    schema: Schema
    anchor: bytes
    rule: Callable[[], Rule]
    """Makes each worker's own."""
    neighbors: Neighbors
    pace: Pace
    links: Callable[[], Links]
    """Makes the network anew: a run may have to start over."""
    seed: int
    steps: int | None
    """Optimizer steps of each worker, None for as many as time allows."""
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """How shares are exchanged; all members are known, so that there is no gossip about them."""


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
