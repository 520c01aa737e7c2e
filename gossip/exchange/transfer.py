"""The state of one share on its way out, and of one on its way in; who reads a snapshot."""

from dataclasses import dataclass, field
from enum import IntEnum, auto

from ..effects.effect_log import EffectLog
from ..effects.effects import Release
from ..types import Incarnation, PeerId, ShareId, SnapshotId
from ..wire.messages import Chunk, Offer

__all__ = [
    *("INCOMING_TRANSITIONS", "STRANDED", "EscrowEvent", "EscrowState"),
    *("IncomingEvent", "IncomingState", "IncomingTransfer", "OutgoingTransfer", "SnapshotRefs"),
]


class EscrowState(IntEnum):
    """How far a share on its way out has come."""

    QUEUED = auto()
    """Not offered yet: others have the link."""
    OFFERED = auto()
    STREAMING = auto()
    """Frame by frame, as credit and bandwidth allow."""
    LENT = auto()
    """The receiver reads it from shared memory, so that nothing is sent but the offer."""
    SENT = auto()
    """Only the receiver's word settles it now."""
    STRANDED = auto()
    """Sent, and its receiver is considered dead."""
    LENT_STRANDED = auto()
    """Lent, and its receiver is considered dead."""
    DECIDED = auto()
    """It is known how much was accepted. No share rests here."""
    RETURNING = auto()
    """Decided, but values come back, too, and are mixed back at the next step."""
    SETTLED = auto()
    """What was not accepted is the sender's again."""
    WRITTEN_OFF = auto()
    """Nobody can say how much was accepted: the incarnation that could is over."""

    @property
    def is_final(self) -> bool:
        return self >= EscrowState.SETTLED


class EscrowEvent(IntEnum):
    """What can happen to it. The first seven follow from what the sender itself does."""

    WHOLE = auto()
    """It is small enough for one message."""
    LEND = auto()
    """Its receiver can read this peer's memory, as far as is known."""
    GO_ON = auto()
    """There is credit, or the link is free: it may go on."""
    ALL_SENT = auto()
    BOOK = auto()
    """Weight alone comes back, or nothing."""
    VALUES_BACK = auto()
    """Values come back, too (exact mode)."""
    STEP = auto()
    """Values may be changed now."""
    GRANT = auto()
    ACK = auto()
    PENDING = auto()
    UNSENT = auto()
    """The network refused a part of it, so that it can never become whole."""
    TIMEOUT = auto()
    LEAVING = auto()
    """The receiver is about to go."""
    DIED = auto()
    """The receiver is considered dead, or has left."""
    HEARD = auto()
    """The same incarnation of the receiver is heard."""
    HEARD_GONE = auto()
    """The same incarnation is heard, and is no member any more."""
    LATER_INCARNATION = auto()
    """Another incarnation of the receiver runs, as a rule a later one: that which it was sent to is
    over."""


STRANDED = frozenset({EscrowState.STRANDED, EscrowState.LENT_STRANDED})
"""The receiver is considered dead; in these states alone it matters that it is heard."""


@dataclass(slots=True)
class OutgoingTransfer:
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


class IncomingState(IntEnum):
    """How far a share on its way in has come; from STAGED on it is whole."""

    OFFERED = auto()
    """Let in; no share rests here."""
    ATTACHING = auto()
    """It is being looked whether it can be read from its sender's memory."""
    ARRIVING = auto()
    """Frame by frame."""
    STAGED = auto()
    """All of it is here, and is being inspected."""
    READY = auto()
    """It is finite, so that a step may take it."""
    DECIDED = auto()
    """Its sender was told how much was accepted, if anything."""


class IncomingEvent(IntEnum):
    """What can happen to it."""

    WHOLE = auto()
    """It came in one message."""
    ATTACH = auto()
    """Its offer says where in memory it lies."""
    OFFER = auto()
    """It is to come in frames, or that is said again."""
    READABLE = auto()
    UNREADABLE = auto()
    FRAME = auto()
    COMPLETE = auto()
    """All its frames are here."""
    FINITE = auto()
    NOT_FINITE = auto()
    STALLED = auto()
    """Nothing of it has come for too long."""
    RESTARTED = auto()
    """A later incarnation of its sender is heard."""
    SUPERSEDED = auto()
    """Its sender goes on to another share."""
    REFUSED = auto()
    """This peer takes none, or its rule does not take this one."""
    TAKEN = auto()


_S, _E = IncomingState, IncomingEvent

