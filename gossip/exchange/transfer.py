"""States of one outgoing and one incoming share; reference counts of snapshots."""

from dataclasses import dataclass, field
from enum import IntEnum, auto

from ..effects.effect_log import EffectLog
from ..effects.effects import Release
from ..types import Incarnation, PeerId, ShareId, SnapshotId
from ..wire.messages import Chunk, Offer
from .flow_control import LinkEstimator

__all__ = [
    *("STRANDED", "EscrowEvent", "EscrowState", "OutgoingTransfer"),
    *("IncomingState", "IncomingTransfer", "SnapshotRefs"),
]


class EscrowState(IntEnum):
    """State of an outgoing share."""

    OFFERED = auto()
    STREAMING = auto()
    LENT = auto()
    """The receiver reads it from shared memory, so only the offer is sent."""
    SENT = auto()
    """Sent completely; only the receiver can settle it now."""
    STRANDED = auto()
    """Sent, and its receiver is considered dead."""
    LENT_STRANDED = auto()
    SETTLED = auto()
    """The part that was not accepted is the sender's again."""
    WRITTEN_OFF = auto()
    """The accepted amount is unknown: the incarnation that could report it is over."""


class EscrowEvent(IntEnum):
    """Events of an outgoing share. The first two result from the sender's own actions."""

    GO_ON = auto()
    """Credit is available: the transfer may continue."""
    ALL_SENT = auto()
    GRANT = auto()
    ACK = auto()
    PENDING = auto()
    UNSENT = auto()
    """The network refused a part of it, so that it can never become complete."""
    TIMEOUT = auto()
    LEAVING = auto()
    """The receiver is about to leave."""
    DIED = auto()
    """The receiver is considered dead, or has left."""
    HEARD = auto()
    """The receiver was heard, in the addressed incarnation."""
    HEARD_GONE = auto()
    """Like `HEARD`, but the receiver is no longer a member, so its end would go unnoticed."""
    LATER_INCARNATION = auto()
    """The addressed incarnation of the receiver is over: another one runs."""


STRANDED = frozenset({EscrowState.STRANDED, EscrowState.LENT_STRANDED})


@dataclass(slots=True)
class OutgoingTransfer:
    """One share that was pushed and is not settled."""

    peer: PeerId
    incarnation: Incarnation
    offer: Offer
    snapshot: SnapshotId
    """0 after its release."""
    link: LinkEstimator
    pushed_s: float
    deadline_s: float
    state: EscrowState = EscrowState.OFFERED
    sent_bytes: int = 0
    granted_bytes: int = 0
    """Offset up to which frames may be sent."""
    granted_s: float = 0.0
    gap_s: float = 0.0
    questions: int = 0
    is_unanswered: bool = False
    """True if its receiver left two queries unanswered."""

    @property
    def uses_credit(self) -> bool:
        """True if it counts among the shares that may be outstanding at once."""
        # Receivers that leave queries unanswered may be dead, long before the failure detector can
        # say so: a few of them must not keep a peer from pushing to others.
        return not (self.is_unanswered or self.state in STRANDED)


class IncomingState(IntEnum):
    """State of an incoming share until it is decided; from STAGED on it is complete."""

    ATTACHING = auto()
    """Checking whether the sender's memory can be read; if not, the share is sent in frames."""
    ARRIVING = auto()
    STAGED = auto()
    """Complete, and being inspected."""
    READY = auto()
    """Inspected: a step may take it."""


@dataclass(slots=True)
class IncomingTransfer:
    """A share that is not decided yet."""

    id: ShareId
    offer: Offer
    window_bytes: int
    """Most bytes of it that may be in flight."""
    progress_s: float
    """Time of its last progress, seconds."""
    deadline_s: float
    """Time when it has stalled, seconds."""
    gap_s: float = 0.0
    began_s: float = 0.0
    chunks: set[int] = field(default_factory=set)
    received_bytes: int = 0
    granted_bytes: int = 0
    granted_s: float = 0.0
    paced_bytes: int = 0
    """Bytes beyond those received that the last grant allowed."""
    state: IncomingState = IncomingState.ARRIVING
    is_finite: bool = True

    @property
    def whole(self) -> bool:
        return self.state >= IncomingState.STAGED

    @property
    def bytes_s(self) -> float:
        """Pace of its frames so far, bytes per second; infinite if unknown."""
        past_s = self.progress_s - self.began_s
        # The first frame counts as part of the offer: only later ones indicate a pace.
        come = self.received_bytes - self.offer.frame_bytes
        return come / past_s if past_s > 0 and come > 0 else float("inf")

    def has_frame(self, message: Chunk, frame_bytes: int) -> bool:
        """Return True if a frame's offset and length are valid."""
        start, size = message.offset_bytes, self.offer.size_bytes
        if not 0 <= start < size or start != message.index * self.offer.frame_bytes:
            return False
        return frame_bytes == min(self.offer.frame_bytes, size - start)


class SnapshotRefs:
    """Counts the transfers that read a snapshot, and releases it after the last one."""

    def __init__(self, log: EffectLog) -> None:
        self._log = log
        self.unread: list[SnapshotId] = []
        """Snapshots to release at the end of the current call."""
        self._counts: dict[SnapshotId, int] = {}
        self._abandoned: set[SnapshotId] = set()

    @property
    def held(self) -> set[SnapshotId]:
        return set(self._counts)

    def add(self, snapshot: SnapshotId) -> None:
        self._counts[snapshot] = self._counts.get(snapshot, 0) + 1

    def remove(self, snapshot: SnapshotId, *, abandoned: bool = False) -> None:
        self._counts[snapshot] -= 1
        if abandoned:
            self._abandoned.add(snapshot)
        if self._counts[snapshot] == 0:
            self.unread.append(snapshot)

    def release_unread(self) -> None:
        """Release unreferenced snapshots."""
        # At the end of a call, because a second push in it may reuse a snapshot.
        for snapshot in self.unread:
            if self._counts.get(snapshot) == 0:
                del self._counts[snapshot]
                abandoned = snapshot in self._abandoned
                self._abandoned.discard(snapshot)
                self._log.emit(Release(snapshot, abandoned))
        self.unread.clear()
