"""What one peer knows of everybody's weight: the latest statements of each link, all signed.

Only what both ends have signed moves weight in the book. What a peer is *worth* is what the roster
grants it and others gave it, less what it gave. Where somebody has given more than it had, what it
lacks is cut from what its receivers have from it, and what those then lack from theirs: so all that
anybody is worth, together, is what the roster grants, whatever liars sign.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto

from ..types import PeerId, frozen
from .proof import contradiction, why_guilty
from .statement import Keys, Life, Link, Promise, Receipt, Statement, signer_of

__all__ = ["LINKS_MAX", "LINKS_OF_ONE_MAX", "Book", "Proof", "Taken"]

LINKS_MAX = 1 << 16
"""Links between others that are kept; of further ones, nothing is believed."""

LINKS_OF_ONE_MAX = 1 << 11
"""Likewise of one sender, over all its incarnations: a liar can promise to any number of names."""

_ROUNDS_MAX = 64
"""So often what is lacking is passed on a little; whoever still lacks something then, gave nothing
at all beyond what it got back."""


_REMEMBERED = 256
"""So many of its last promises a peer need not check when it gets them back in a receipt."""


class Taken(Enum):
    """What became of a statement that somebody told."""

    NEW = auto()
    KNOWN = auto()
    """It says nothing that was not known, or there is no room for it."""
    FORGED = auto()
    """Who it is said to be from did not sign it."""


@frozen
class Proof:
    """Statements that cannot all be true, signed by one incarnation of a peer."""

    statements: tuple[Statement, ...]

    @property
    def peer(self) -> PeerId:
        """Whom it convicts."""
        return signer_of(self.statements[0]).peer

    @property
    def reason(self) -> str:
        """What it shows; empty where it shows nothing."""
        return why_guilty(self.statements)


class Book:
    """The statements that one incarnation of a peer knows, its own among them.

    Args:
        me: Whose book it is.
        swarm: Hash of the swarm's anchor.
        keys: Signs, and verifies.
        grant: What the roster lets a peer found, over all its incarnations; in grains, of all
            shards together.
    """

    def __init__(self, me: Life, swarm: bytes, keys: Keys, grant: Callable[[PeerId], int]) -> None:
        self.me = me
        self.swarm = swarm
        self._keys = keys
        self._grant = grant
        self._number = 0
        self._mine: dict[int, Promise] = {}
        self._spent = 0
        self.promises: dict[Link, Promise] = {}
        """The latest of each link. Read it, do not change it."""
        self.receipts: dict[Link, Receipt] = {}
        """Likewise."""
        self.convicted: dict[PeerId, Proof] = {}
        """Who has signed what cannot be true."""
        self.revision = 0
        """Rises with every change."""
        self._changed: dict[Link | PeerId, int] = {}
        self._promised: dict[Life, dict[Link, Promise]] = {}
        self._links_of: dict[PeerId, int] = {}
        # By peer: what was accepted from it, accepted by it, and returned to it.
        self._given: dict[PeerId, int] = {}
        self._got: dict[PeerId, int] = {}
        self._returned: dict[PeerId, int] = {}
        self._lacking: set[PeerId] = set()
        self._cuts: dict[Link, int] = {}
        self._cuts_of = 0

    def promise(self, receiver: Life, escrow: int) -> Promise:
        """Sign for a share.

        Args:
            receiver: To whom it goes.
            escrow: What goes with it.
        """
        link = Link(self.me, receiver)
        before = self.promises.get(link)
        self._number += 1
        self._spent += escrow
        offered = escrow + (0 if before is None else before.offered)
        draft = Promise(link, self._number, offered, self._spent)
        signature = self._keys.sign(draft.signed(self.swarm))
        made = Promise(link, self._number, offered, self._spent, signature)
        self._mine[self._number] = made
        self._mine.pop(self._number - _REMEMBERED, None)
        self._note_promise(made)
        return made

    def covers(self, sender: Life, staged: int) -> bool:
        """Whether shares of *sender* that weigh *staged* together may be accepted.

        They may where the sender has promised them, is worth them, and its promise owns up to all
        that it must have sent before.
        """
        if not self.has_promised(sender, staged):
            return False
        had = self._had(sender.peer) + self._returned.get(sender.peer, 0)
        spent = self.promises[Link(sender, self.me)].spent
        return spent <= had and self.worth(sender.peer) >= staged

    def has_promised(self, sender: Life, staged: int) -> bool:
        """Whether *sender*, which nobody has convicted, has signed for shares that weigh *staged*
        together and are not decided."""
        link = Link(sender, self.me)
        promise, receipt = self.promises.get(link), self.receipts.get(link)
        if promise is None or sender.peer in self.convicted:
            return False
        decided = 0 if receipt is None else receipt.decided
        return promise.offered - decided >= staged

    def decide(self, sender: Life, escrow: int, accepted: int) -> Receipt | None:
        """Sign what has become of a share.

        Args:
            sender: Whose.
            escrow: What it weighed; 0 of one that did not come whole.
            accepted: How much of that was accepted.

        Returns:
            The latest receipt; None where nothing was promised.
        """
        before = self.receipts.get(Link(sender, self.me))
        return self._sign(sender, escrow + (0 if before is None else before.decided), accepted)

    def close(self, sender: Life, staged: int) -> Receipt | None:
        """Sign that nothing of what was promised will be accepted any more but what is here.

        Args:
            sender: Whose.
            staged: Weight of its shares that are here and not decided.

        Returns:
            The latest receipt; None where nothing was promised.
        """
        promise = self.promises.get(Link(sender, self.me))
        return None if promise is None else self._sign(sender, promise.offered - staged, 0)

    def _sign(self, sender: Life, decided: int, accepted: int) -> Receipt | None:
        link = Link(sender, self.me)
        promise, before = self.promises.get(link), self.receipts.get(link)
        if promise is None:
            return None
        least = total = accepted
        if before is not None:
            least, total = before.decided + accepted, before.accepted + accepted
        # A share that is refused may be promised only later, and one that is here likewise.
        decided = max(min(decided, promise.offered), least)
        if before is not None and (before.decided, before.accepted) == (decided, total):
            return before
        draft = Receipt(promise, decided, total)
        signature = self._keys.sign(draft.signed(self.swarm))
        made = Receipt(promise, decided, total, signature)
        self._note_receipt(made)
        return made

    def take(self, statement: Statement) -> Taken:
        """Take in what somebody told; it may convict its signer.

        What a convict has signed still counts in the book: others may have taken it in good faith.
        """
        if isinstance(statement, Promise):
            return self._take_promise(statement)
        taken, link = self._take_promise(statement.promise), statement.promise.link
        known = self.receipts.get(link)
        if taken is Taken.FORGED or link not in self.promises or known == statement:
            return taken
        if not self._is_signed(statement):
            return Taken.FORGED
        both = (statement,) if known is None else (known, statement)
        if why_guilty(both):
            self._convict(Proof(both))
        if known is not None and _rank(statement) <= _rank(known):
            return taken
        self._note_receipt(statement)
        return Taken.NEW

    def take_proof(self, proof: Proof) -> Taken:
        """Take in a proof against somebody."""
        if proof.statements and proof.peer in self.convicted:
            return Taken.KNOWN
        if not proof.reason or not all([self._is_signed(each) for each in proof.statements]):
            return Taken.FORGED
        self._convict(proof)
        return Taken.NEW

    def since(self, revision: int) -> tuple[list[Statement], list[Proof]]:
        """What has changed since a revision, the oldest first."""
        return self._of(list(self._changes(revision))[::-1])

    def page(self, after: int, statements_max: int) -> tuple[list[Statement], list[Proof], int]:
        """A part of what has changed since a revision: see `since`.

        Args:
            after: The revision.
            statements_max: How many statements it may have, those of its proofs among them; one
                proof may have more.

        Returns:
            What has changed, and the revision up to which that is all.
        """
        statements: list[Statement] = []
        proofs: list[Proof] = []
        last, room = self.revision, statements_max
        for key in list(self._changes(after))[::-1]:
            told, proven = self._of([key])
            room -= len(told) + sum([len(each.statements) for each in proven])
            if room < 0 and (statements or proofs):
                return statements, proofs, last
            statements, proofs, last = statements + told, proofs + proven, self._changed[key]
        return statements, proofs, last

    def worth(self, peer: PeerId) -> int:
        """What a peer can have, over all its incarnations, if all are held to what they signed."""
        worth = self._had(peer) - self._given.get(peer, 0)
        for link, cut in self.cuts().items():
            if link.receiver.peer == peer:
                worth -= cut
            if link.sender.peer == peer:
                worth += cut
        return worth

    def cuts(self) -> Mapping[Link, int]:
        """By link, how much of what was accepted on it its sender did not have."""
        if self._cuts_of != self.revision:
            self._cuts_of, self._cuts = self.revision, self._cut() if self._lacking else {}
        return self._cuts

    def lacking(self) -> dict[PeerId, int]:
        """Who has given more than it had, and how much more."""
        return {each: self._given[each] - self._had(each) for each in sorted(self._lacking)}

    def _had(self, peer: PeerId) -> int:
        return self._grant(peer) + self._got.get(peer, 0)

    def _cut(self) -> dict[Link, int]:
        """Pass on what peers lack, in proportion to what each receiver has of them on balance.

        A receiver that gave as much as it took loses nothing: nobody can be robbed of more than it
        had from a liar on balance.
        """
        balances = self._balances()
        cuts: dict[Link, int] = {}
        lacking, rounds = self.lacking(), 0
        # Whoever has lost all of what others have of it on balance lacks nothing: it ends.
        while lacking:
            rounds += 1
            for peer, missing in lacking.items():
                left = {link: held - cuts.get(link, 0) for link, held in balances[peer].items()}
                total = sum(left.values())
                missing = total if rounds > _ROUNDS_MAX else missing
                for link, held in left.items():
                    cuts[link] = cuts.get(link, 0) + min(held, -(-missing * held // max(total, 1)))
            lacking = self._lacking_after(cuts)
        return {link: cut for link, cut in cuts.items() if cut}

    def _balances(self) -> dict[PeerId, dict[Link, int]]:
        """By sender, what its receivers have of it on balance, on the link that says most."""
        net: dict[tuple[PeerId, PeerId], int] = {}
        largest: dict[tuple[PeerId, PeerId], Link] = {}
        for link, receipt in self.receipts.items():
            there = link.sender.peer, link.receiver.peer
            net[there] = net.get(there, 0) + receipt.accepted
            net[there[::-1]] = net.get(there[::-1], 0) - receipt.accepted
            best = largest.get(there)
            if best is None or receipt.accepted > self.receipts[best].accepted:
                largest[there] = link
        found: dict[PeerId, dict[Link, int]] = {}
        for there, held in net.items():
            links = found.setdefault(there[0], {})
            if held > 0:
                links[largest[there]] = held
        return found

    def _lacking_after(self, cuts: Mapping[Link, int]) -> dict[PeerId, int]:
        change: dict[PeerId, int] = {}
        for link, cut in cuts.items():
            for peer, sign in ((link.receiver.peer, -1), (link.sender.peer, 1)):
                change[peer] = change.get(peer, 0) + sign * cut
        lacking = {}
        for peer in change:
            worth = self._had(peer) - self._given.get(peer, 0) + change[peer]
            if worth < 0:
                lacking[peer] = -worth
        return lacking

    def _of(self, keys: Iterable[Link | PeerId]) -> tuple[list[Statement], list[Proof]]:
        """The latest statements of links, and the proofs against peers."""
        statements: list[Statement] = []
        proofs = []
        for key in keys:
            if not isinstance(key, Link):
                proofs.append(self.convicted[key])
                continue
            promise, receipt = self.promises[key], self.receipts.get(key)
            if receipt is not None:
                statements.append(receipt)
            if receipt is None or promise.number > receipt.promise.number:
                statements.append(promise)
        return statements, proofs

    def _changes(self, revision: int) -> Iterator[Link | PeerId]:
        for key in reversed(self._changed):
            if self._changed[key] <= revision:
                return
            yield key

    def _take_promise(self, promise: Promise) -> Taken:
        link = promise.link
        known, receipt = self.promises.get(link), self.receipts.get(link)
        if known == promise or (receipt is not None and receipt.promise == promise):
            return Taken.KNOWN
        if link.sender == self.me and self._mine.get(promise.number) == promise:
            return Taken.KNOWN
        if known is None and self.me not in link and not self._has_room(link.sender.peer):
            return Taken.KNOWN
        if not self._is_signed(promise):
            return Taken.FORGED
        proof = self._catch(promise)
        if proof is not None:
            self._convict(proof)
        if known is not None and promise.number <= known.number:
            return Taken.KNOWN if proof is None else Taken.NEW
        self._note_promise(promise)
        return Taken.NEW

    def _catch(self, promise: Promise) -> Proof | None:
        """What convicts the signer of a promise that cannot be true beside those that are known."""
        if promise.link.sender.peer in self.convicted:
            return None
        others = self._promised.get(promise.link.sender, {})
        if why_guilty([promise]):
            return Proof((promise,))
        for other in others.values():
            if contradiction(other, promise):
                return Proof((other, promise))
        latest = {**others, promise.link: promise}
        if promise.link in others and others[promise.link].number > promise.number:
            latest[promise.link] = others[promise.link]
        last = max(latest.values(), key=_number)
        if sum(each.offered for each in latest.values()) <= last.spent:
            return None
        # The fewest that are too much, and the one that says what was spent on all.
        chosen, total = [last], last.offered
        for each in sorted(latest.values(), key=lambda one: -one.offered):
            if each is not last and total <= last.spent:
                chosen.append(each)
                total += each.offered
        return Proof(tuple(chosen))

    def _has_room(self, sender: PeerId) -> bool:
        if len(self.promises) >= LINKS_MAX:
            return False
        return self._links_of.get(sender, 0) < LINKS_OF_ONE_MAX

    def _is_signed(self, statement: Statement) -> bool:
        signed = statement.signed(self.swarm)
        return self._keys.verify(signer_of(statement).peer, signed, statement.signature)

    def _convict(self, proof: Proof) -> None:
        if proof.peer not in self.convicted:
            self.convicted[proof.peer] = proof
            self._mark(proof.peer)

    def _mark(self, key: Link | PeerId) -> None:
        self.revision += 1
        self._changed.pop(key, None)
        self._changed[key] = self.revision

    def _note_promise(self, promise: Promise) -> None:
        sender = promise.link.sender.peer
        if promise.link not in self.promises:
            self._links_of[sender] = self._links_of.get(sender, 0) + 1
        self.promises[promise.link] = promise
        self._promised.setdefault(promise.link.sender, {})[promise.link] = promise
        self._mark(promise.link)

    def _note_receipt(self, receipt: Receipt) -> None:
        link = receipt.promise.link
        before = self.receipts.get(link)
        accepted, returned = (0, 0) if before is None else (before.accepted, before.returned)
        self.receipts[link] = receipt
        sender, receiver = link.sender.peer, link.receiver.peer
        grown = receipt.accepted - accepted
        self._given[sender] = self._given.get(sender, 0) + grown
        self._got[receiver] = self._got.get(receiver, 0) + grown
        self._returned[sender] = self._returned.get(sender, 0) + receipt.returned - returned
        for peer in (sender, receiver):
            if self._given.get(peer, 0) > self._had(peer):
                self._lacking.add(peer)
            else:
                self._lacking.discard(peer)
        self._mark(link)


def _number(promise: Promise) -> int:
    return promise.number


def _rank(receipt: Receipt) -> tuple[int, int, int]:
    # Of two that contradict one another, the sender has acted on the one that returns more.
    return receipt.decided, -receipt.accepted, receipt.promise.number
