"""Shares on their way out: escrow until the receiver has said how much it accepted.

A transfer is *offered*, *streams* frame by frame as credit is granted, and is *sent*; a small one
is sent at once, and one that its receiver reads from this peer's memory need not be. From then on
only the receiver's word settles it: it is asked again and again, and if it is held for dead the
escrow is *stranded* until it is heard, or until a later life of it shows that the old one is over.
"""

from collections.abc import Sequence
from dataclasses import replace

from .agenda import Agenda
from .config import ProtocolConfig
from .effects import Reclaim, SnapshotId
from .errors import RemoteProtocolError
from .frozen import frozen
from .ledger import Entry, Kind
from .link import Link, Links, window_bytes
from .messages import Ack, Grant, Incarnation, Offer, PeerId, Push, Query
from .pacer import Pacer
from .readers import Readers
from .streamer import Streamer
from .transfer import Transfer, TransferState
from .weight import mixing_fraction

__all__ = ["Outbox", "Returned"]

_NEVER = float("inf")

_EXCUSED_AFTER = 2
"""Questions without an answer: one may be lost, and its answer, too."""

_VALUES_KEPT = 10
"""So many times ``dead_s`` the values of a stranded share are kept for its return: most who come
back at all are back by then, and each that does not would cost the memory of a model for good."""


@frozen
class Returned:
    """A push that came back whole: refused, fenced, or never sent."""

    peer: PeerId
    epoch: int
    round: int