_ENDS = dict.fromkeys([_E.STALLED, _E.RESTARTED, _E.SUPERSEDED, _E.REFUSED], _S.DECIDED)

INCOMING_TRANSITIONS: dict[IncomingState, dict[IncomingEvent, IncomingState]] = {
    _S.OFFERED: {_E.WHOLE: _S.STAGED, _E.ATTACH: _S.ATTACHING, _E.OFFER: _S.ARRIVING},
    _S.ATTACHING: {_E.READABLE: _S.STAGED, _E.UNREADABLE: _S.ARRIVING, **_ENDS},
    _S.ARRIVING: {
        **dict.fromkeys([_E.ATTACH, _E.OFFER, _E.FRAME], _S.ARRIVING),
        _E.COMPLETE: _S.STAGED,
        **_ENDS,
    },
    # One that is superseded although it is whole breaks the protocol: see `Inbox`.
    _S.STAGED: {_E.FINITE: _S.READY, _E.NOT_FINITE: _S.DECIDED, _E.REFUSED: _S.DECIDED},
    _S.READY: {_E.TAKEN: _S.DECIDED, _E.REFUSED: _S.DECIDED},
    _S.DECIDED: {},
}
"""By state, the state that an event leads to; any other event is ignored."""


# Frames that came in no time tell nothing.
_PACE_MAX = 1e12


@dataclass(slots=True)
class IncomingTransfer:
    """A share that is not decided yet."""

    id: ShareId
    offer: Offer
    progress_s: float
    """When it last came on."""
    gap_s: float = 0.0
    """The longest pause between two of its frames so far."""
    began_s: float = 0.0
    """When its first frame came."""
    chunks: set[int] = field(default_factory=set)
    received_bytes: int = 0
    granted_bytes: int = 0
    granted_s: float = 0.0
    """When its sender was told last."""
    paced_bytes: int = 0
    """How much beyond what had come was granted last."""
    state: IncomingState = IncomingState.OFFERED
    is_finite: bool = True
    """Whether all its values are numbers, once it was inspected."""

    @property
    def whole(self) -> bool:
        return self.state >= IncomingState.STAGED

    def on(self, event: IncomingEvent) -> bool:
        """Go on to the state that an event leads to; returns False where it is ignored."""
        before, self.state = self.state, INCOMING_TRANSITIONS[self.state].get(event, self.state)
        return event in INCOMING_TRANSITIONS[before]

    def came_on(self, size_bytes: int, now: float) -> None:
        if self.received_bytes:
            self.gap_s = max(self.gap_s, now - self.progress_s)
        else:
            self.began_s = now
        self.received_bytes += size_bytes
        self.progress_s = now

    @property
    def bytes_s(self) -> int:
        """The pace at which its frames came, bytes per second; 0 where that is not known."""
        # A share that is read from memory has no frames, and one of a single frame no pace.
        pace = self.bytes_in(1.0) if len(self.chunks) > 1 else 0.0
        return int(pace) if pace < _PACE_MAX else 0

    def bytes_in(self, seconds: float) -> float:
        """How much of it comes in so many seconds, at the pace so far; without end if unknown."""
        past_s = self.progress_s - self.began_s
        # The first frame came with the offer, as it were: only what followed it tells a pace.
        come = self.received_bytes - self.offer.frame_bytes
        return come / past_s * seconds if past_s > 0 and come > 0 else float("inf")

    def wants(self, index: int) -> bool:
        """Whether a frame is still to come; none is, where the sender's memory is read."""
        return self.state is IncomingState.ARRIVING and index not in self.chunks

    def has_frame(self, message: Chunk, frame_bytes: int) -> bool:
        """Whether a frame is where it says, and as long as it must be."""
        start, size = message.offset_bytes, self.offer.size_bytes
        if not 0 <= start < size or start != message.index * self.offer.frame_bytes:
            return False
        return frame_bytes == min(self.offer.frame_bytes, size - start)


class SnapshotRefs:
    """Counts the transfers that read a snapshot, and lets it go after the last one."""

    def __init__(self, log: EffectLog) -> None:
        self._log = log
        self.unread: list[SnapshotId] = []
        """Snapshots that may be let go at the end of the call at hand."""
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
        """Release unreferenced snapshots, at the end of a call.

        Not earlier: a second push of the same call may read a snapshot that the first is done with.
        """
        for snapshot in self.unread:
            if self._counts.get(snapshot) == 0:
                del self._counts[snapshot]
                abandoned = snapshot in self._abandoned
                self._abandoned.discard(snapshot)
                self._log.ask(Release(snapshot, abandoned))
        self.unread.clear()
