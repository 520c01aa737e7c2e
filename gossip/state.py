"""Everything that one peer's protocol remembers, in one place that its parts share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from .agenda import Agenda
from .config import ProtocolConfig
from .crew import CrewRoster
from .effects import SnapshotId
from .inbox import Inbox
from .messages import PeerId
from .outbox import Outbox
from .roster import Roster
from .schema import Schema

__all__ = ["Neighbors", "State", "Weighing"]

Neighbors = Callable[[Sequence[PeerId], PeerId, int], Sequence[PeerId]]
"""A topology on a live view: ``(sorted live ids, peer, round) -> whom it may push to``."""


@runtime_checkable
class Weighing(Protocol):
    """`Neighbors` that know a mixing matrix, too."""

    def weights(self, live: Sequence[PeerId], peer: PeerId, round: int) -> Mapping[PeerId, float]:
        """Row of the matrix: what *peer* takes of itself and of whom it mixes from."""


@dataclass(slots=True, kw_only=True)
class State:
    """The parts of a protocol; `Protocol` makes them, turns and admission act on them."""

    config: ProtocolConfig
    schema: Schema
    neighbors: Neighbors
    agenda: Agenda
    roster: Roster | CrewRoster
    inbox: Inbox
    outbox: Outbox
    rng: np.random.Generator
    """The rule's own stream."""
    outstanding_max: int
    """Shares that may be outstanding at once, as the rule says."""
    rooted: bool = False
    """Whether a share of this swarm was ever accepted."""
    round: int = 0
    """Shares pushed so far."""
    passed: int = 0
    """Rounds of the topology that were passed over, for want of anybody to push to."""
    snapshots: SnapshotId = 0
    """Snapshots asked for so far."""
    turned_s: float | None = None
    """When the last turn was, seconds."""
    founders: int = 1
    """How many peers found together, this one included."""
    may_close: bool | None = None
    """Whether the rule has nothing left to agree on; None where the count of pushes tells."""

    @property
    def weight(self) -> int:
        """Units held now, escrow not counted."""
        return self.agenda.account.weight
