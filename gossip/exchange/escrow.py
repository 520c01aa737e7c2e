"""The escrow of a share as a state machine: the one table that decides what an event leads to.

A pair of state and event that is not in the table cannot happen. An action may answer with an
event of its own, which is then looked up in the state that has been reached: so a choice, such as
whether the last frame has gone, is a transition like any other.
"""

from enum import IntEnum, auto

__all__ = ["STRANDED", "TRANSITIONS", "EscrowAction", "EscrowEvent", "EscrowState", "diagram"]


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
        """Whether the escrow is closed."""
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


class EscrowAction(IntEnum):
    """What the sender does about it; `rumor.gossip.exchange.outgoing` says how."""

    IGNORE = auto()
    PUSH = auto()
    """Send all of it in one message."""
    SHOW = auto()
    """Offer it, and say where in memory it lies."""
    OFFER = auto()
    TAKE_CREDIT = auto()
    SEND_INSTEAD = auto()
    """Send it in frames: its receiver could not read the memory."""
    STREAM = auto()
    """Send what credit and bandwidth allow."""
    AWAIT = auto()
    """Let go of the snapshot, unless its values may come back, and await the answer."""
    WAIT_ON = auto()
    ASK = auto()
    ASK_GONE = auto()
    """Ask without waiting: nobody would notice when one that is no member falls silent."""
    ANSWERED = auto()
    """Take the answer, and the time it took."""
    TAKE_ANSWER = auto()
    TAKE_REFUSAL = auto()
    """Take an answer that can only be no: the share was not sent yet."""
    TAKE_BACK = auto()
    STRAND = auto()
    LET_GO = auto()
    """Keep the values no longer."""
    RECOVER = auto()
    """Count on the receiver again, and ask."""
    KEEP = auto()
    """Keep the weight in escrow until its values are mixed back."""
    MIX_BACK = auto()
    CLOSE = auto()
    WRITE_OFF = auto()


_S, _E, _A = EscrowState, EscrowEvent, EscrowAction

_Table = dict[tuple[EscrowState, EscrowEvent], tuple[EscrowAction, EscrowState]]


def _ignored(state: EscrowState, *events: EscrowEvent) -> _Table:
    return {(state, event): (_A.IGNORE, state) for event in events}


