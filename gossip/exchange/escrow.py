"""States of the escrow of a share, and what can happen to it."""

from enum import IntEnum, auto

__all__ = ["STRANDED", "EscrowEvent", "EscrowState"]


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
