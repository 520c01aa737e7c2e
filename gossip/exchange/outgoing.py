"""Outgoing shares: in escrow until the receiver reports how much it accepted.

`TRANSITIONS`, below the class, defines for each state and event the method to call and the next
state. A method may return a further event, which is looked up in the new state: so a choice, such
as whether the last frame was sent, is a transition like any other.

Once a share is sent, only the receiver can settle it. The receiver is queried repeatedly; if it is
considered dead, the escrow is stranded until it is heard, or until a later incarnation shows that
the old one is over.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.effects import Reclaim
from ..effects.ledger import Entry, Kind
from ..errors import RemoteProtocolError
from ..types import Incarnation, PeerId, SnapshotId, frozen
from ..weight import mixing_fraction
from ..wire.messages import Ack, Chunk, Offer, Push, Query
from .flow_control import LinkEstimators, RateLimiter, TransferKey, patience_s, window_bytes
from .transfer import STRANDED, EscrowEvent, EscrowState, OutgoingTransfer, SnapshotRefs

__all__ = ["DOUBLINGS_MAX", "EXCUSED_AFTER", "TRANSITIONS", "Outbox", "Returned", "diagram"]


_NEVER = float("inf")

EXCUSED_AFTER = 2
"""Unanswered queries after which a receiver is excused: one query may be lost, and one answer."""

DOUBLINGS_MAX = 10
"""Most unanswered queries after each of which the timeout doubles."""

_VALUES_KEPT = 10
"""Multiple of ``dead_s`` for which the values of a stranded share are kept: most peers that return
at all are back by then, and each that does not would occupy a model's memory for good."""

_LENT = frozenset({EscrowState.LENT, EscrowState.LENT_STRANDED})

_WITHOUT_CREDIT = STRANDED | {EscrowState.SETTLED, EscrowState.WRITTEN_OFF}

# Module constants, because an enum member lookup takes fifty nanoseconds.
_BOOK, _PUSHED = EscrowEvent.BOOK, Kind.PUSHED
_WHOLE, _ACK, _SETTLED = EscrowEvent.WHOLE, EscrowEvent.ACK, Kind.SETTLED


@frozen
class Returned:
    """A push of which nothing was accepted: refused, fenced, or never sent."""

    peer: PeerId
    epoch: int
    round: int


