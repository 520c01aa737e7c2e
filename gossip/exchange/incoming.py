"""Shares on their way in: from an offer to a decision, each decided exactly once.

A share *arrives* (some bytes staged), is *inspected*, is *ready* (a step may take it), and is then
*decided*: an entry in the account says how much was accepted, and an ACK says so to the
sender. A question about a share that never came decides it too: that is the fence.
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
from .transfer import INCOMING_TRANSITIONS, IncomingEvent, IncomingState, IncomingTransfer

__all__ = ["PROGRESS_REPORTS", "Inbox"]

_NEVER = float("inf")

# Looked up once: of an enum's members that takes fifty nanoseconds.
_WHOLE, _FINITE, _ACCEPTED = IncomingEvent.WHOLE, IncomingEvent.FINITE, Kind.ACCEPTED
_TAKEN, _REFUSED = IncomingEvent.TAKEN, IncomingEvent.REFUSED

PROGRESS_REPORTS = 10
"""How often the sender hears that a share comes on, before it would give it up."""

_WINDOW_S = 2.0
"""So many seconds of a share may be on their way."""


class Inbox:
    """Every share that is on its way to one peer."""

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
        """By incarnation of a sender, which has at most one share outstanding here; in order of
        arrival, in which a step mixes. Read it, do not change it."""

    def __len__(self) -> int:
        return len(self.transfers)

    def expects_copy(self, but: PeerId = "") -> bool:
        """Whether a copy is on its way, so that no other donor need be asked."""
        transfers = self.transfers.values()
        return any([a.offer.form.copy for a in transfers if a.id.sender != but])

    def push(self, share: ShareId, message: Push, frame_bytes: int, now: float) -> None:
        """Take a whole share that came in one message."""
        if frame_bytes != message.size_bytes:
            raise RemoteProtocolError("PUSH is not as long as it says", share.sender)
        transfer = self._open(share, message, now)
        if transfer is None:
            return
        if transfer.on(_WHOLE):
            transfer.received_bytes = message.size_bytes
            self._log.ask(Stage(share, 0, message.size_bytes, message.form))
            self._log.ask(Inspect(share))

    def offer(self, share: ShareId, message: Offer, now: float) -> None:
        """Let a share in frame by frame, or from memory, or refuse it before its bytes move."""
        if not 0 < message.size_bytes <= message.frame_bytes * FRAMES_MAX:
            raise RemoteProtocolError("a share in more frames than are counted", share.sender)
        transfer = self._open(share, message, now)
        if transfer is None or not transfer.on(
            IncomingEvent.ATTACH if message.segment else IncomingEvent.OFFER
        ):
            return
        if transfer.state is IncomingState.ATTACHING:
            self._log.ask(Attach(share, message.segment, message.size_bytes, message.form))
        elif not transfer.granted_bytes and message.eager_bytes >= self._window(transfer):
            # Its sender knows already.
            transfer.granted_bytes = transfer.paced_bytes = self._window(transfer)
            transfer.granted_s = now
        else:
            self._grant(transfer, now, repeat=True)

    def attached(self, share: ShareId, now: float, *, usable: bool) -> None:
        """Take a share from its sender's memory, or have it sent where that cannot be read."""
        transfer = self._find(share)
        if transfer is None or not transfer.on(
            IncomingEvent.READABLE if usable else IncomingEvent.UNREADABLE
        ):
            return
        if usable:
            transfer.received_bytes = transfer.offer.size_bytes
            self._log.ask(Inspect(share))
        else:
            self._grant(transfer, now)

    def chunk(self, share: ShareId, message: Chunk, frame_bytes: int, now: float) -> None:
        """Stage one frame. One that belongs to no open transfer, or came before, is dropped."""
        transfer = self._find(share)
        if transfer is None or not transfer.wants(message.index):
            return
        size, start = transfer.offer.size_bytes, message.offset_bytes
        if not transfer.has_frame(message, frame_bytes):
            raise RemoteProtocolError("CHUNK is not a frame of its share", share.sender)
        window = self._window(transfer)
        if start + frame_bytes > max(transfer.granted_bytes, window):
            raise RemoteProtocolError("CHUNK was not granted", share.sender)
        transfer.chunks.add(message.index)
        transfer.came_on(frame_bytes, now)
        self._log.ask(Stage(share, start, size, transfer.offer.form))
        # Credit is renewed by half windows: one GRANT per frame would double the messages.
        left_bytes = transfer.granted_bytes - transfer.received_bytes
        if transfer.granted_bytes < size and left_bytes <= transfer.paced_bytes // 2:
            self._grant(transfer, now)
        elif now >= transfer.granted_s + self._config.stall_s / PROGRESS_REPORTS:
            # On a slow link half a window takes long, and its sender must know that it comes on.
            self._grant(transfer, now, repeat=True)
        self._inspect_if_complete(transfer)

    def place_of(self, share: ShareId, message: Chunk, frame_bytes: int) -> Stage | None:
        """Where a frame belongs, so that it can be received there; None where it is not wanted."""
        transfer = self._find(share)
        if transfer is None or not transfer.wants(message.index):
            return None
        if not transfer.has_frame(message, frame_bytes):
            return None
        offer = transfer.offer
        return Stage(share, message.offset_bytes, offer.size_bytes, offer.form)

    def query(self, share: ShareId, now: float) -> None:
        """Answer what became of a share; one that has not been seen never will be."""
        transfer = self._find(share)
        if transfer is not None:
            if not self._give_up_if_stalled(transfer, now):
                self._log.send(share.sender, share.incarnation, Pending(share.seq))
            return
        if self._is_new(share):
            self._decide(share, 0)

    def inspected(self, share: ShareId, finite: bool, returned: bool) -> None:
        """Take the vector's word on a staged share.

        Args:
            returned: Whether the share goes back if they are not; else the rule decides. One that
                a round needs would be pushed again, and again, for ever. A model that is shown
                always goes back: no rule sees it.
        """
        transfer = self.transfers.get((share.sender, share.incarnation))
        if transfer is None or transfer.id != share:
            return
        transfer.is_finite = finite
        if not finite and (returned or transfer.offer.held):
            self.decide(transfer, 0, "not finite", IncomingEvent.NOT_FINITE)
            return
        transfer.state = INCOMING_TRANSITIONS[transfer.state].get(_FINITE, transfer.state)

    def turn_away(self, share: ShareId, reason: str) -> None:
        """Refuse a share before any of its bytes are looked at, unless it was let in before."""
        if self._is_new(share):
            self._refuse(share, reason)

    def decide(
        self,
        transfer: IncomingTransfer,
        accepted: int,
        reason: str = "",
        event: IncomingEvent | None = None,
    ) -> bool:
        """Accept so much of a share's escrow, once and for all.

        The caller asks for the mixing first, where anything was accepted.

        Without an event it is taken, or refused for the reason. Returns whether the event decides
        it; in some states it does not.
        """
        if event is None:
            event = _REFUSED if reason else _TAKEN
        after, share = INCOMING_TRANSITIONS[transfer.state].get(event), transfer.id
        if after is None:
            return False
        transfer.state = after
        del self.transfers[share.sender, share.incarnation]
        if reason:
            self._log.ask(Drop(share))
            self._log.ask(ShareRefused(share.sender, reason))
        # What came in one message has no pace.
        self._decide(share, accepted, transfer.bytes_s if transfer.chunks else 0)
        return True

    def read(self, transfer: IncomingTransfer) -> None:
        """Send a share back that is there, had no weight and was read."""
        self._log.ask(Drop(transfer.id))
        self.decide(transfer, 0)

    def refuse_all(self, reason: str) -> None:
        for transfer in tuple(self.transfers.values()):
            self.decide(transfer, 0, reason)

    def expire(self, now: float) -> None:
        """Send back what stopped arriving in the middle."""
        for transfer in tuple(self.transfers.values()):
            if transfer.state < IncomingState.STAGED:
                self._give_up_if_stalled(transfer, now)

    def forget(self, sender: PeerId, current: Incarnation) -> None:
        """Send back what earlier incarnations of *sender* can no longer finish."""
        for transfer in tuple(self.transfers.values()):
            earlier = transfer.id.sender == sender and transfer.id.incarnation < current
            if earlier:
                self.decide(transfer, 0, "its sender restarted", IncomingEvent.RESTARTED)

    def deadline(self) -> float:
        due_s = _NEVER
        for transfer in self.transfers.values():
            if transfer.state < IncomingState.STAGED:
                due_s = min(due_s, self._stalls_s(transfer))
        return due_s

    def _open(self, share: ShareId, message: Offer, now: float) -> IncomingTransfer | None:
        """Find or make the transfer of an offered share; None where that was decided."""
        size = message.form.size_bytes(self._schema, share.shard)
        if message.size_bytes != size:
            raise RemoteProtocolError(
                f"a share of {message.size_bytes} bytes, not {size}", share.sender
            )
        if bool(message.escrow) is bool(message.held):
            what = "to be read that has weight" if message.held else "without weight"
            raise RemoteProtocolError(f"a share {what}", share.sender)
        if not self._is_new(share):
            found = self._find(share)
            return found if found is not None and found.offer == message else None
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
            return None
        transfer = IncomingTransfer(share, message, now)
        self.transfers[share.sender, share.incarnation] = transfer
        return transfer

    def _is_new(self, share: ShareId) -> bool:
        """Whether a share was not heard of before; the one before it then ends."""
        sender = share.sender, share.incarnation
        last, accepted = self._log.account.decided.get(sender, NO_DECISION)
        if share.seq <= last:
            # One that is older than the last needs no answer.
            if share.seq == last:
                self._acknowledge(share, accepted)
            return False
        before = self.transfers.get(sender)
        if before is None:
            return True
        if share.seq <= before.id.seq:
            return False
        if before.whole:
            raise RemoteProtocolError("went on before the last share was settled", share.sender)
        self.decide(before, 0, "given up by its sender", IncomingEvent.SUPERSEDED)
        return True

    def _find(self, share: ShareId) -> IncomingTransfer | None:
        transfer = self.transfers.get((share.sender, share.incarnation))
        return transfer if transfer is not None and transfer.id == share else None

    def _give_up_if_stalled(self, transfer: IncomingTransfer, now: float) -> bool:
        # The very sum that `deadline` gives: a difference may round to just below it, for ever.
        if now < self._stalls_s(transfer):
            return False
        return self.decide(transfer, 0, "stalled", IncomingEvent.STALLED)

    def _stalls_s(self, transfer: IncomingTransfer) -> float:
        return transfer.progress_s + patience_s(self._config, transfer.gap_s)

    def _grant(self, transfer: IncomingTransfer, now: float, *, repeat: bool = False) -> None:
        """Let more of a share come; *repeat* says it also where it is no more than before."""
        # From a slow sender a full window would be many seconds of queue, behind which its
        # questions wait.
        paced = max(transfer.bytes_in(_WINDOW_S), 2 * transfer.offer.frame_bytes)
        transfer.paced_bytes = int(min(paced, self._window(transfer)))
        stop = min(transfer.received_bytes + transfer.paced_bytes, transfer.offer.size_bytes)
        if stop > transfer.granted_bytes or repeat:
            transfer.granted_bytes = max(stop, transfer.granted_bytes)
            transfer.granted_s = now
            share, credit_bytes = transfer.id, transfer.granted_bytes
            self._log.send(share.sender, share.incarnation, Grant(share.seq, credit_bytes))

    def _window(self, transfer: IncomingTransfer) -> int:
        window = window_bytes(self._config, transfer.offer.frame_bytes, self._schema.shards)
        return min(window, transfer.offer.size_bytes)

    def _inspect_if_complete(self, transfer: IncomingTransfer) -> None:
        if transfer.received_bytes == transfer.offer.size_bytes:
            transfer.on(IncomingEvent.COMPLETE)
            self._log.ask(Inspect(transfer.id))

    def _refuse(self, share: ShareId, reason: str) -> None:
        self._log.ask(ShareRefused(share.sender, reason))
        self._decide(share, 0)

    def _decide(self, share: ShareId, accepted: int, bytes_s: int = 0) -> None:
        sender = share.sender, share.incarnation
        self._log.record(Entry(_ACCEPTED, accepted, *sender, share.seq))
        self._acknowledge(share, accepted, bytes_s)

    def _acknowledge(self, share: ShareId, accepted: int, bytes_s: int = 0) -> None:
        config = self._config
        # Nothing is to come unasked where the last share was of no use, or came in disorder.
        has_place = accepted and len(self.transfers) < config.staged_max and self._is_open()
        credit_bytes = config.window_bytes if has_place else 0
        ack = Ack(share.seq, accepted, credit_bytes, bytes_s)
        self._log.send(share.sender, share.incarnation, ack)
