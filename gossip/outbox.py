"""Shares on their way out: escrow until the receiver has said how much it accepted.

A transfer is *offered*, *streams* frame by frame as credit is granted, and is *sent*; a small one
is sent at once. From then on only the receiver's word settles it: it is asked again and again, and
if it is held for dead the escrow is *stranded* until it is heard, or until a later life of it
shows that the old one is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from .agenda import Agenda
from .config import ProtocolConfig
from .effects import Release, SnapshotId
from .errors import RemoteProtocolError
from .frozen import frozen
from .ledger import Entry, Kind
from .messages import Ack, Chunk, End, Grant, Incarnation, Offer, PeerId, Push, Query
from .roundtrip import RoundTrip

__all__ = ["Outbox", "Returned"]

_NEVER = float("inf")


class _State(Enum):
    OFFERED = auto()
    STREAMING = auto()
    SENT = auto()
    STRANDED = auto()

    @property
    def end_was_sent(self) -> bool:
        return self in (_State.SENT, _State.STRANDED)


@dataclass(slots=True)
class _Transfer:
    peer: PeerId
    incarnation: Incarnation
    offer: Offer
    snapshot: SnapshotId
    pushed_s: float
    deadline_s: float
    state: _State = _State.OFFERED
    sent_bytes: int = 0
    questions: int = 0


@frozen
class Returned:
    """A push that came back whole: refused, fenced, or never sent."""

    peer: PeerId
    epoch: int
    round: int


class Outbox:
    """Every share that one peer has pushed and that is not settled."""

    def __init__(self, config: ProtocolConfig, agenda: Agenda) -> None:
        self._config = config
        self._agenda = agenda
        self._transfers: dict[PeerId, _Transfer] = {}
        self._last_seq: dict[PeerId, int] = {}
        self._readers: dict[SnapshotId, int] = {}
        self._roundtrips: dict[PeerId, RoundTrip] = {}
        self._returned: list[Returned] = []
        self._in_flight = 0
        self._unread: list[SnapshotId] = []

    def is_busy(self, peer: PeerId) -> bool:
        """Whether an escrow toward *peer* is unresolved, so that no other may be opened."""
        return peer in self._transfers

    def free_of(self, peers: Sequence[PeerId]) -> list[PeerId]:
        """Those of *peers* toward whom a share may be pushed."""
        busy = self._transfers
        return [peer for peer in peers if peer not in busy] if busy else list(peers)

    def in_flight(self) -> int:
        """How many shares use up credit; a stranded one does not."""
        return self._in_flight

    def take_returned(self) -> tuple[Returned, ...]:
        """Hand over which pushes came back since this was last asked."""
        returned, self._returned = tuple(self._returned), []
        return returned

    def next_seq(self, peer: PeerId) -> int:
        """Number of the next share toward *peer*; a number is used once."""
        seq = self._last_seq[peer] = self._last_seq.get(peer, 0) + 1
        return seq

    def push(
        self, peer: PeerId, incarnation: Incarnation, offer: Offer, snapshot: SnapshotId, now: float
    ) -> None:
        """Move the offered units into escrow and send the share, or offer it if it is large."""
        self._agenda.record(Entry(Kind.PUSHED, offer.escrow, peer, incarnation, offer.seq))
        transfer = _Transfer(peer, incarnation, offer, snapshot, now, now + self._config.stall_s)
        self._transfers[peer] = transfer
        self._in_flight += 1
        self._readers[snapshot] = self._readers.get(snapshot, 0) + 1
        size = offer.size_bytes if isinstance(offer, Push) else 0
        self._agenda.send(peer, incarnation, offer, frame=(snapshot, 0, size))
        if isinstance(offer, Push):
            self._sent(transfer, now)

    def grant(self, peer: PeerId, incarnation: Incarnation, message: Grant, now: float) -> None:
        """Send as many frames as the receiver has room for.

        Raises:
            RemoteProtocolError: It grants more than a window beyond what it can have received.
        """
        transfer = self._find(peer, incarnation, message.seq)
        if transfer is None or transfer.state.end_was_sent:
            return
        if message.credit_bytes > transfer.sent_bytes + self._config.window_bytes:
            raise RemoteProtocolError("GRANT of more than a window", peer)
        transfer.state = _State.STREAMING
        transfer.deadline_s = now + self._config.stall_s
        size, frame = transfer.offer.size_bytes, self._config.frame_bytes
        while transfer.sent_bytes < size:
            start, stop = transfer.sent_bytes, min(size, transfer.sent_bytes + frame)
            if stop > message.credit_bytes:
                return
            body = Chunk(message.seq, start // frame, start)
            self._agenda.send(
                peer, incarnation, body, frame=(transfer.snapshot, start, stop - start)
            )
            transfer.sent_bytes = stop
        self._agenda.send(peer, incarnation, End(message.seq))
        self._sent(transfer, now)

    def ack(self, peer: PeerId, incarnation: Incarnation, message: Ack, now: float) -> None:
        """Settle: what was not accepted comes back.

        Raises:
            RemoteProtocolError: More was accepted than was offered, or than was sent.
        """
        transfer = self._find(peer, incarnation, message.seq)
        if transfer is None:
            return
        if message.accepted > (transfer.offer.escrow if transfer.state.end_was_sent else 0):
            raise RemoteProtocolError("ACK of more than was sent", peer)
        # A question may have been answered instead of the push (Karn's rule).
        if transfer.questions == 0 and transfer.state is _State.SENT:
            self._roundtrip(peer).measured(now - transfer.pushed_s)
        self._settle(transfer, message.accepted)

    def pending(self, peer: PeerId, incarnation: Incarnation, seq: int, now: float) -> None:
        """Wait on: the share is there, and its receiver has not come to it yet."""
        transfer = self._find(peer, incarnation, seq)
        if transfer is not None and transfer.state is _State.SENT:
            transfer.deadline_s = now + self._patience_s(transfer)

    def unsent(self, peer: PeerId, seq: int) -> None:
        """Take back a share of which the network refused a part."""
        transfer = self._transfers.get(peer)
        if transfer is not None and transfer.offer.seq == seq:
            self._settle(transfer, 0)

    def query_due(self, now: float) -> None:
        """Ask about shares whose answer is late, and give up those that never got going."""
        for transfer in tuple(self._transfers.values()):
            if now < transfer.deadline_s:
                continue
            if transfer.state is _State.SENT:
                self._query(transfer, now)
            else:
                self._settle(transfer, 0)

    def died(self, peer: PeerId) -> None:
        """Free the credit; the escrow stays with nobody until *peer* is heard again."""
        transfer = self._transfers.get(peer)
        if transfer is None or transfer.state is _State.STRANDED:
            return
        if transfer.state.end_was_sent:
            self._note(Kind.STRANDED, transfer)
            transfer.state = _State.STRANDED
            self._in_flight -= 1
            transfer.deadline_s = _NEVER
        else:
            self._settle(transfer, 0)

    def heard(self, peer: PeerId, incarnation: Incarnation, now: float, *, gone: bool) -> None:
        """Act on a sign of life: ask about what is stranded, write off what an old life had.

        Args:
            peer: Who was heard; an escrow toward it is unresolved.
            incarnation: Which life of it.
            now: Seconds.
            gone: Whether it is no member any more. It may still answer, but its escrow stays
                stranded until then: nobody would notice when it closes.
        """
        transfer = self._transfers[peer]
        if transfer.incarnation < incarnation:
            self._lost(transfer)
        elif transfer.state is _State.STRANDED and transfer.incarnation == incarnation:
            if not gone:
                self._note(Kind.FOUND, transfer)
                transfer.state = _State.SENT
                self._in_flight += 1
            self._query(transfer, now)

    def ask_about(self, peer: PeerId, now: float) -> None:
        """Ask *peer*, which is about to go, what became of the share toward it."""
        transfer = self._transfers.get(peer)
        if transfer is not None and transfer.state is _State.SENT:
            self._query(transfer, now)

    def release_unread(self) -> None:
        """Let go of snapshots of which no further frame will be sent; at the end of a call.

        Not earlier: a second push of the same turn may read a snapshot that the first is done with.
        """
        if not self._unread:
            return
        for snapshot in self._unread:
            if self._readers.get(snapshot) == 0:
                del self._readers[snapshot]
                self._agenda.ask(Release(snapshot))
        self._unread.clear()

    def deadline(self) -> float:
        """When `query_due` has something to do next, seconds."""
        if not self._transfers:
            return _NEVER
        return min([transfer.deadline_s for transfer in self._transfers.values()])

    def _find(self, peer: PeerId, incarnation: Incarnation, seq: int) -> _Transfer | None:
        transfer = self._transfers.get(peer)
        if transfer is None or (transfer.incarnation, transfer.offer.seq) != (incarnation, seq):
            return None
        return transfer

    def _sent(self, transfer: _Transfer, now: float) -> None:
        transfer.state = _State.SENT
        transfer.sent_bytes = transfer.offer.size_bytes
        transfer.deadline_s = now + self._patience_s(transfer)
        self._stop_reading(transfer)

    def _stop_reading(self, transfer: _Transfer) -> None:
        readers = self._readers[transfer.snapshot] = self._readers[transfer.snapshot] - 1
        if readers == 0:
            self._unread.append(transfer.snapshot)

    def _query(self, transfer: _Transfer, now: float) -> None:
        transfer.questions += 1
        if transfer.state is _State.SENT:
            transfer.deadline_s = now + self._patience_s(transfer)
        self._agenda.send(transfer.peer, transfer.incarnation, Query(transfer.offer.seq))

    def _patience_s(self, transfer: _Transfer) -> float:
        wait_s = self._roundtrip(transfer.peer).timeout_s() * 2.0 ** min(transfer.questions, 10)
        return min(max(wait_s, self._config.query_s_min), self._config.query_s_max)

    def _roundtrip(self, peer: PeerId) -> RoundTrip:
        roundtrip = self._roundtrips.get(peer)
        if roundtrip is None:
            roundtrip = self._roundtrips[peer] = RoundTrip()
        return roundtrip

    def _settle(self, transfer: _Transfer, accepted: int) -> None:
        if not transfer.state.end_was_sent:
            self._stop_reading(transfer)
        self._forget(transfer)
        self._note(Kind.SETTLED, transfer, accepted)
        if accepted == 0:
            offer = transfer.offer
            self._returned.append(Returned(transfer.peer, offer.epoch, offer.round))

    def _lost(self, transfer: _Transfer) -> None:
        if not transfer.state.end_was_sent:
            self._settle(transfer, 0)
            return
        self._forget(transfer)
        self._note(Kind.WRITTEN_OFF, transfer)

    def _forget(self, transfer: _Transfer) -> None:
        del self._transfers[transfer.peer]
        self._in_flight -= transfer.state is not _State.STRANDED

    def _note(self, kind: Kind, transfer: _Transfer, units: int = 0) -> None:
        seq = transfer.offer.seq
        self._agenda.record(Entry(kind, units, transfer.peer, transfer.incarnation, seq))