TRANSITIONS: _Table = {
    (_S.QUEUED, _E.WHOLE): (_A.PUSH, _S.SENT),
    (_S.QUEUED, _E.LEND): (_A.SHOW, _S.LENT),
    (_S.QUEUED, _E.GO_ON): (_A.OFFER, _S.OFFERED),
    (_S.QUEUED, _E.ACK): (_A.TAKE_REFUSAL, _S.DECIDED),
    (_S.QUEUED, _E.UNSENT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.QUEUED, _E.DIED): (_A.TAKE_BACK, _S.DECIDED),
    (_S.QUEUED, _E.LATER_INCARNATION): (_A.TAKE_BACK, _S.DECIDED),
    **_ignored(_S.QUEUED, _E.GRANT, _E.PENDING, _E.LEAVING, _E.HEARD, _E.HEARD_GONE),
    (_S.OFFERED, _E.GO_ON): (_A.STREAM, _S.STREAMING),
    (_S.OFFERED, _E.GRANT): (_A.TAKE_CREDIT, _S.STREAMING),
    (_S.OFFERED, _E.ACK): (_A.TAKE_REFUSAL, _S.DECIDED),
    (_S.OFFERED, _E.UNSENT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.OFFERED, _E.TIMEOUT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.OFFERED, _E.DIED): (_A.TAKE_BACK, _S.DECIDED),
    (_S.OFFERED, _E.LATER_INCARNATION): (_A.TAKE_BACK, _S.DECIDED),
    **_ignored(_S.OFFERED, _E.PENDING, _E.LEAVING, _E.HEARD, _E.HEARD_GONE),
    (_S.STREAMING, _E.GO_ON): (_A.STREAM, _S.STREAMING),
    (_S.STREAMING, _E.ALL_SENT): (_A.AWAIT, _S.SENT),
    (_S.STREAMING, _E.GRANT): (_A.TAKE_CREDIT, _S.STREAMING),
    (_S.STREAMING, _E.ACK): (_A.TAKE_REFUSAL, _S.DECIDED),
    (_S.STREAMING, _E.UNSENT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.STREAMING, _E.TIMEOUT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.STREAMING, _E.DIED): (_A.TAKE_BACK, _S.DECIDED),
    (_S.STREAMING, _E.LATER_INCARNATION): (_A.TAKE_BACK, _S.DECIDED),
    **_ignored(_S.STREAMING, _E.PENDING, _E.LEAVING, _E.HEARD, _E.HEARD_GONE),
    (_S.LENT, _E.GRANT): (_A.SEND_INSTEAD, _S.STREAMING),
    (_S.LENT, _E.ACK): (_A.ANSWERED, _S.DECIDED),
    (_S.LENT, _E.PENDING): (_A.WAIT_ON, _S.LENT),
    (_S.LENT, _E.UNSENT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.LENT, _E.TIMEOUT): (_A.ASK, _S.LENT),
    (_S.LENT, _E.LEAVING): (_A.ASK, _S.LENT),
    (_S.LENT, _E.DIED): (_A.STRAND, _S.LENT_STRANDED),
    (_S.LENT, _E.LATER_INCARNATION): (_A.WRITE_OFF, _S.WRITTEN_OFF),
    **_ignored(_S.LENT, _E.HEARD, _E.HEARD_GONE),
    (_S.SENT, _E.ACK): (_A.ANSWERED, _S.DECIDED),
    (_S.SENT, _E.PENDING): (_A.WAIT_ON, _S.SENT),
    (_S.SENT, _E.UNSENT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.SENT, _E.TIMEOUT): (_A.ASK, _S.SENT),
    (_S.SENT, _E.LEAVING): (_A.ASK, _S.SENT),
    (_S.SENT, _E.DIED): (_A.STRAND, _S.STRANDED),
    (_S.SENT, _E.LATER_INCARNATION): (_A.WRITE_OFF, _S.WRITTEN_OFF),
    **_ignored(_S.SENT, _E.GRANT, _E.HEARD, _E.HEARD_GONE),
    (_S.STRANDED, _E.ACK): (_A.TAKE_ANSWER, _S.DECIDED),
    (_S.STRANDED, _E.UNSENT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.STRANDED, _E.TIMEOUT): (_A.LET_GO, _S.STRANDED),
    (_S.STRANDED, _E.HEARD): (_A.RECOVER, _S.SENT),
    (_S.STRANDED, _E.HEARD_GONE): (_A.ASK_GONE, _S.STRANDED),
    (_S.STRANDED, _E.LATER_INCARNATION): (_A.WRITE_OFF, _S.WRITTEN_OFF),
    **_ignored(_S.STRANDED, _E.GRANT, _E.PENDING, _E.LEAVING, _E.DIED),
    (_S.LENT_STRANDED, _E.ACK): (_A.TAKE_ANSWER, _S.DECIDED),
    (_S.LENT_STRANDED, _E.UNSENT): (_A.TAKE_BACK, _S.DECIDED),
    (_S.LENT_STRANDED, _E.TIMEOUT): (_A.LET_GO, _S.LENT_STRANDED),
    (_S.LENT_STRANDED, _E.HEARD): (_A.RECOVER, _S.LENT),
    (_S.LENT_STRANDED, _E.HEARD_GONE): (_A.ASK_GONE, _S.LENT_STRANDED),
    (_S.LENT_STRANDED, _E.LATER_INCARNATION): (_A.WRITE_OFF, _S.WRITTEN_OFF),
    **_ignored(_S.LENT_STRANDED, _E.GRANT, _E.PENDING, _E.LEAVING, _E.DIED),
    (_S.DECIDED, _E.BOOK): (_A.CLOSE, _S.SETTLED),
    (_S.DECIDED, _E.VALUES_BACK): (_A.KEEP, _S.RETURNING),
    (_S.RETURNING, _E.STEP): (_A.MIX_BACK, _S.SETTLED),
    **_ignored(_S.RETURNING, _E.GRANT, _E.ACK, _E.PENDING, _E.UNSENT, _E.LEAVING),
    **_ignored(_S.RETURNING, _E.DIED, _E.HEARD, _E.HEARD_GONE, _E.LATER_INCARNATION),
}
"""``(state, event): (action, next state)``."""


STRANDED = frozenset({_S.STRANDED, _S.LENT_STRANDED})
"""The receiver is considered dead; in these states alone it matters that it is heard."""


def diagram() -> str:
    """Draw the table as a Mermaid state diagram, for docs/explanation/protocol.md."""
    arrows: dict[tuple[EscrowState, EscrowState], list[EscrowEvent]] = {}
    for (state, event), (action, target) in TRANSITIONS.items():
        if action is not _A.IGNORE:
            arrows.setdefault((state, target), []).append(event)
    lines = ["stateDiagram-v2", f"    state {_S.DECIDED.name} <<choice>>"]
    lines += [f"    [*] --> {_S.QUEUED.name}"]
    for (state, target), events in arrows.items():
        named = ", ".join([event.name.lower().replace("_", " ") for event in sorted(events)])
        lines.append(f"    {state.name} --> {target.name}: {named}")
    lines += [f"    {state.name} --> [*]" for state in EscrowState if state.is_final]
    return "\n".join(lines)
