"""Incoming shares: from an offer to a decision, which is made exactly once.

A share *arrives*, is *inspected*, is *ready* for a step, and is then *decided*: the account records
how much was accepted, and an ACK reports it to the sender. A query about a share that never arrived
decides it as well: that is the fence.
"""

from collections.abc import Callable

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.effects import Attach, Drop, Inspect, Stage
from ..effects.events import ShareRefused
from ..effects.ledger import NO_DECISION, Entry, Kind
from ..errors import RemoteProtocolError
from ..types import Incarnation, PeerId, ShareId
from ..weight import WEIGHT_MAX
from ..wire.messages import Ack, Chunk, Grant, Offer, Pending, Push
from ..wire.schema import Schema
from .flow_control import FRAMES_MAX, patience_s, window_bytes
from .transfer import IncomingState, IncomingTransfer

__all__ = ["PROGRESS_REPORTS", "Inbox"]

_NEVER = float("inf")

# Bound once: up to Python 3.11, looking a member of an enum up costs more than a call.
_ACCEPTED, _STAGED, _READY = Kind.ACCEPTED, IncomingState.STAGED, IncomingState.READY

PROGRESS_REPORTS = 10
"""Progress reports to the sender within the time after which it would give up."""

_WINDOW_S = 2.0
"""Seconds of a share that may be in flight."""

# Frames that arrive in no measurable time say nothing about the pace.
_PACE_MAX = 1e12