class Outbox:
    """Every share of one shard that a peer has pushed and that is not settled.

    Args:
        config: Sizes and times.
        agenda: Where effects go.
        links: What is known of the ways toward neighbors; shared by all shards.
        pacer: What may be sent at all; shared by all shards.
        readers: Who needs which snapshot; shared by all shards.
        shards: Into how many the vector is cut.
    """

    def __init__(
        self,
        config: ProtocolConfig,
        agenda: Agenda,
        links: Links,
        pacer: Pacer,
        readers: Readers,
        shards: int = 1,
    ) -> None:
        self._shards = shards
        self._config = config
        self._agenda = agenda
        self._links = links
        self._pacer = pacer
        self._transfers: dict[PeerId, Transfer] = {}
        self._last_seq: dict[PeerId, int] = {}
        self._readers = readers
        self._streamer = Streamer(config, agenda, links, pacer)
        # So much may be sent along with the next offer, as the last answer said.
        self._credits: dict[PeerId, tuple[Incarnation, int]] = {}
        self._returned: list[Returned] = []
        self._in_flight = 0
        self._excused = 0

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

    def excused(self) -> int:
        """How many of these use up none after all: their receivers do not answer questions.

        They may be dead, long before anybody can say so. A few of them must not keep a peer from
        pushing to those who do answer.
        """
        return self._excused

    def take_returned(self) -> tuple[Returned, ...]:
        """Hand over which pushes came back since this was last asked."""
        if not self._returned:
            return ()
        returned, self._returned = tuple(self._returned), []
        return returned

    def next_seq(self, peer: PeerId) -> int:
        """Number of the next share toward *peer*; a number is used once."""
        seq = self._last_seq[peer] = self._last_seq.get(peer, 0) + 1
        return seq

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
        """Move the offered weight into escrow and send the share, or offer it if it is large.

        Args:
            peer: To whom.
            incarnation: To which life of it.
            offer: What is pushed; how large its frames are is filled in here.
            snapshot: Where the values are.
            now: Seconds.
            shown: Whether the peer may read the snapshot from memory, if it can.
        """
        self._agenda.record(Entry(Kind.PUSHED, offer.escrow, peer, incarnation, offer.seq))
        transfer = Transfer(peer, incarnation, offer, snapshot, now, now + self._config.stall_s)
        self._transfers[peer] = transfer
        self._in_flight += 1
        self._readers.add(snapshot)
        if isinstance(offer, Push):
            self._agenda.send(peer, incarnation, offer, frame=(snapshot, 0, offer.size_bytes))
            self._pacer.sent(offer.size_bytes, now)
            self._sent(transfer, now)
            return
        transfer.shown = shown and self._link(transfer).reads_memory(now)
        if transfer.shown or self._streamer.acquire(transfer):
            self._offer(transfer, now)
        else:
            transfer.deadline_s = _NEVER

    def _offer(self, transfer: Transfer, now: float) -> None:
        """Offer a share, and let as much of it follow as there is credit for."""
        peer, incarnation, offer = transfer.peer, transfer.incarnation, transfer.offer
        frame_bytes = self._link(transfer).frame_bytes(offer.size_bytes)
        eager_bytes = 0 if transfer.shown else self._credit(transfer, frame_bytes)
        offer = replace(offer, frame_bytes=frame_bytes, eager_bytes=eager_bytes)
        transfer.offer, transfer.pushed_s = offer, now
        transfer.deadline_s = now + self._config.stall_s
        frame = transfer.snapshot, 0, 0
        self._agenda.send(peer, incarnation, offer, frame=frame, shown=transfer.shown)
        if transfer.shown:
            self._sent(transfer, now)
        elif eager_bytes:
            self._streamer.grant(transfer, eager_bytes, now)
            self._stream(transfer, now)

    def _credit(self, transfer: Transfer, frame_bytes: int) -> int:
        """How much of a share may follow its offer; the credit is used up then."""
        life, credit_bytes = self._credits.pop(transfer.peer, (0, 0))
        if life != transfer.incarnation:
            return 0
        window = window_bytes(self._config, frame_bytes, self._shards)
        return min(credit_bytes, window, transfer.offer.size_bytes)

    def grant(self, peer: PeerId, incarnation: Incarnation, message: Grant, now: float) -> None:
        """Send as many frames as the receiver has room for.

        Raises:
            RemoteProtocolError: It grants more than a window beyond what it can have received.
        """
        transfer = self._find(peer, incarnation, message.seq)
        if transfer is None or not transfer.offer.frame_bytes:
            return  # settled, or not offered yet
        unread = transfer.shown and transfer.state is TransferState.SENT
        if not unread and transfer.state not in (TransferState.OFFERED, TransferState.STREAMING):
            return
        self._streamer.grant(transfer, message.credit_bytes, now)
        if unread:
            # It could not read the memory after all, and nothing of the share was sent.
            transfer.shown = False
            self._link(transfer).did_not_read(now)
        if transfer.reads:
            self._stream(transfer, now)
        else:
            # The memory was abandoned in between, so that the share can never become whole there.
            self._settle(transfer, 0)

    def ack(self, peer: PeerId, incarnation: Incarnation, message: Ack, now: float) -> None:
        """Settle: what was not accepted comes back.

        Raises:
            RemoteProtocolError: More was accepted than was offered, or than was sent.
        """
        transfer = self._find(peer, incarnation, message.seq)
        if transfer is None or transfer.state is TransferState.RETURNING:
            return
        if message.accepted > (transfer.offer.escrow if transfer.end_was_sent else 0):
            raise RemoteProtocolError("ACK of more than was sent", peer)
        # A question may have been answered instead of the push (Karn's rule).
        if transfer.questions == 0 and transfer.state is TransferState.SENT:
            self._link(transfer).roundtrip.measured(now - transfer.pushed_s)
        if message.credit_bytes:
            credit_bytes = min(message.credit_bytes, self._config.window_bytes)
            self._credits[peer] = incarnation, credit_bytes
        self._settle(transfer, message.accepted)

    def pending(self, peer: PeerId, incarnation: Incarnation, seq: int, now: float) -> None:
        """Wait on: the share is there, and its receiver has not come to it yet."""
        transfer = self._find(peer, incarnation, seq)
        if transfer is not None and transfer.state is TransferState.SENT:
            self._excuse(transfer, False)
            transfer.deadline_s = now + self._patience_s(transfer)

    def unsent(self, peer: PeerId, seq: int) -> None:
        """Take back a share of which the network refused a part."""
        transfer = self._transfers.get(peer)
        if transfer is not None and transfer.offer.seq == seq and not transfer.is_returning:
            self._settle(transfer, 0)

    def query_due(self, now: float) -> None:
        """Ask about shares whose answer is late, and give up those that never got going."""
        for transfer in tuple(self._transfers.values()):
            if now < transfer.deadline_s:
                continue
            if transfer.state is TransferState.SENT:
                self._query(transfer, now)
            elif transfer.state is TransferState.STRANDED:
                transfer.deadline_s = _NEVER
                self._stop_reading(transfer, abandoned=transfer.shown)
            else:
                self._settle(transfer, 0)

    def go_on(self, peer: PeerId, now: float) -> None:
        """Send what bandwidth has held back, as far as it allows now."""
        transfer = self._transfers[peer]
        if transfer.offer.frame_bytes:
            self._stream(transfer, now)
        else:
            self._streamer.acquire(transfer)  # its turn has come
            self._offer(transfer, now)

    def reclaim(self, weight: int) -> None:
        """Mix back the values of what came back; called where values may be changed.

        Args:
            weight: What the peer holds.
        """
        returning = [t for t in self._transfers.values() if t.is_returning]
        for transfer in returning:
            back = transfer.offer.escrow - transfer.accepted
            self._agenda.ask(Reclaim(transfer.snapshot, mixing_fraction(weight, back)))
            weight += back
            self._close(transfer, transfer.accepted)

    def died(self, peer: PeerId, now: float) -> None:
        """Free the credit; the escrow stays with nobody until *peer* is heard again.

        In exact mode its values are kept for it, but not for ever.
        """
        transfer = self._transfers.get(peer)
        if transfer is None or transfer.state in (TransferState.STRANDED, TransferState.RETURNING):
            return
        if transfer.end_was_sent:
            self._note(Kind.STRANDED, transfer)
            self._excuse(transfer, False)
            transfer.state = TransferState.STRANDED
            self._in_flight -= 1
            transfer.deadline_s = _NEVER
            if self._config.exact and transfer.reads:
                transfer.deadline_s = now + _VALUES_KEPT * self._config.dead_s
            elif transfer.shown:
                self._stop_reading(transfer, abandoned=True)
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
        elif transfer.state is TransferState.STRANDED and transfer.incarnation == incarnation:
            if not gone:
                self._note(Kind.FOUND, transfer)
                transfer.state = TransferState.SENT
                self._in_flight += 1
            self._query(transfer, now)

    def renounce(self) -> None:
        """Note that the swarm is given up: what is outstanding is of no use in another."""
        for transfer in self._transfers.values():
            transfer.renounced = True

    def ask_about(self, peer: PeerId, now: float) -> None:
        """Ask *peer*, which is about to go, what became of the share toward it."""
        transfer = self._transfers.get(peer)
        if transfer is not None and transfer.state is TransferState.SENT:
            self._query(transfer, now)

    def deadline(self) -> float:
        """When `query_due` has something to do next, seconds."""
        if not self._transfers:
            return _NEVER
        return min([transfer.deadline_s for transfer in self._transfers.values()])

    def _stream(self, transfer: Transfer, now: float) -> None:
        if not self._streamer.acquire(transfer):
            transfer.state, transfer.deadline_s = TransferState.STREAMING, _NEVER
        elif self._streamer.go_on(transfer, now):
            self._sent(transfer, now)

    def _find(self, peer: PeerId, incarnation: Incarnation, seq: int) -> Transfer | None:
        transfer = self._transfers.get(peer)
        if transfer is None or (transfer.incarnation, transfer.offer.seq) != (incarnation, seq):
            return None
        return transfer

    def _sent(self, transfer: Transfer, now: float) -> None:
        transfer.state = TransferState.SENT
        transfer.deadline_s = now + self._patience_s(transfer)
        if not transfer.shown and not self._config.exact:
            self._stop_reading(transfer)

    def _stop_reading(self, transfer: Transfer, *, abandoned: bool = False) -> None:
        if transfer.reads:
            transfer.reads = False
            self._readers.remove(transfer.snapshot, abandoned=abandoned)

    def _query(self, transfer: Transfer, now: float) -> None:
        transfer.questions += 1
        if transfer.state is TransferState.SENT:
            transfer.deadline_s = now + self._patience_s(transfer)
            self._excuse(transfer, transfer.questions >= _EXCUSED_AFTER)
        self._agenda.send(transfer.peer, transfer.incarnation, Query(transfer.offer.seq))

    def _excuse(self, transfer: Transfer, yes: bool) -> None:
        self._excused += yes - transfer.excused
        transfer.excused = yes

    def _patience_s(self, transfer: Transfer) -> float:
        roundtrip = self._link(transfer).roundtrip
        wait_s = roundtrip.timeout_s() * 2.0 ** min(transfer.questions, 10)
        return min(max(wait_s, self._config.query_s_min), self._config.query_s_max)

    def _link(self, transfer: Transfer) -> Link:
        return self._links.to(transfer.peer, transfer.incarnation)

    def _settle(self, transfer: Transfer, accepted: int) -> None:
        comes_back = accepted < transfer.offer.escrow and not transfer.renounced
        if self._config.exact and comes_back and transfer.reads:
            # Values may only change between two steps: the weight waits for them.
            self._in_flight += transfer.state is TransferState.STRANDED
            transfer.state, transfer.accepted = TransferState.RETURNING, accepted
            transfer.deadline_s = _NEVER
            self._streamer.give_up(transfer)
        else:
            self._close(transfer, accepted)

    def _close(self, transfer: Transfer, accepted: int) -> None:
        self._stop_reading(transfer)
        self._forget(transfer)
        self._note(Kind.SETTLED, transfer, accepted)
        if transfer.renounced and accepted < transfer.offer.escrow:
            self._agenda.record(Entry(Kind.BURNED, transfer.offer.escrow - accepted))
        if accepted == 0:
            offer = transfer.offer
            self._returned.append(Returned(transfer.peer, offer.epoch, offer.round))

    def _lost(self, transfer: Transfer) -> None:
        if transfer.is_returning:
            return
        if not transfer.end_was_sent:
            self._settle(transfer, 0)
            return
        self._stop_reading(transfer)
        self._forget(transfer)
        self._note(Kind.WRITTEN_OFF, transfer)

    def _forget(self, transfer: Transfer) -> None:
        self._streamer.give_up(transfer)
        self._excuse(transfer, False)
        del self._transfers[transfer.peer]
        self._in_flight -= transfer.state is not TransferState.STRANDED

    def _note(self, kind: Kind, transfer: Transfer, weight: int = 0) -> None:
        seq = transfer.offer.seq
        self._agenda.record(Entry(kind, weight, transfer.peer, transfer.incarnation, seq))
