"""Outgoing shares: in escrow until the receiver reports how much it accepted.

Once a share is sent, only the receiver can settle it. The receiver is queried repeatedly; if it is
considered dead, the escrow is stranded until it is heard, or until a later incarnation shows that
the old one is over. `TRANSITIONS`, below the class, is the whole state machine.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.ledger import Entry, Kind
from ..errors import RemoteProtocolError
from ..types import Incarnation, PeerId, SnapshotId, frozen
from ..wire.messages import Ack, Chunk, Offer, Push, Query
from .flow_control import LinkEstimator, patience_s, window_bytes
from .transfer import EscrowEvent, EscrowState, OutgoingTransfer, SnapshotRefs

__all__ = ["DOUBLINGS_MAX", "EXCUSED_AFTER", "TRANSITIONS", "Outbox", "Returned"]

_NEVER = float("inf")

# Bound once: up to Python 3.11, looking a member of an enum up costs more than a call.
_PUSHED, _SETTLED, _LENT = Kind.PUSHED, Kind.SETTLED, EscrowState.LENT
_ACK = EscrowEvent.ACK

EXCUSED_AFTER = 2
"""Unanswered queries after which a receiver is excused: one query may be lost, and one answer."""

DOUBLINGS_MAX = 10
"""Most unanswered queries after each of which the timeout doubles."""

_MEMORY_RETRY_S = 60.0

_SENT = EscrowState.LENT, EscrowState.SENT


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
        links: dict[PeerId, LinkEstimator],
        snapshot_refs: SnapshotRefs,
        shards: int = 1,
    ) -> None:
        self._shards = shards
        self._config = config
        self._log = log
        self._links = links
        self.transfers: dict[PeerId, OutgoingTransfer] = {}
        """At most one for each receiver; read-only."""
        self.last_seq: dict[PeerId, int] = {}
        """Number of the last share toward each receiver; numbers are never reused."""
        self._snapshot_refs = snapshot_refs
        # Bytes that may follow the next offer at once, according to the last answer.
        self._credits: dict[PeerId, tuple[Incarnation, int]] = {}
        self.returned: list[Returned] = []
        self.renounced: set[PeerId] = set()
        """Receivers of shares of a swarm that was given up: whatever is returned is burned."""

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
        """Move the offered weight into escrow, and send or offer the share."""
        self._log.record(Entry(_PUSHED, offer.escrow, peer, incarnation, offer.seq))
        link = self._links.get(peer)
        if link is None or link.incarnation < incarnation:
            link = self._links[peer] = LinkEstimator(self._config, incarnation)
        transfer = OutgoingTransfer(peer, incarnation, offer, snapshot, link, now, _NEVER)
        self.transfers[peer] = transfer
        self._snapshot_refs.add(snapshot)
        if type(offer) is Push:
            self._push(transfer, now)
        elif shown and now >= link.memory_due_s:
            self._show(transfer, now)
        else:
            self._offer(transfer, now)

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
        """Settle a share, and learn from the answer what the link carries."""
        transfer = self.transfers.get(peer)
        if transfer is None or transfer.incarnation != incarnation:
            return
        if transfer.offer.seq != message.seq:
            return
        # An answer may be to a query instead of the push (Karn's rule), or come after a silence.
        measures = transfer.questions == 0 and transfer.state in _SENT
        self._on(transfer, _ACK, now, message.accepted)
        link = transfer.link
        if measures:
            link.answered(now - transfer.pushed_s)
        if message.bytes_s and not transfer.gap_s:
            # The whole share fitted into the first grant, so no GRANT measured the pace.
            link.carried(message.bytes_s, 1.0)
        elif not message.accepted and transfer.sent_bytes and not transfer.gap_s:
            # Its receiver seems to have given up before the first frame arrived. It counts from its
            # grant, and may have a shorter timeout.
            waited_s = now - transfer.granted_s
            if waited_s >= self._config.stall_s / 2:
                frame_bytes = min(transfer.offer.frame_bytes, transfer.offer.size_bytes)
                link.carried_none(frame_bytes, waited_s)
        if message.credit_bytes:
            credit_bytes = min(message.credit_bytes, self._config.window_bytes)
            self._credits[peer] = incarnation, credit_bytes

    def query_due(self, now: float) -> None:
        for transfer in tuple(self.transfers.values()):
            if now >= transfer.deadline_s:
                self._on(transfer, EscrowEvent.TIMEOUT, now)

    def _on(
        self, transfer: OutgoingTransfer, event: EscrowEvent, now: float, amount: int = 0
    ) -> None:
        """Apply an event, unless the table ignores it."""
        following: EscrowEvent | None = event
        while following is not None:
            leads_to = TRANSITIONS[transfer.state, following]
            if leads_to is None:
                return
            do, after = leads_to
            # If it raises, nothing has changed.
            following = do(self, transfer, now, amount)
            transfer.state, amount = after, 0

    def _push(self, transfer: OutgoingTransfer, now: float) -> None:
        offer, receiver = transfer.offer, (transfer.peer, transfer.incarnation)
        self._log.send(*receiver, offer, frame=(transfer.snapshot, 0, offer.size_bytes))
        self._await(transfer, now, 0)
        transfer.state = EscrowState.SENT

    def _show(self, transfer: OutgoingTransfer, now: float) -> None:
        frame_bytes = transfer.link.frame_bytes(transfer.offer.size_bytes)
        self._send_offer(transfer, now, frame_bytes, shown=True)
        transfer.deadline_s = now + self._patience_s(transfer)
        transfer.state = EscrowState.LENT

    def _offer(self, transfer: OutgoingTransfer, now: float) -> None:
        size_bytes = transfer.offer.size_bytes
        frame_bytes = transfer.link.frame_bytes(size_bytes)
        incarnation, credit_bytes = self._credits.pop(transfer.peer, (0, 0))
        if incarnation != transfer.incarnation:
            credit_bytes = 0
        window = window_bytes(self._config, frame_bytes, self._shards)
        eager_bytes = min(credit_bytes, window, size_bytes)
        self._send_offer(transfer, now, frame_bytes, eager_bytes)
        if eager_bytes:
            transfer.granted_bytes, transfer.granted_s = eager_bytes, now
            self._on(transfer, EscrowEvent.GO_ON, now)

    def _send_offer(
        self,
        transfer: OutgoingTransfer,
        now: float,
        frame_bytes: int,
        eager_bytes: int = 0,
        *,
        shown: bool = False,
    ) -> None:
        offer = replace(transfer.offer, frame_bytes=frame_bytes, eager_bytes=eager_bytes)
        transfer.offer, transfer.pushed_s = offer, now
        transfer.deadline_s = now + self._config.stall_s
        receiver, frame = (transfer.peer, transfer.incarnation), (transfer.snapshot, 0, 0)
        self._log.send(*receiver, offer, frame=frame, shown=shown)

    # The actions in `TRANSITIONS`. Each returns the event that follows at once, or None: so a
    # choice, such as whether the last frame was sent, is a transition like any other.

    def _take_credit(
        self, transfer: OutgoingTransfer, now: float, credit_bytes: int
    ) -> EscrowEvent:
        if credit_bytes > transfer.sent_bytes + self._config.window_bytes:
            raise RemoteProtocolError("GRANT of more than a window", transfer.peer)
        more_bytes = credit_bytes - transfer.granted_bytes
        if more_bytes > 0:
            if transfer.granted_bytes:
                transfer.gap_s = max(transfer.gap_s, now - transfer.granted_s)
                transfer.link.carried(more_bytes, now - transfer.granted_s)
            transfer.granted_bytes, transfer.granted_s = credit_bytes, now
        return EscrowEvent.GO_ON

    def _send_instead(
        self, transfer: OutgoingTransfer, now: float, credit_bytes: int
    ) -> EscrowEvent:
        self._take_credit(transfer, now, credit_bytes)
        transfer.link.memory_due_s = now + _MEMORY_RETRY_S
        # The memory may have been abandoned meanwhile: then the share can never be completed there.
        return EscrowEvent.GO_ON if transfer.snapshot else EscrowEvent.UNSENT

    def _stream(self, transfer: OutgoingTransfer, now: float, _: int) -> EscrowEvent | None:
        transfer.deadline_s = now + patience_s(self._config, transfer.gap_s)
        offer, receiver = transfer.offer, (transfer.peer, transfer.incarnation)
        while transfer.sent_bytes < offer.size_bytes:
            start = transfer.sent_bytes
            stop = min(offer.size_bytes, start + offer.frame_bytes)
            if stop > transfer.granted_bytes:
                return None
            body = Chunk(offer.seq, start // offer.frame_bytes, start)
            self._log.send(*receiver, body, frame=(transfer.snapshot, start, stop - start))
            transfer.sent_bytes = stop
        return EscrowEvent.ALL_SENT

    def _await(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        transfer.deadline_s = now + self._patience_s(transfer)
        self._snapshot_refs.remove(transfer.snapshot)
        transfer.snapshot = 0

    def _wait_on(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        transfer.is_unanswered = False
        transfer.deadline_s = now + self._patience_s(transfer)

    def _ask(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._ask_gone(transfer, now, 0)
        transfer.deadline_s = now + self._patience_s(transfer)
        transfer.is_unanswered = transfer.questions >= EXCUSED_AFTER

    def _ask_gone(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        # Without a timeout: once the receiver is not a member, its silence says nothing.
        transfer.questions += 1
        self._log.send(transfer.peer, transfer.incarnation, Query(transfer.offer.seq))

    def _strand(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._note(Kind.STRANDED, transfer)
        transfer.is_unanswered = False
        transfer.deadline_s = _NEVER
        if transfer.snapshot:  # it is lent
            self._snapshot_refs.remove(transfer.snapshot, abandoned=True)
            transfer.snapshot = 0

    def _recover(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._note(Kind.FOUND, transfer)
        self._ask(transfer, now, 0)

    def _settle(self, transfer: OutgoingTransfer, now: float, accepted: int) -> None:
        offer = transfer.offer
        # An answer to a share that was not sent can only refuse it.
        if accepted > (offer.escrow if transfer.state >= _LENT else 0):
            raise RemoteProtocolError("ACK of more than was sent", transfer.peer)
        receiver, renounced = (transfer.peer, transfer.incarnation), transfer.peer in self.renounced
        self._forget(transfer)
        self._log.record(Entry(_SETTLED, accepted, *receiver, offer.seq))
        if renounced and accepted < offer.escrow:
            self._log.record(Entry(Kind.BURNED, offer.escrow - accepted))
        if accepted == 0:
            self.returned.append(Returned(transfer.peer, offer.epoch, offer.round))

    def _write_off(self, transfer: OutgoingTransfer, now: float, _: int) -> None:
        self._forget(transfer)
        self._note(Kind.WRITTEN_OFF, transfer)

    # Helpers of these actions.

    def _patience_s(self, transfer: OutgoingTransfer) -> float:
        wait_s = transfer.link.timeout_s
        if transfer.questions:
            wait_s *= 2.0 ** min(transfer.questions, DOUBLINGS_MAX)
        return min(max(wait_s, self._config.query_s_min), self._config.query_s_max)

    def _forget(self, transfer: OutgoingTransfer) -> None:
        if transfer.snapshot:
            self._snapshot_refs.remove(transfer.snapshot)
            transfer.snapshot = 0
        del self.transfers[transfer.peer]
        self.renounced.discard(transfer.peer)

    def _note(self, kind: Kind, transfer: OutgoingTransfer) -> None:
        seq = transfer.offer.seq
        self._log.record(Entry(kind, 0, transfer.peer, transfer.incarnation, seq))


_Do = Callable[[Outbox, OutgoingTransfer, float, int], EscrowEvent | None]
_S, _E = EscrowState, EscrowEvent

_Row = dict[EscrowEvent, tuple[_Do, EscrowState] | None]


def _ignored(*events: EscrowEvent) -> _Row:
    return dict.fromkeys(events)


_NOT_SENT: Final[_Row] = {
    **dict.fromkeys(
        [_E.ACK, _E.UNSENT, _E.DIED, _E.LATER_INCARNATION], (Outbox._settle, _S.SETTLED)
    ),
    **_ignored(_E.PENDING, _E.LEAVING),
}


def _sent(here: EscrowState, stranded: EscrowState) -> _Row:
    return {
        _E.ACK: (Outbox._settle, _S.SETTLED),
        _E.PENDING: (Outbox._wait_on, here),
        _E.UNSENT: (Outbox._settle, _S.SETTLED),
        _E.TIMEOUT: (Outbox._ask, here),
        _E.LEAVING: (Outbox._ask, here),
        _E.DIED: (Outbox._strand, stranded),
        _E.LATER_INCARNATION: (Outbox._write_off, _S.WRITTEN_OFF),
        **_ignored(_E.GRANT),
    }


def _stranded(here: EscrowState, back: EscrowState) -> _Row:
    return {
        _E.ACK: (Outbox._settle, _S.SETTLED),
        _E.UNSENT: (Outbox._settle, _S.SETTLED),
        _E.HEARD: (Outbox._recover, back),
        _E.HEARD_GONE: (Outbox._ask_gone, here),
        _E.LATER_INCARNATION: (Outbox._write_off, _S.WRITTEN_OFF),
        **_ignored(_E.GRANT, _E.PENDING, _E.LEAVING, _E.DIED),
    }


_ROWS: Final[dict[EscrowState, _Row]] = {
    _S.OFFERED: {
        _E.GO_ON: (Outbox._stream, _S.STREAMING),
        _E.GRANT: (Outbox._take_credit, _S.STREAMING),
        _E.TIMEOUT: (Outbox._settle, _S.SETTLED),
        **_NOT_SENT,
    },
    _S.STREAMING: {
        _E.GO_ON: (Outbox._stream, _S.STREAMING),
        _E.ALL_SENT: (Outbox._await, _S.SENT),
        _E.GRANT: (Outbox._take_credit, _S.STREAMING),
        _E.TIMEOUT: (Outbox._settle, _S.SETTLED),
        **_NOT_SENT,
    },
    _S.LENT: {
        **_sent(_S.LENT, _S.LENT_STRANDED),
        _E.GRANT: (Outbox._send_instead, _S.STREAMING),
    },
    _S.SENT: _sent(_S.SENT, _S.STRANDED),
    _S.STRANDED: _stranded(_S.STRANDED, _S.SENT),
    _S.LENT_STRANDED: _stranded(_S.LENT_STRANDED, _S.LENT),
}

TRANSITIONS: Final = {
    (state, event): leads_to for state, row in _ROWS.items() for event, leads_to in row.items()
}
"""``(state, event): (action, next state)``; None if it is ignored. Other pairs cannot occur."""