class Outbox:
    """All shares of one shard that a peer has pushed and that are not settled."""

    def __init__(
        self,
        config: ProtocolConfig,
        log: EffectLog,
        links: LinkEstimators,
        rate_limiter: RateLimiter,
        snapshot_refs: SnapshotRefs,
        shards: int = 1,
    ) -> None:
        self._shards = shards
        self._config = config
        self._log = log
        self._links = links
        self._rate_limiter = rate_limiter
        self.transfers: dict[PeerId, OutgoingTransfer] = {}
        """Transfers by receiver: at most one unresolved escrow each. Read-only for callers."""
        self.last_seq: dict[PeerId, int] = {}
        """Number of the last share toward each receiver; numbers are never reused."""
        self._snapshot_refs = snapshot_refs
        # Bytes that may follow the next offer at once, according to the last answer.
        self._credits: dict[PeerId, tuple[Incarnation, int]] = {}
        self.returned: list[Returned] = []
        """Returned pushes that were not collected yet."""
        self.in_flight = 0
        """Number of shares that use up credit; stranded ones do not."""
        self.unanswering: set[PeerId] = set()
        """Receivers that left two queries unanswered: shares in flight to them use up no credit.
        They may be dead, long before the failure detector can say so, and a few of them must not
        keep a peer from pushing to peers that do answer."""
        self.showing: set[PeerId] = set()
        """Receivers that are reading this peer's model, which uses up no credit either."""
        # Receivers of shares of a swarm that was given up: whatever is returned is burned.
        self._renounced: set[PeerId] = set()

    def push(
        self,
        peer: PeerId,
        incarnation: Incarnation,
        offer: Offer,
        snapshot: SnapshotId,
        now: float,
        *,
        shown: bool = False,
    ) -> None:
        """Move the offered weight into escrow and send the share, or offer it if it is large."""
        self._log.record(Entry(_PUSHED, offer.escrow, peer, incarnation, offer.seq))
        transfer = OutgoingTransfer(peer, incarnation, offer, snapshot, now, _NEVER)
        self.transfers[peer] = transfer
        self.in_flight += 1
        if offer.held:
            self.showing.add(peer)
        self._snapshot_refs.add(snapshot)
        if type(offer) is Push:
            self._on(transfer, _WHOLE, now)
        elif shown and self._links.to(peer, incarnation).reads_memory(now):
            self._on(transfer, EscrowEvent.LEND, now)
        elif self._rate_limiter.acquire(self._key(transfer)):
            self._on(transfer, EscrowEvent.GO_ON, now)

    def on(
        self,
        peer: PeerId,
        event: EscrowEvent,
        now: float,
        amount: int = 0,
        *,
        share: tuple[Incarnation, int] | None = None,
    ) -> None:
        """Apply an event to the open transfer toward *peer*, if it is about that share.

        Args:
            amount: The event's number: bytes, or weight.
            share: The receiver's incarnation and the share's number; None for any.
        """
        transfer = self.transfers.get(peer)
        if transfer is not None and share in (None, (transfer.incarnation, transfer.offer.seq)):
            self._on(transfer, event, now, amount)

    def ack(self, peer: PeerId, incarnation: Incarnation, message: Ack, now: float) -> None:
        """Settle a share: the part that was not accepted is returned."""
        transfer, share = self.transfers.get(peer), (incarnation, message.seq)
        if transfer is None or (transfer.incarnation, transfer.offer.seq) != share:
            return
        if not self._on(transfer, _ACK, now, message.accepted):
            return
        if message.bytes_s and not transfer.gap_s:
            # The whole share fitted into the first grant, so no GRANT measured the pace.
            self._links.to(peer, incarnation).carried(message.bytes_s, 1.0)
        elif not message.accepted and self._came_none(transfer, now):
            frame_bytes = min(transfer.offer.frame_bytes, transfer.offer.size_bytes)
            self._links.to(peer, incarnation).carried_none(frame_bytes, now - transfer.granted_s)
        if message.credit_bytes:
            credit_bytes = min(message.credit_bytes, self._config.window_bytes)
            self._credits[peer] = incarnation, credit_bytes

    def query_due(self, now: float) -> None:
        """Query shares whose answer is late, and give up those that never started."""
        for transfer in tuple(self.transfers.values()):
            if now >= transfer.deadline_s:
                self._on(transfer, EscrowEvent.TIMEOUT, now)

    def reclaim(self, weight: int, now: float) -> None:
        """Mix back the values of returned shares; call only when values may change."""
        returning = [t for t in self.transfers.values() if t.state is EscrowState.RETURNING]
        for transfer in returning:
            self._on(transfer, EscrowEvent.STEP, now, weight)
            weight += transfer.offer.escrow - transfer.accepted

    def heard(self, peer: PeerId, incarnation: Incarnation, now: float, *, gone: bool) -> None:
        """Query a stranded share, or write off the share of an earlier incarnation.

        Args:
            gone: True if the peer is not a member any more. It may still answer, but its escrow
                stays stranded until then, since its end would not be noticed.
        """
        transfer = self.transfers[peer]
        if transfer.incarnation < incarnation:
            self._on(transfer, EscrowEvent.LATER_INCARNATION, now)
        elif transfer.incarnation == incarnation:
            self._on(transfer, EscrowEvent.HEARD_GONE if gone else EscrowEvent.HEARD, now)

    def renounce(self) -> None:
        """Note that the swarm is given up: outstanding shares are of no use in another."""
        self._renounced.update(self.transfers)

    def deadline(self) -> float:
        due_s = _NEVER
        for transfer in self.transfers.values():
            if transfer.deadline_s < due_s:
                due_s = transfer.deadline_s
        return due_s

    def _on(
        self, transfer: OutgoingTransfer, event: EscrowEvent, now: float, amount: int = 0
    ) -> bool:
        """Apply an event and those that follow at once; return False if the table ignores it."""
        following: EscrowEvent | None = event
        while following is not None:
            step = TRANSITIONS[transfer.state, following]
            if step is None:
                return False
            # If it raises, nothing has changed.
            following = step.do(self, transfer, now, amount)
            transfer.state = step.after
            self.in_flight += step.in_flight
        return True

    # The actions in `TRANSITIONS`. Each returns the event that follows at once, or None.

    def _push(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        offer, receiver = transfer.offer, (transfer.peer, transfer.incarnation)
        self._log.send(*receiver, offer, frame=(transfer.snapshot, 0, offer.size_bytes))
        if self._rate_limiter.is_limited:
            self._rate_limiter.sent(offer.size_bytes, now)
        self._await(transfer, now, 0)

    def _show(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        """Offer the share together with its location in shared memory."""
        self._send_offer(transfer, now, eager=False)
        transfer.deadline_s = now + self._patience_s(transfer)

    def _offer(self, transfer: OutgoingTransfer, now: float, _: int) -> EscrowEvent | None:
        self._rate_limiter.acquire(self._key(transfer))
        eager_bytes = self._send_offer(transfer, now, eager=True)
        if not eager_bytes:
            return None
        return self._take_credit(transfer, now, eager_bytes)

    def _take_credit(
        self, transfer: OutgoingTransfer, now: float, credit_bytes: int
    ) -> EscrowEvent:
        """Raise the receiver's credit to this offset."""
        if credit_bytes > transfer.sent_bytes + self._config.window_bytes:
            raise RemoteProtocolError("GRANT of more than a window", transfer.peer)
        more_bytes = credit_bytes - transfer.granted_bytes
        if more_bytes > 0:
            if transfer.granted_bytes:
                transfer.gap_s = max(transfer.gap_s, now - transfer.granted_s)
                link = self._links.to(transfer.peer, transfer.incarnation)
                link.carried(more_bytes, now - transfer.granted_s)
            transfer.granted_bytes, transfer.granted_s = credit_bytes, now
        return EscrowEvent.GO_ON

    def _send_instead(
        self, transfer: OutgoingTransfer, now: float, credit_bytes: int
    ) -> EscrowEvent:
        """Send the share in frames: its receiver could not read the memory."""
        self._take_credit(transfer, now, credit_bytes)
        self._links.to(transfer.peer, transfer.incarnation).did_not_read(now)
        # The memory may have been abandoned meanwhile: then the share can never be completed there.
        return EscrowEvent.GO_ON if transfer.snapshot else EscrowEvent.UNSENT

    def _stream(self, transfer: OutgoingTransfer, now: float, _: int) -> EscrowEvent | None:
        """Send as many frames as credit and bandwidth allow."""
        if not self._rate_limiter.acquire(self._key(transfer)):
            transfer.deadline_s = _NEVER
            return None
        transfer.deadline_s = now + patience_s(self._config, transfer.gap_s)
        offer, receiver = transfer.offer, (transfer.peer, transfer.incarnation)
        while transfer.sent_bytes < offer.size_bytes:
            start = transfer.sent_bytes
            stop = min(offer.size_bytes, start + offer.frame_bytes)
            if stop > transfer.granted_bytes:
                return None
            if not self._rate_limiter.may_send(now):
                # This is not a stall: the transfer continues when bandwidth is available.
                transfer.deadline_s = _NEVER
                return None
            body = Chunk(offer.seq, start // offer.frame_bytes, start)
            self._log.send(*receiver, body, frame=(transfer.snapshot, start, stop - start))
            self._rate_limiter.sent(stop - start, now)
            transfer.sent_bytes = stop
        self._rate_limiter.release(self._key(transfer))
        return EscrowEvent.ALL_SENT

    def _await(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        """Release the snapshot, unless its values may be returned, and await the answer."""
        transfer.deadline_s = now + self._patience_s(transfer)
        if transfer.snapshot and not self._config.exact:
            self._snapshot_refs.remove(transfer.snapshot)
            transfer.snapshot = 0

    def _wait_on(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self.unanswering.discard(transfer.peer)
        transfer.deadline_s = now + self._patience_s(transfer)

    def _ask(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._ask_gone(transfer, now, 0)
        transfer.deadline_s = now + self._patience_s(transfer)
        if transfer.questions >= EXCUSED_AFTER:
            self.unanswering.add(transfer.peer)

    def _ask_gone(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        """Query without a timeout: the silence of a non-member would go unnoticed."""
        transfer.questions += 1
        self._log.send(transfer.peer, transfer.incarnation, Query(transfer.offer.seq))

    def _answered(self, transfer: OutgoingTransfer, now: float, accepted: int) -> EscrowEvent:
        following = self._take_answer(transfer, now, accepted)
        # The answer may be to a query instead of the push (Karn's rule).
        if transfer.questions == 0:
            link = self._links.to(transfer.peer, transfer.incarnation)
            link.roundtrip.measured(now - transfer.pushed_s)
        return following

    def _take_answer(self, transfer: OutgoingTransfer, now: float, accepted: int) -> EscrowEvent:
        if accepted > transfer.offer.escrow:
            raise RemoteProtocolError("ACK of more than was sent", transfer.peer)
        transfer.accepted = accepted
        comes_back = accepted < transfer.offer.escrow and transfer.peer not in self._renounced
        if self._config.exact and comes_back and transfer.snapshot:
            return EscrowEvent.VALUES_BACK
        return _BOOK

    def _take_refusal(self, transfer: OutgoingTransfer, now: float, accepted: int) -> EscrowEvent:
        """Accept an answer that can only be a refusal: the share was not sent yet."""
        if accepted:
            raise RemoteProtocolError("ACK of more than was sent", transfer.peer)
        return self._take_answer(transfer, now, 0)

    def _take_back(self, transfer: OutgoingTransfer, now: float, _: int) -> EscrowEvent:
        return self._take_answer(transfer, now, 0)

    def _strand(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._note(Kind.STRANDED, transfer)
        self.unanswering.discard(transfer.peer)
        self.showing.discard(transfer.peer)
        if self._config.exact and transfer.snapshot:
            transfer.deadline_s = now + _VALUES_KEPT * self._config.dead_s
        else:
            self._let_go(transfer, now, 0)

    def _let_go(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        transfer.deadline_s = _NEVER
        self._stop_reading(transfer, abandoned=transfer.state in _LENT)

    def _recover(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._note(Kind.FOUND, transfer)
        self._ask(transfer, now, 0)

    def _keep(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        """Keep the weight in escrow until its values are mixed back."""
        # Values may change only between two steps: the weight waits for them.
        transfer.deadline_s = _NEVER
        self._rate_limiter.release(self._key(transfer))

    def _mix_back(self, transfer: OutgoingTransfer, now: float, weight: int) -> None:
        back = transfer.offer.escrow - transfer.accepted
        self._log.ask(Reclaim(transfer.snapshot, mixing_fraction(weight, back)))
        self._close(transfer, now, 0)

    def _close(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        offer, accepted, renounced = transfer.offer, transfer.accepted, self._forget(transfer)
        receiver = transfer.peer, transfer.incarnation
        self._log.record(Entry(_SETTLED, accepted, *receiver, offer.seq))
        if renounced and accepted < offer.escrow:
            self._log.record(Entry(Kind.BURNED, offer.escrow - accepted))
        if accepted == 0 and not offer.held:
            self.returned.append(Returned(transfer.peer, offer.epoch, offer.round))

    def _write_off(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._forget(transfer)
        self._note(Kind.WRITTEN_OFF, transfer)

    # Helpers of these actions.

    def _key(self, transfer: OutgoingTransfer) -> TransferKey:
        return self._log.account.shard, transfer.peer

    def _send_offer(self, transfer: OutgoingTransfer, now: float, *, eager: bool) -> int:
        """Send the offer; return how many bytes of the share may follow it at once."""
        peer, incarnation, offer = transfer.peer, transfer.incarnation, transfer.offer
        frame_bytes = self._links.to(peer, incarnation).frame_bytes(offer.size_bytes)
        eager_bytes = self._credit(transfer, frame_bytes) if eager else 0
        offer = replace(offer, frame_bytes=frame_bytes, eager_bytes=eager_bytes)
        transfer.offer, transfer.pushed_s = offer, now
        transfer.deadline_s = now + self._config.stall_s
        frame = transfer.snapshot, 0, 0
        self._log.send(peer, incarnation, offer, frame=frame, shown=not eager)
        return eager_bytes

    def _credit(self, transfer: OutgoingTransfer, frame_bytes: int) -> int:
        """Return how much of a share may follow its offer; this uses up the credit."""
        incarnation, credit_bytes = self._credits.pop(transfer.peer, (0, 0))
        if incarnation != transfer.incarnation:
            return 0
        window = window_bytes(self._config, frame_bytes, self._shards)
        return min(credit_bytes, window, transfer.offer.size_bytes)

    def _came_none(self, transfer: OutgoingTransfer, now: float) -> bool:
        """Return True if a share seems to have been given up before its first frame arrived."""
        # Its receiver counts from its grant, and may have a shorter timeout.
        is_long = now - transfer.granted_s >= self._config.stall_s / 2
        return is_long and bool(transfer.sent_bytes) and not transfer.gap_s

    def _stop_reading(self, transfer: OutgoingTransfer, *, abandoned: bool = False) -> None:
        if transfer.snapshot:
            self._snapshot_refs.remove(transfer.snapshot, abandoned=abandoned)
            transfer.snapshot = 0

    def _patience_s(self, transfer: OutgoingTransfer) -> float:
        wait_s = self._links.to(transfer.peer, transfer.incarnation).roundtrip.timeout_s
        if transfer.questions:
            wait_s *= 2.0 ** min(transfer.questions, DOUBLINGS_MAX)
        return min(max(wait_s, self._config.query_s_min), self._config.query_s_max)

    def _forget(self, transfer: OutgoingTransfer) -> bool:
        """Release everything kept for a transfer; return True if it was renounced."""
        if transfer.snapshot:
            self._stop_reading(transfer)
        if self._rate_limiter.is_limited:
            self._rate_limiter.release(self._key(transfer))
        peer = transfer.peer
        del self.transfers[peer]
        if peer in self.unanswering:
            self.unanswering.remove(peer)
        if self.showing:
            self.showing.discard(peer)
        if peer not in self._renounced:
            return False
        self._renounced.remove(peer)
        return True

    def _note(self, kind: Kind, transfer: OutgoingTransfer) -> None:
        seq = transfer.offer.seq
        self._log.record(Entry(kind, 0, transfer.peer, transfer.incarnation, seq))


_Do = Callable[[Outbox, OutgoingTransfer, float, int], EscrowEvent | None]
_S, _E = EscrowState, EscrowEvent


class _Step(NamedTuple):
    do: _Do
    after: EscrowState
    in_flight: int
    """Change in the number of shares that use up credit."""


_Row = dict[EscrowEvent, tuple[_Do, EscrowState] | None]


def _ignored(*events: EscrowEvent) -> _Row:
    return dict.fromkeys(events)


_NOT_SENT: Final[_Row] = {
    _E.ACK: (Outbox._take_refusal, _S.DECIDED),
    **dict.fromkeys([_E.UNSENT, _E.DIED, _E.LATER_INCARNATION], (Outbox._take_back, _S.DECIDED)),
    **_ignored(_E.PENDING, _E.LEAVING, _E.HEARD, _E.HEARD_GONE),
}


def _sent(here: EscrowState, stranded: EscrowState) -> _Row:
    return {
        _E.ACK: (Outbox._answered, _S.DECIDED),
        _E.PENDING: (Outbox._wait_on, here),
        _E.UNSENT: (Outbox._take_back, _S.DECIDED),
        _E.TIMEOUT: (Outbox._ask, here),
        _E.LEAVING: (Outbox._ask, here),
        _E.DIED: (Outbox._strand, stranded),
        _E.LATER_INCARNATION: (Outbox._write_off, _S.WRITTEN_OFF),
        **_ignored(_E.GRANT, _E.HEARD, _E.HEARD_GONE),
    }


def _stranded(here: EscrowState, back: EscrowState) -> _Row:
    return {
        _E.ACK: (Outbox._take_answer, _S.DECIDED),
        _E.UNSENT: (Outbox._take_back, _S.DECIDED),
        _E.TIMEOUT: (Outbox._let_go, here),
        _E.HEARD: (Outbox._recover, back),
        _E.HEARD_GONE: (Outbox._ask_gone, here),
        _E.LATER_INCARNATION: (Outbox._write_off, _S.WRITTEN_OFF),
        **_ignored(_E.GRANT, _E.PENDING, _E.LEAVING, _E.DIED),
    }


_ROWS: Final[dict[EscrowState, _Row]] = {
    _S.QUEUED: {
        _E.WHOLE: (Outbox._push, _S.SENT),
        _E.LEND: (Outbox._show, _S.LENT),
        _E.GO_ON: (Outbox._offer, _S.OFFERED),
        **_NOT_SENT,
        **_ignored(_E.GRANT),
    },
    _S.OFFERED: {
        _E.GO_ON: (Outbox._stream, _S.STREAMING),
        _E.GRANT: (Outbox._take_credit, _S.STREAMING),
        _E.TIMEOUT: (Outbox._take_back, _S.DECIDED),
        **_NOT_SENT,
    },
    _S.STREAMING: {
        _E.GO_ON: (Outbox._stream, _S.STREAMING),
        _E.ALL_SENT: (Outbox._await, _S.SENT),
        _E.GRANT: (Outbox._take_credit, _S.STREAMING),
        _E.TIMEOUT: (Outbox._take_back, _S.DECIDED),
        **_NOT_SENT,
    },
    _S.LENT: {
        **_sent(_S.LENT, _S.LENT_STRANDED),
        _E.GRANT: (Outbox._send_instead, _S.STREAMING),
    },
    _S.SENT: _sent(_S.SENT, _S.STRANDED),
    _S.STRANDED: _stranded(_S.STRANDED, _S.SENT),
    _S.LENT_STRANDED: _stranded(_S.LENT_STRANDED, _S.LENT),
    _S.DECIDED: {
        _E.BOOK: (Outbox._close, _S.SETTLED),
        _E.VALUES_BACK: (Outbox._keep, _S.RETURNING),
    },
    _S.RETURNING: {
        _E.STEP: (Outbox._mix_back, _S.SETTLED),
        **_ignored(_E.GRANT, _E.ACK, _E.PENDING, _E.UNSENT, _E.LEAVING),
        **_ignored(_E.DIED, _E.HEARD, _E.HEARD_GONE, _E.LATER_INCARNATION),
    },
}

TRANSITIONS: Final = {
    (state, event): leads_to
    and _Step(*leads_to, (state in _WITHOUT_CREDIT) - (leads_to[1] in _WITHOUT_CREDIT))
    for state, row in _ROWS.items()
    for event, leads_to in row.items()
}
"""``(state, event): (action, next state, change in credit used)``; None for an event that is
ignored. Missing pairs cannot occur."""


def diagram() -> str:
    """Draw the table as a Mermaid state diagram, for docs/explanation/protocol.md."""
    arrows: dict[tuple[EscrowState, EscrowState], list[EscrowEvent]] = {}
    for (state, event), step in TRANSITIONS.items():
        if step is not None:
            arrows.setdefault((state, step.after), []).append(event)
    lines = ["stateDiagram-v2", f"    state {_S.DECIDED.name} <<choice>>"]
    lines += [f"    [*] --> {_S.QUEUED.name}"]
    for (state, target), events in arrows.items():
        named = ", ".join([event.name.lower().replace("_", " ") for event in sorted(events)])
        lines.append(f"    {state.name} --> {target.name}: {named}")
    lines += [f"    {state.name} --> [*]" for state in EscrowState if state.is_final]
    return "\n".join(lines)
