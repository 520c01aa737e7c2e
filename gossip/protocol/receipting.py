"""Receipts in the protocol: what is signed when, what is told to whom, and who is evicted.

A sender promises a share before the last of it leaves, and tells its receiver all that shows that
the weight is there. The share waits until it does. The receiver signs its decision before it says
it; what comes back is the sender's once that is signed. Whatever is new spreads as all gossip does,
and so do proofs against those who signed twice.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ..effects.events import PeerEvicted
from ..effects.ledger import Entry, Kind
from ..exchange.transfer import IncomingState, IncomingTransfer
from ..receipts.book import Book, Proof, Taken
from ..receipts.statement import Keys, Life, Link, Promise
from ..types import Incarnation, PeerId
from ..wire.fields import STATEMENTS_MAX
from ..wire.messages import Ack, Body, Envelope, Leave, Query, Receipts
from .anti_entropy import Membership
from .state import ShardState, State

__all__ = ["CHECKS_MAX", "RECEIPTS_CHECKS", "Receipting", "Roll"]

RECEIPTS_CHECKS = ("share", "audit")
"""When what others have signed is looked at: before a share of theirs is let in, or by audits."""

CHECKS_MAX = 4096
"""Statements of one peer that are looked at in a gossip interval: each new one takes a signature or
two to check, about 0.3 ms."""

_TOLD_AT_ONCE = 256
"""Statements in one message: some 60 KB."""

_FORGED_MAX = 8
"""Of a peer that passes on more forged statements in a gossip interval, nothing more is read."""

_NOTHING = 0, 0

assert _TOLD_AT_ONCE <= STATEMENTS_MAX


class Roll(Keys, Protocol):
    """The keys of all, who may found, and when receipts are looked at."""

    @property
    def check(self) -> str:
        """One of `RECEIPTS_CHECKS`."""

    def grant(self, peer: PeerId) -> int:
        """What a peer may found of each shard, in grains, over all its incarnations."""


class Receipting:
    """The receipts of one incarnation of a peer.

    Args:
        state: What the protocol remembers.
        membership: Whom to take for gone.
        rng: The stream for the choice of whom to tell.
        roll: Keys, and who may found.
    """

    def __init__(
        self,
        state: State,
        membership: Membership,
        rng: Callable[[], np.random.Generator],
        roll: Roll,
    ) -> None:
        self._state = state
        self._roll = roll
        self._membership = membership
        self._rng = rng
        self._is_strict = roll.check == "share"
        self._book: Book | None = None
        self._due_s = float("-inf")
        for shard_state in state.shard_states:
            shard_state.log.witness = self
        self._begin()

    def _begin(self) -> None:
        """Begin anew: weight of another swarm counts for nothing in this one."""
        # By receiver: revisions that it was told of, and that it is known to have been told of.
        self._told: dict[Life, int] = {}
        self._sure: dict[Life, int] = {}
        self._told_with: dict[Life, tuple[int, int]] = {}
        self._decided: dict[Life, tuple[int, int]] = {}
        # What was decided and accepted whole, and is to be signed within a gossip interval.
        self._owed: dict[Life, tuple[int, int]] = {}
        self._returned: dict[Life, int] = {}
        self._looked_at: dict[PeerId, int] = {}
        self._forged: dict[PeerId, int] = {}
        self._evicted: set[PeerId] = set()

    @property
    def book(self) -> Book | None:
        """What is known, of the swarm at hand; None outside one."""
        log = self._state.log
        if not log.swarm:
            return None
        if self._book is None or self._book.swarm != log.swarm:
            account = log.account
            me, shards = Life(account.id, account.incarnation), len(self._state.shard_states)
            roll = self._roll
            self._book = Book(me, log.swarm, roll, lambda peer: roll.grant(peer) * shards)
            self._begin()
        return self._book

    def has_evicted(self, peer: PeerId) -> bool:
        """Whether a peer was convicted, so that nothing it says is read."""
        return peer in self._evicted

    # What the effect log tells.

    def decided(self, peer: PeerId, incarnation: Incarnation, escrow: int, accepted: int) -> None:
        """Note a decision; it is signed before it is said."""
        self._decided[Life(peer, incarnation)] = escrow, accepted

    def sending(self, peer: PeerId, incarnation: Incarnation, body: Body) -> None:
        """Sign a decision before it is said; promise again before asking what became of it."""
        book, life = self.book, Life(peer, incarnation)
        if book is None:
            return
        if isinstance(body, Ack):
            self._sign(book, life)
        elif isinstance(body, Query) and Link(book.me, life) in book.promises:
            self._show(book, life, book.promises[Link(book.me, life)])
        elif isinstance(body, Leave):
            self.sign_owed()

    def promise(self, peer: PeerId, incarnation: Incarnation, escrow: int) -> None:
        """Sign for a share that has left, and tell its receiver what it may not know."""
        book = self.book
        assert book is not None  # nobody pushes outside a swarm
        life = Life(peer, incarnation)
        made = book.promise(life, escrow)
        self._show(book, life, made)
        self._told_with[life] = made.number, book.revision

    def settles(self, peer: PeerId, incarnation: Incarnation, returned: int) -> bool:
        """Whether *peer* has signed that so much more is returned than it ever said."""
        book, life = self.book, Life(peer, incarnation)
        receipt = None if book is None else book.receipts.get(Link(book.me, life))
        total = self._returned.get(life, 0) + returned
        if receipt is None or receipt.returned < total:
            return False
        self._returned[life] = total
        return True

    # What the protocol calls.

    def look(self, now: float) -> None:
        """See which shares may be accepted; one that may not for too long goes back."""
        # Most steps find none here.
        came = any([each.inbox.transfers for each in self._state.busy_shards])
        book = self.book if came else None
        if book is None:
            return
        waiting: dict[Life, list[tuple[ShardState, IncomingTransfer]]] = {}
        for shard_state in self._state.busy_shards:
            for transfer in shard_state.inbox.transfers.values():
                if transfer.state is IncomingState.READY and transfer.offer.escrow:
                    life = Life(transfer.id.sender, transfer.id.incarnation)
                    waiting.setdefault(life, []).append((shard_state, transfer))
        for life, shares in waiting.items():
            weight = sum([transfer.offer.escrow for _, transfer in shares])
            if self._is_strict:
                is_covered = book.covers(life, weight)
            else:
                is_covered = book.has_promised(life, weight + self._owed.get(life, _NOTHING)[0])
            for shard_state, transfer in shares:
                transfer.is_covered = is_covered
                late = now >= transfer.progress_s + self._state.config.stall_s
                if late and not is_covered:
                    shard_state.inbox.decide(transfer, 0, "its weight is not covered by receipts")

    def wake(self, now: float) -> None:
        """Tell somebody what is new, and burn what came from a liar, once per gossip interval."""
        if now < self._due_s:
            return
        self._due_s = now + self._state.config.gossip_s
        self._looked_at, self._forged = {}, {}
        book, table = self.book, self._state.table
        if book is None:
            return
        if not self._is_strict:
            self.sign_owed()
            return
        self._write_off(book)
        partners = [m for m in table.others(alive=True) if table.can_meet(m)]
        if partners:
            partner = partners[int(self._rng().integers(len(partners)))]
            life = Life(partner.id, table.incarnation(partner.id))
            self._tell(book, life, self._told.get(life, 0))

    def sign_owed(self) -> None:
        """Sign all that was accepted: before the book is read, or this peer is gone."""
        book, owed = self.book, self._owed
        self._owed = {}
        for life, decided in owed.items():
            assert book is not None  # with another swarm, it has begun anew
            receipt = book.decide(life, *decided)
            assert receipt is not None  # nothing is accepted that was not promised
            self._state.log.send(*life, Receipts((receipt,)))

    def told(self, envelope: Envelope, body: Receipts, now: float) -> None:
        """Take in what somebody tells; whoever it convicts is evicted."""
        book, source = self.book, envelope.source
        if book is None:
            return
        life, before = Life(source, envelope.source_incarnation), book.revision
        for statement in body.statements:
            if self._may_look(source):
                self._note(source, book.take(statement))
        for statements in body.proofs:
            if self._may_look(source, len(statements)):
                self._note(source, book.take_proof(Proof(statements)))
        for known in (self._told, self._sure):
            if known.get(life) == before:
                known[life] = book.revision  # all that is new has come from there
        receipt = book.receipts.get(Link(book.me, life))
        number, revision = self._told_with.get(life, (0, 0))
        if receipt is not None and number and receipt.promise.number >= number:
            # It has read what it was told with that promise.
            self._sure[life] = max(self._sure.get(life, 0), revision)
        for peer in sorted(book.convicted.keys() - self._evicted):
            self._evict(peer, book.convicted[peer], now)

    def _may_look(self, source: PeerId, count: int = 1) -> bool:
        looked_at = self._looked_at.get(source, 0) + count
        if looked_at > CHECKS_MAX or self._forged.get(source, 0) > _FORGED_MAX:
            return False
        self._looked_at[source] = looked_at
        return True

    def _note(self, source: PeerId, taken: Taken) -> None:
        if taken is Taken.FORGED:
            self._forged[source] = self._forged.get(source, 0) + 1

    def _evict(self, peer: PeerId, proof: Proof, now: float) -> None:
        """Deal with a peer no more: as with one that has left, for good."""
        state = self._state
        self._evicted.add(peer)
        if peer == state.table.id:
            return
        state.log.ask(PeerEvicted(peer, proof.reason))
        for shard_state in state.shard_states:
            for transfer in tuple(shard_state.inbox.transfers.values()):
                if transfer.id.sender == peer:
                    shard_state.inbox.decide(transfer, 0, "its sender was evicted")
        if state.table.is_known(peer):
            self._membership.take_leave_of(peer, Leave(gone=True), now)
        state.table.pass_over(peer, float("inf"))

    def _write_off(self, book: Book) -> None:
        """Burn what was accepted from those who did not have it, at most half of what is held."""
        cuts = book.cuts()
        if not any([link.receiver.peer == book.me.peer for link in cuts]):
            return
        state = self._state
        excess = state.weight - book.worth(book.me.peer)
        for shard_state in state.shard_states:
            burned = min(excess, shard_state.weight // 2)
            if burned > 0:
                excess -= burned
                shard_state.log.record(Entry(Kind.BURNED, burned))

    def _sign(self, book: Book, life: Life) -> None:
        """Sign what was decided, and tell its sender: at once where something goes back, which it
        cannot have without; and where others are to believe it."""
        escrow, accepted = self._owed.pop(life, _NOTHING)
        fresh = self._decided.pop(life, None)
        if fresh is None:
            if escrow:
                book.decide(life, escrow, accepted)
            # It asks since it lacks a receipt: whatever is not here is not coming any more.
            receipt = book.close(life, self._staged(life))
        else:
            escrow, accepted = escrow + fresh[0], accepted + fresh[1]
            if not self._is_strict and 0 < fresh[0] == fresh[1]:
                self._owed[life] = escrow, accepted
                return
            receipt = book.decide(life, escrow, accepted)
        if receipt is not None:
            # What else is new need not be told here: a share brings all that covers it.
            self._state.log.send(*life, Receipts((receipt,)))

    def _staged(self, life: Life) -> int:
        """Weight of shares of a sender that are not decided."""
        key = life.peer, life.incarnation
        inboxes = [each.inbox.transfers for each in self._state.busy_shards]
        return sum([shares[key].offer.escrow for shares in inboxes if key in shares])

    def _show(self, book: Book, life: Life, promise: Promise) -> None:
        """Send a promise, and all that its receiver may lack to see that it is covered."""
        if self._is_strict:
            self._tell(book, life, self._sure.get(life, 0))
        else:
            self._state.log.send(*life, Receipts((promise,)))

    def _tell(self, book: Book, life: Life, revision: int) -> None:
        """Send what has changed in the book since a revision."""
        statements, proofs = book.since(revision)
        self._told[life] = book.revision
        for start in range(0, len(statements), _TOLD_AT_ONCE):
            part = tuple(statements[start : start + _TOLD_AT_ONCE])
            self._state.log.send(*life, Receipts(part))
        # A longer one fits no message; whoever hears the statements will see it without.
        proven = [each.statements for each in proofs if len(each.statements) <= STATEMENTS_MAX]
        for convicting in proven:
            self._state.log.send(*life, Receipts((), (convicting,)))
