"""Shares on their way in: from an offer to a decision, each decided exactly once.

A share *arrives* (some bytes staged), is *inspected*, is *ready* (a step may take it), and is then
*decided*: an entry in the account says how much was accepted, and an ACK says so to the
sender. A question about a share that never came decides it too: that is the fence.
"""

from collections.abc import Callable

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.effects import Attach, Drop, Inspect, ShareId, Stage
from ..effects.events import ShareRefused
from ..effects.ledger import Entry, Kind
from ..errors import RemoteProtocolError
from ..weight import WEIGHT_MAX
from ..wire.messages import Ack, Chunk, Grant, Incarnation, Offer, PeerId, Pending, Push
from ..wire.schema import Schema
from .flow_control import FRAMES_MAX, patience_s, window_bytes
from .transfer import ARRIVALS, ArrivalEvent, ArrivalState, IncomingTransfer

__all__ = ["Inbox"]

_NEVER = float("inf")

# Its sender hears of a share that comes on so many times before it would give it up.
_SIGNS = 10

_WINDOW_S = 2.0
"""So many seconds of a share may be on their way."""


class Inbox:
    """Every share that is on its way to one peer.

    Args:
        config: Sizes and times.
        schema: What a share must measure.
        agenda: Where effects go.
        gate: Says why an offer is refused at the door, or nothing where it is let in.
        is_open: Says whether the next share of a sender would be let in, as far as is known.
    """

    def __init__(
        self,
        config: ProtocolConfig,
        schema: Schema,
        agenda: EffectLog,
        gate: Callable[[ShareId, Offer], str],
        is_open: Callable[[], bool],
    ) -> None:
        self._config = config
        self._schema = schema
        self._agenda = agenda
        self._gate = gate
        self._is_open = is_open
        # One arrival per life of a sender, which has at most one share outstanding toward us.
        # Insertion order is arrival order, in which a step mixes.
        self._arrivals: dict[tuple[PeerId, Incarnation], IncomingTransfer] = {}

    def __len__(self) -> int:
        return len(self._arrivals)

    def ready(self) -> tuple[IncomingTransfer, ...]:
        """Shares that a step may take, in order of arrival."""
        if not self._arrivals:
            return ()
        return tuple(
            [arrival for arrival in self._arrivals.values() if arrival.state is ArrivalState.READY]
        )

    def expects_copy(self, but: PeerId = "") -> bool:
        """Whether a copy is on its way, so that no other donor need be asked.

        Args:
            but: Whose copies do not count.
        """
        arrivals = self._arrivals.values()
        return any([a.offer.form.copy for a in arrivals if a.id.sender != but])

    def push(self, share: ShareId, message: Push, frame_bytes: int, now: float) -> None:
        """Take a whole share that came in one message.

        Raises:
            RemoteProtocolError: It is not what it says, or not what the schema says.
        """
        if frame_bytes != message.size_bytes:
            raise RemoteProtocolError("PUSH is not as long as it says", share.sender)
        arrival = self._open(share, message, now)
        after = None if arrival is None else ARRIVALS[arrival.state][ArrivalEvent.WHOLE]
        if arrival is not None and after is not None:
            arrival.state, arrival.received_bytes = after, message.size_bytes
            self._agenda.ask(Stage(share, 0, message.size_bytes, message.form))
            self._agenda.ask(Inspect(share))

    def offer(self, share: ShareId, message: Offer, now: float) -> None:
        """Let a share in frame by frame, or from memory, or refuse it before its bytes move.

        Raises:
            RemoteProtocolError: It is not what the schema says.
        """
        if not 0 < message.size_bytes <= message.frame_bytes * FRAMES_MAX:
            raise RemoteProtocolError("a share in more frames than are counted", share.sender)
        arrival = self._open(share, message, now)
        if arrival is None or not arrival.on(
            ArrivalEvent.ATTACH if message.segment else ArrivalEvent.OFFER
        ):
            return
        if arrival.state is ArrivalState.ATTACHING:
            self._agenda.ask(Attach(share, message.segment, message.size_bytes, message.form))
        elif not arrival.granted_bytes and message.eager_bytes >= self._window(arrival):
            # Its sender knows already.
            arrival.granted_bytes = arrival.paced_bytes = self._window(arrival)
            arrival.granted_s = now
        else:
            self._grant(arrival, now, repeat=True)

    def attached(self, share: ShareId, now: float, *, usable: bool) -> None:
        """Take a share from its sender's memory, or have it sent where that cannot be read."""
        arrival = self._find(share)
        if arrival is None or not arrival.on(
            ArrivalEvent.READABLE if usable else ArrivalEvent.UNREADABLE
        ):
            return
        if usable:
            arrival.received_bytes = arrival.offer.size_bytes
            self._agenda.ask(Inspect(share))
        else:
            self._grant(arrival, now)

    def chunk(self, share: ShareId, message: Chunk, frame_bytes: int, now: float) -> None:
        """Stage one frame. One that belongs to no open arrival, or came before, is dropped.

        Raises:
            RemoteProtocolError: It is not a frame of its share, or was not granted.
        """
        arrival = self._find(share)
        if arrival is None or not arrival.wants(message.index):
            return
        size, start = arrival.offer.size_bytes, message.offset_bytes
        if not arrival.has_frame(message, frame_bytes):
            raise RemoteProtocolError("CHUNK is not a frame of its share", share.sender)
        window = self._window(arrival)
        if start + frame_bytes > max(arrival.granted_bytes, window):
            raise RemoteProtocolError("CHUNK was not granted", share.sender)
        arrival.chunks.add(message.index)
        arrival.came_on(frame_bytes, now)
        self._agenda.ask(Stage(share, start, size, arrival.offer.form))
        # Credit is renewed by half windows: one GRANT per frame would double the messages.
        left_bytes = arrival.granted_bytes - arrival.received_bytes
        if arrival.granted_bytes < size and left_bytes <= arrival.paced_bytes // 2:
            self._grant(arrival, now)
        elif now >= arrival.granted_s + self._config.stall_s / _SIGNS:
            # On a slow link half a window takes long, and its sender must know that it comes on.
            self._grant(arrival, now, repeat=True)
        self._inspect_if_complete(arrival)

    def place_of(self, share: ShareId, message: Chunk, frame_bytes: int) -> Stage | None:
        """Where a frame belongs, so that it can be received there; None where it is not wanted."""
        arrival = self._find(share)
        if arrival is None or not arrival.wants(message.index):
            return None
        if not arrival.has_frame(message, frame_bytes):
            return None
        offer = arrival.offer
        return Stage(share, message.offset_bytes, offer.size_bytes, offer.form)

    def end(self, share: ShareId, now: float) -> None:
        """Note that all frames were sent."""
        arrival = self._find(share)
        if arrival is not None and arrival.on(ArrivalEvent.END):
            arrival.progress_s = now
            self._inspect_if_complete(arrival)

    def query(self, share: ShareId, now: float) -> None:
        """Answer what became of a share; one that has not been seen never will be."""
        arrival = self._find(share)
        if arrival is not None:
            if not self._give_up_if_stalled(arrival, now):
                self._agenda.send(share.sender, share.incarnation, Pending(share.seq))
            return
        if self._is_new(share):
            self._decide(share, 0)

    def inspected(self, share: ShareId, *, finite: bool) -> None:
        """Take the vector's word on a staged share."""
        arrival = self._find(share)
        if arrival is None:
            return
        if not finite:
            self.decide(arrival, 0, "not finite", ArrivalEvent.NOT_FINITE)
            return
        after = ARRIVALS[arrival.state][ArrivalEvent.FINITE]
        if after is not None:
            arrival.state = after

    def turn_away(self, share: ShareId, reason: str) -> None:
        """Refuse a share before any of its bytes are looked at, unless it was let in before."""
        if self._is_new(share):
            self._refuse(share, reason)

    def decide(
        self,
        arrival: IncomingTransfer,
        accepted: int,
        reason: str = "",
        event: ArrivalEvent | None = None,
    ) -> bool:
        """Accept so much of a share's escrow, once and for all.

        The caller asks for the mixing first, where anything was accepted.

        Args:
            arrival: The share.
            accepted: How much of its escrow, as a weight.
            reason: Why nothing of it is accepted.
            event: What has led to that; if not given, it is taken, or refused for the reason.

        Returns:
            Whether the event decides it; in some states it does not.
        """
        if event is None:
            event = ArrivalEvent.REFUSED if reason else ArrivalEvent.TAKEN
        after = ARRIVALS[arrival.state][event]
        if after is None:
            return False
        arrival.state = after
        del self._arrivals[arrival.id.sender, arrival.id.incarnation]
        if reason:
            self._agenda.ask(Drop(arrival.id))
            self._agenda.ask(ShareRefused(arrival.id.sender, reason))
        self._decide(arrival.id, accepted)
        return True

    def refuse_all(self, reason: str) -> None:
        """Send everything back that is not decided."""
        for arrival in tuple(self._arrivals.values()):
            self.decide(arrival, 0, reason)

    def expire(self, now: float) -> None:
        """Send back what stopped arriving in the middle."""
        for arrival in tuple(self._arrivals.values()):
            if arrival.state < ArrivalState.STAGED:
                self._give_up_if_stalled(arrival, now)

    def forget(self, sender: PeerId, current: Incarnation) -> None:
        """Send back what earlier lives of *sender* can no longer finish sending."""
        for arrival in tuple(self._arrivals.values()) if self._arrivals else ():
            earlier = arrival.id.sender == sender and arrival.id.incarnation < current
            if earlier:
                self.decide(arrival, 0, "its sender restarted", ArrivalEvent.RESTARTED)

    def deadline(self) -> float:
        """When `expire` has something to do at the earliest, seconds."""
        if not self._arrivals:
            return _NEVER
        arriving = [a for a in self._arrivals.values() if a.state < ArrivalState.STAGED]
        return min([self._stalls_s(arrival) for arrival in arriving], default=_NEVER)

    def _open(self, share: ShareId, message: Offer, now: float) -> IncomingTransfer | None:
        """Find or make the arrival of an offered share; None where that was decided."""
        size = message.form.size_bytes(self._schema, share.shard)
        if message.size_bytes != size:
            raise RemoteProtocolError(
                f"a share of {message.size_bytes} bytes, not {size}", share.sender
            )
        if message.escrow < 1:
            raise RemoteProtocolError("a share without weight", share.sender)
        if not self._is_new(share):
            found = self._find(share)
            return found if found is not None and found.offer == message else None
        reason = self._gate(share, message) or self._overfull(message.escrow)
        if reason:
            self._refuse(share, reason)
            return None
        arrival = IncomingTransfer(share, message, now)
        self._arrivals[share.sender, share.incarnation] = arrival
        return arrival

    def _is_new(self, share: ShareId) -> bool:
        """Whether a share was not heard of before; the one before it then ends.

        Raises:
            RemoteProtocolError: The one before it has come whole, so that it had to be settled.
        """
        if share.seq <= self._last(share)[0]:
            self._repeat(share)
            return False
        before = self._arrivals.get((share.sender, share.incarnation))
        if before is not None and share.seq <= before.id.seq:
            return False
        if before is not None and before.whole:
            raise RemoteProtocolError("went on before the last share was settled", share.sender)
        if before is not None:
            self.decide(before, 0, "given up by its sender", ArrivalEvent.SUPERSEDED)
        return True

    def _overfull(self, escrow: int) -> str:
        """Why no further share can be taken in now, or nothing."""
        if len(self) >= self._config.staged_max:
            return "busy"
        staged = sum(arrival.offer.escrow for arrival in self._arrivals.values())
        if self._agenda.account.weight + staged + escrow > WEIGHT_MAX:
            return "more weight than there can be"
        return ""

    def _find(self, share: ShareId) -> IncomingTransfer | None:
        arrival = self._arrivals.get((share.sender, share.incarnation))
        return arrival if arrival is not None and arrival.id == share else None

    def _last(self, share: ShareId) -> tuple[int, int]:
        decided = self._agenda.account.decided
        return decided.get((share.sender, share.incarnation), (0, 0))

    def _give_up_if_stalled(self, arrival: IncomingTransfer, now: float) -> bool:
        # The very sum that `deadline` gives: a difference may round to just below it, for ever.
        if now < self._stalls_s(arrival):
            return False
        return self.decide(arrival, 0, "stalled", ArrivalEvent.STALLED)

    def _stalls_s(self, arrival: IncomingTransfer) -> float:
        return arrival.progress_s + patience_s(self._config, arrival.gap_s)

    def _grant(self, arrival: IncomingTransfer, now: float, *, repeat: bool = False) -> None:
        """Let more of a share come; what was granted once stays granted.

        Args:
            arrival: The share.
            now: Seconds.
            repeat: Whether to say it also where it is no more than before.
        """
        # From a slow sender a full window would be many seconds of queue, behind which its
        # questions wait.
        paced = max(arrival.bytes_in(_WINDOW_S), 2 * arrival.offer.frame_bytes)
        arrival.paced_bytes = int(min(paced, self._window(arrival)))
        stop = min(arrival.received_bytes + arrival.paced_bytes, arrival.offer.size_bytes)
        if stop > arrival.granted_bytes or repeat:
            arrival.granted_bytes = max(stop, arrival.granted_bytes)
            arrival.granted_s = now
            share, credit_bytes = arrival.id, arrival.granted_bytes
            self._agenda.send(share.sender, share.incarnation, Grant(share.seq, credit_bytes))

    def _window(self, arrival: IncomingTransfer) -> int:
        window = window_bytes(self._config, arrival.offer.frame_bytes, self._schema.shards)
        return min(window, arrival.offer.size_bytes)

    def _inspect_if_complete(self, arrival: IncomingTransfer) -> None:
        if (
            arrival.state is ArrivalState.ENDED
            and arrival.received_bytes == arrival.offer.size_bytes
        ):
            arrival.on(ArrivalEvent.COMPLETE)
            self._agenda.ask(Inspect(arrival.id))

    def _refuse(self, share: ShareId, reason: str) -> None:
        self._agenda.ask(ShareRefused(share.sender, reason))
        self._decide(share, 0)

    def _decide(self, share: ShareId, accepted: int) -> None:
        entry = Entry(Kind.ACCEPTED, accepted, share.sender, share.incarnation, share.seq)
        self._agenda.record(entry)
        self._repeat(share)

    def _repeat(self, share: ShareId) -> None:
        """Say the decision (again). One that is older than the last needs no answer."""
        last, accepted = self._last(share)
        if share.seq == last:
            # Nothing is to come unasked where the last share was of no use, or came in disorder.
            room = accepted and self._is_open() and len(self) < self._config.staged_max
            credit_bytes = self._config.window_bytes if room else 0
            self._agenda.send(share.sender, share.incarnation, Ack(last, accepted, credit_bytes))
