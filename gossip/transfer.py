"""One share on its way out, and what is still to happen to it."""

from dataclasses import dataclass
from enum import Enum, auto

from .effects import SnapshotId
from .messages import Incarnation, Offer, PeerId

__all__ = ["Transfer", "TransferState"]


class TransferState(Enum):
    """How far a transfer has come."""

    OFFERED = auto()
    STREAMING = auto()
    """Frame by frame, as credit and bandwidth allow."""
    SENT = auto()
    """Only the receiver's word settles it now."""
    STRANDED = auto()
    """Its receiver is held for dead."""
    RETURNING = auto()
    """Settled but for the values, which are mixed back at the next turn."""


@dataclass(slots=True)
class Transfer:
    """One share that was pushed and is not settled."""

    peer: PeerId
    incarnation: Incarnation
    offer: Offer
    snapshot: SnapshotId
    pushed_s: float
    deadline_s: float
    state: TransferState = TransferState.OFFERED
    sent_bytes: int = 0
    granted_bytes: int = 0
    """Up to here its frames may be sent."""
    granted_s: float = 0.0
    """When that was last heard, seconds."""
    gap_s: float = 0.0
    """The longest time between two such answers so far."""
    questions: int = 0
    accepted: int = 0
    """What the receiver accepted of it; known while it is returning."""
    shown: bool = False
    """Whether the receiver reads it from memory, so that nothing is sent but the offer."""
    excused: bool = False
    """Whether its receiver has been silent for so long that it uses up no credit."""
    renounced: bool = False
    """Whether it is of a swarm that was given up, so that what comes back is burned."""
    reads: bool = True
    """Whether the snapshot is still needed."""

    @property
    def end_was_sent(self) -> bool:
        """Whether the receiver may have accepted it, for all that is known here."""
        return self.state in (TransferState.SENT, TransferState.STRANDED)

    @property
    def is_returning(self) -> bool:
        """Whether nothing is open but the values of what came back."""
        return self.state is TransferState.RETURNING

    @property
    def next_stop_bytes(self) -> int:
        """Where its next frame ends."""
        return min(self.offer.size_bytes, self.sent_bytes + self.offer.frame_bytes)