class Inbox:
    """All shares on their way to one peer."""

    def __init__(
        self,
        config: ProtocolConfig,
        schema: Schema,
        log: EffectLog,
        validate: Callable[[ShareId, Offer], str],
        is_open: Callable[[], bool],
    ) -> None:
        self._config = config
        self._schema = schema
        self._log = log
        self._validate = validate
        self._is_open = is_open
        self.transfers: dict[tuple[PeerId, Incarnation], IncomingTransfer] = {}
        """At most one for each incarnation of a sender, in order of arrival; read-only."""

    def push(self, share: ShareId, message: Push, frame_bytes: int, now: float) -> None:
        """Accept a whole share that came in one message."""
        if frame_bytes != message.size_bytes:
            raise RemoteProtocolError("PUSH is not as long as it says", share.sender)
        if self._admits(share, message):
            size = message.size_bytes
            transfer = IncomingTransfer(share, message, size, now, _NEVER, received_bytes=size)
            self.transfers[share.sender, share.incarnation] = transfer
            self._log.emit(Stage(share, 0, size, message.form))
            self._complete(transfer)

    def offer(self, share: ShareId, message: Offer, now: float) -> None:
        """Accept a share frame by frame or from memory, or refuse it before its bytes are sent."""
        if not 0 < message.size_bytes <= message.frame_bytes * FRAMES_MAX:
            raise RemoteProtocolError("a share in more frames than are counted", share.sender)
        if not self._admits(share, message):
            known = self._find(share)
            if known is None or known.offer != message:
                return
            if known.state is IncomingState.ARRIVING:
                self._grant(known, now, repeat=True)
            return
        window = window_bytes(self._config, message.frame_bytes, self._schema.shards)
        window, stalled_s = min(window, message.size_bytes), now + self._config.stall_s
        transfer = IncomingTransfer(share, message, window, now, stalled_s)
        self.transfers[share.sender, share.incarnation] = transfer
        if message.segment:
            transfer.state = IncomingState.ATTACHING
            self._log.emit(Attach(share, message.segment, message.size_bytes, message.form))
        elif message.eager_bytes >= transfer.window_bytes:
            # The sender has already assumed this credit.
            transfer.granted_bytes = transfer.paced_bytes = transfer.window_bytes
            transfer.granted_s = now
        else:
            self._grant(transfer, now)

    def attached(self, share: ShareId, now: float, *, usable: bool) -> None:
        """Use a share in its sender's memory, or have it sent if the memory cannot be read."""
        transfer = self._find(share)
        if transfer is None or transfer.state is not IncomingState.ATTACHING:
            return
        if usable:
            self._complete(transfer)
        else:
            transfer.state = IncomingState.ARRIVING
            self._grant(transfer, now)

    def chunk(self, share: ShareId, message: Chunk, frame_bytes: int, now: float) -> None:
        """Stage one frame, unless it is a duplicate or has no open transfer."""
        transfer = self._lacking(share, message.index)
        if transfer is None:
            return
        offer, start, size = transfer.offer, message.offset_bytes, transfer.offer.size_bytes
        if not transfer.has_frame(message, frame_bytes):
            raise RemoteProtocolError("CHUNK is not a frame of its share", share.sender)
        if start + frame_bytes > max(transfer.granted_bytes, transfer.window_bytes):
            raise RemoteProtocolError("CHUNK was not granted", share.sender)
        transfer.chunks.add(message.index)
        if transfer.received_bytes:
            transfer.gap_s = max(transfer.gap_s, now - transfer.progress_s)
        else:
            transfer.began_s = now
        transfer.received_bytes += frame_bytes
        transfer.progress_s = now
        transfer.deadline_s = now + patience_s(self._config, transfer.gap_s)
        self._log.emit(Stage(share, start, size, offer.form))
        # Credit is renewed every half window: one GRANT per frame would double the messages.
        left_bytes = transfer.granted_bytes - transfer.received_bytes
        if transfer.granted_bytes < size and left_bytes <= transfer.paced_bytes // 2:
            self._grant(transfer, now)
        elif now >= transfer.granted_s + self._config.stall_s / PROGRESS_REPORTS:
            # On a slow link half a window takes long, and its sender must see progress.
            self._grant(transfer, now, repeat=True)
        if transfer.received_bytes == size:
            self._complete(transfer)

    def place_of(self, share: ShareId, message: Chunk, frame_bytes: int) -> Stage | None:
        """Return where to receive a frame in place; None if it is not wanted."""
        transfer = self._lacking(share, message.index)
        if transfer is None or not transfer.has_frame(message, frame_bytes):
            return None
        offer = transfer.offer
        return Stage(share, message.offset_bytes, offer.size_bytes, offer.form)

    def query(self, share: ShareId, now: float) -> None:
        """Answer a query about a share; one never seen is fenced: it cannot be accepted later."""
        transfer = self._find(share)
        if transfer is None:
            if self._is_new(share):
                self._decide(share, 0)
        elif now >= transfer.deadline_s:
            self.decide(transfer, 0, "stalled")
        else:
            self._log.send(share.sender, share.incarnation, Pending(share.seq))

    def inspected(self, share: ShareId, finite: bool, returned: bool) -> None:
        """Record that a staged share is *finite*, or have it *returned* if it is not."""
        transfer = self._find(share)
        if transfer is None or transfer.state is not _STAGED:
            return
        transfer.is_finite = finite
        # A share that a round needs would be pushed again forever: its rule decides.
        if not finite and returned:
            self.decide(transfer, 0, "not finite")
        else:
            transfer.state = _READY

    def turn_away(self, share: ShareId, reason: str) -> None:
        """Refuse a new share before any of its bytes are read."""
        if self._is_new(share):
            self._refuse(share, reason)

    def decide(self, transfer: IncomingTransfer, accepted: int, reason: str = "") -> None:
        """Accept part of a share's escrow after it was mixed; with a reason, refuse the share."""
        share = transfer.id
        del self.transfers[share.sender, share.incarnation]
        if reason:
            self._log.emit(Drop(share))
            self._log.emit(ShareRefused(share.sender, reason))
        # A share that came in one message, or was read from memory, has no measurable pace.
        pace = transfer.bytes_s if transfer.chunks else 0
        self._decide(share, accepted, int(pace) if pace < _PACE_MAX else 0)

    def refuse_all(self, reason: str) -> None:
        for transfer in tuple(self.transfers.values()):
            self.decide(transfer, 0, reason)

    def expire(self, now: float) -> None:
        for transfer in tuple(self.transfers.values()):
            if now >= transfer.deadline_s:
                self.decide(transfer, 0, "stalled")

    def _admits(self, share: ShareId, message: Offer) -> bool:
        """Return True if an offered share is new and is not refused."""
        size = message.form.size_bytes(self._schema, share.shard)
        if message.size_bytes != size:
            raise RemoteProtocolError(
                f"a share of {message.size_bytes} bytes, not {size}", share.sender
            )
        if not message.escrow:
            raise RemoteProtocolError("a share without weight", share.sender)
        if not self._is_new(share):
            return False
        reason = self._validate(share, message)
        if not reason and len(self.transfers) >= self._config.staged_max:
            reason = "busy"
        elif not reason:
            total = self._log.account.weight + message.escrow
            for other in self.transfers.values():
                total += other.offer.escrow
            if total > WEIGHT_MAX:
                reason = "more weight than there can be"
        if reason:
            self._refuse(share, reason)
        return not reason

    def _is_new(self, share: ShareId) -> bool:
        """Return True if a share is new; the previous one from its sender then ends."""
        sender = share.sender, share.incarnation
        last, accepted = self._log.account.decided.get(sender, NO_DECISION)
        if share.seq <= last:
            # Shares older than the last need no answer.
            if share.seq == last:
                self._acknowledge(share, accepted)
            return False
        before = self.transfers.get(sender)
        if before is None:
            return True
        if share.seq <= before.id.seq:
            return False
        if before.whole:
            raise RemoteProtocolError("sent more before the last share was settled", share.sender)
        self.decide(before, 0, "given up by its sender")
        return True

    def _find(self, share: ShareId) -> IncomingTransfer | None:
        transfer = self.transfers.get((share.sender, share.incarnation))
        return transfer if transfer is not None and transfer.id == share else None

    def _lacking(self, share: ShareId, index: int) -> IncomingTransfer | None:
        transfer = self._find(share)
        if transfer is None or transfer.state is not IncomingState.ARRIVING:
            return None
        return None if index in transfer.chunks else transfer

    def _complete(self, transfer: IncomingTransfer) -> None:
        transfer.state, transfer.deadline_s = _STAGED, _NEVER
        transfer.received_bytes = transfer.offer.size_bytes
        self._log.emit(Inspect(transfer.id))

    def _grant(self, transfer: IncomingTransfer, now: float, *, repeat: bool = False) -> None:
        """Grant more of a share; *repeat* also repeats an unchanged grant."""
        # On a slow link, a full window would be a queue of many seconds, which delays queries.
        paced = max(transfer.bytes_s * _WINDOW_S, 2 * transfer.offer.frame_bytes)
        transfer.paced_bytes = int(min(paced, transfer.window_bytes))
        stop = min(transfer.received_bytes + transfer.paced_bytes, transfer.offer.size_bytes)
        if stop > transfer.granted_bytes or repeat:
            transfer.granted_bytes = max(stop, transfer.granted_bytes)
            transfer.granted_s = now
            share, credit_bytes = transfer.id, transfer.granted_bytes
            self._log.send(share.sender, share.incarnation, Grant(share.seq, credit_bytes))

    def _refuse(self, share: ShareId, reason: str) -> None:
        self._log.emit(ShareRefused(share.sender, reason))
        self._decide(share, 0)

    def _decide(self, share: ShareId, accepted: int, bytes_s: int = 0) -> None:
        entry = Entry(_ACCEPTED, accepted, share.sender, share.incarnation, share.seq)
        self._log.record(entry)
        self._acknowledge(share, accepted, bytes_s)

    def _acknowledge(self, share: ShareId, accepted: int, bytes_s: int = 0) -> None:
        config = self._config
        # No credit in advance if the last share was useless, or arrived out of order.
        has_place = accepted and len(self.transfers) < config.staged_max and self._is_open()
        credit_bytes = config.window_bytes if has_place else 0
        ack = Ack(share.seq, accepted, credit_bytes, bytes_s)
        self._log.send(share.sender, share.incarnation, ack)
