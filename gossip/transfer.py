"""One share on its way out, and what is still to happen to it."""

from dataclasses import dataclass

from .effects import SnapshotId
from .escrow import EscrowState
from .messages import Incarnation, Offer, PeerId

__all__ = ["Transfer"]


@dataclass(slots=True)
class Transfer:
    """One share that was pushed and is not settled."""

    peer: PeerId
    incarnation: Incarnation
    offer: Offer
    snapshot: SnapshotId
    """What it is cut from; 0 once that is no longer needed."""
    pushed_s: float
    deadline_s: float
    state: EscrowState = EscrowState.QUEUED
    sent_bytes: int = 0
    granted_bytes: int = 0
    """Up to here its frames may be sent."""
    granted_s: float = 0.0
    """When that was last heard, seconds."""
    gap_s: float = 0.0
    """The longest time between two such answers so far."""
    questions: int = 0
    accepted: int = 0
    """What the receiver accepted of it, once that is known."""

    @property
    def next_stop_bytes(self) -> int:
        """Where its next frame ends."""
        return min(self.offer.size_bytes, self.sent_bytes + self.offer.frame_bytes)
