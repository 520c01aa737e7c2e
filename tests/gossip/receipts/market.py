"""A swarm of books without models: honest peers push halves, liars forge; rounds stand for time.

``python -m tests.gossip.receipts.market`` prints the table of docs/explanation/receipts.md.
"""

import random
import statistics
from dataclasses import dataclass, field
from hashlib import blake2b

from rumor.gossip.receipts.book import Book
from rumor.gossip.receipts.statement import Life, Link, Promise, Receipt

__all__ = ["GRANT", "SWARM", "HashKeys", "Market", "Outcome", "signed_promise", "signed_receipt"]

SWARM = b"the-first-anchor"
GRANT = 1 << 40


class HashKeys:
    """Stands in for Ed25519: a keyed hash, whose keys nobody but the test knows."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def sign(self, signed: bytes) -> bytes:
        """What only this peer can make."""
        return _mac(self._peer, signed)

    def verify(self, peer: str, signed: bytes, signature: bytes) -> bool:
        """Whether a peer made it."""
        return _mac(peer, signed) == signature


def _mac(peer: str, signed: bytes) -> bytes:
    return blake2b(signed, key=peer.encode(), digest_size=64).digest()


def signed_promise(link: Link, number: int, offered: int, spent: int) -> Promise:
    """What the sender of a link would sign."""
    draft = Promise(link, number, offered, spent)
    signature = _mac(link.sender.peer, draft.signed(SWARM))
    return Promise(link, number, offered, spent, signature)


def signed_receipt(promise: Promise, decided: int, accepted: int) -> Receipt:
    """What the receiver of a promise would sign."""
    draft = Receipt(promise, decided, accepted)
    signature = _mac(promise.link.receiver.peer, draft.signed(SWARM))
    return Receipt(promise, decided, accepted, signature)


@dataclass
class Peer:
    """One peer; a liar's book is what it knows, not what it says."""

    book: Book
    held: int = 0
    lies: bool = False
    told: dict[str, int] = field(default_factory=dict)
    written_off: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of a swarm."""

    endowment: int
    held: int
    """By honest peers, at the end."""
    held_max: int
    """By honest peers, at any time."""
    rounds_to_evict: tuple[int, ...]
    """Of each equivocator: from its second lie to the last honest peer that knows."""
    honest_evicted: int
    unconvicted: int
    """Equivocators whom some honest peer did not evict."""


class Market:
    """Peers, some of them liars, in rounds.

    Args:
        n: How many peers.
        seed: Of all chance.
        liars: What part of them lies.
        kinds: Which lies are told: ``mint``, ``double``, ``number``, ``keep``, ``ring``, ``hide``.
        loss: What part of all messages is lost.
    """

    def __init__(
        self,
        n: int,
        seed: int,
        liars: float = 0.3,
        kinds: tuple[str, ...] = ("mint", "double", "number", "keep", "ring", "hide"),
        loss: float = 0.1,
    ) -> None:
        self.rng = random.Random(seed)
        names = [f"p{index:03}" for index in range(n)]
        self.liars = set(self.rng.sample(names, int(n * liars)))
        self.loss = loss
        self.kinds = kinds
        self.round = 0
        self.peers = {
            name: Peer(Book(Life(name, 1), SWARM, HashKeys(name), lambda _: GRANT), GRANT)
            for name in names
        }
        for name in self.liars:
            self.peers[name].lies = True
        self.honest = [name for name in names if name not in self.liars]
        self.first_lie: dict[str, int] = {}
        self.known_by_all: dict[str, int] = {}
        self.held_max = 0

    def play(self, rounds: int) -> Outcome:
        """Let so many rounds pass, in the last third of which nobody lies any more."""
        for self.round in range(rounds):
            for name in self.rng.sample(sorted(self.peers), len(self.peers)):
                if name not in self.liars:
                    self._push(name)
                elif self.round < 2 * rounds // 3:
                    self._lie(name)
            self._gossip()
            self._count()
        return self._outcome()

    def _push(self, name: str) -> None:
        peer = self.peers[name]
        there = self.rng.choice([each for each in self.peers if each != name])
        if peer.held < 2 or there in peer.book.convicted:
            return
        escrow = peer.held // 2
        peer.held -= escrow
        promise = peer.book.promise(Life(there, 1), escrow)
        before = peer.book.receipts.get(promise.link)
        if there in self.liars:
            receipt = self._liar_takes(there, promise, escrow)
        else:
            self._tell(name, there)
            told = self._takes(there, name, escrow)
            assert told is not None
            receipt = told
        peer.book.take(receipt)
        peer.held += receipt.returned - (0 if before is None else before.returned)

    def _takes(self, there: str, sender: str, escrow: int) -> Receipt | None:
        """An honest peer gets a share, and takes it if its weight is there."""
        peer = self.peers[there]
        accepted = escrow if peer.book.covers(Life(sender, 1), escrow) else 0
        receipt = peer.book.decide(Life(sender, 1), escrow, accepted)
        peer.held += accepted
        return receipt

    def _liar_takes(self, there: str, promise: Promise, escrow: int) -> Receipt:
        """A liar takes what it gets; one that keeps tells its sender that it did not."""
        book = self.peers[there].book
        book.take(promise)
        before = book.receipts.get(promise.link)
        total = 0 if before is None else before.accepted
        honest = signed_receipt(promise, promise.offered, total + escrow)
        book.take(honest)
        self.peers[there].held += escrow
        if "keep" in self.kinds and self.rng.random() < 0.3:
            self._note_lie(there)
            return signed_receipt(promise, promise.offered, total)
        return honest

    def _lie(self, name: str) -> None:
        kind = self.rng.choice(self.kinds)
        book = self.peers[name].book
        own = [each for each in book.promises.values() if each.link.sender == book.me]
        last = max(own, key=lambda each: each.number, default=None)
        number, spent = (0, 0) if last is None else (last.number, last.spent)
        targets = self.rng.sample(self.honest, 2)
        if kind == "mint":
            self._forge(name, targets[0], number + 1, spent, self.rng.randrange(1, 9) * GRANT)
        elif kind in ("double", "number"):
            # The same weight to two, each of whom is to believe that it is the only one.
            weight = max(1, min(book.worth(name), self.peers[name].held))
            for index, target in enumerate(targets):
                step = 1 if kind == "number" else 1 + index
                self._forge(name, target, number + step, spent, weight)
            self.peers[name].held = 0
        elif kind == "ring" and len(self.liars) > 1:
            other = self.rng.choice(sorted(self.liars - {name}))
            self._ring(name, other, self.rng.randrange(1, 9) * GRANT)
        elif kind == "hide":
            self.peers[name].told = {each: book.revision for each in self.peers}

    def _forge(self, name: str, target: str, number: int, spent: int, weight: int) -> None:
        """Push what is not there, and say that it is all that was sent since *spent*."""
        book, link = self.peers[name].book, Link(Life(name, 1), Life(target, 1))
        before = book.promises.get(link)
        offered = weight + (0 if before is None else before.offered)
        promise = signed_promise(link, number, offered, max(spent + weight, offered))
        self._tell(name, target)
        self.peers[target].book.take(promise)
        receipt = self._takes(target, name, weight)
        book.take(promise)
        if receipt is not None:
            book.take(receipt)

    def _ring(self, name: str, other: str, weight: int) -> None:
        """Two liars sign for weight that neither has, and one shows it to an honest peer."""
        ours, theirs = self.peers[name].book, self.peers[other].book
        for sender, receiver in ((theirs, ours), (ours, theirs)):
            promise = sender.promise(receiver.me, weight)
            receiver.take(promise)
            receipt = receiver.decide(sender.me, weight, weight)
            assert receipt is not None
            sender.take(receipt)
        promise = theirs.promise(ours.me, weight)
        ours.take(promise)
        receipt = ours.decide(theirs.me, weight, weight)
        assert receipt is not None
        theirs.take(receipt)
        own = [each for each in ours.promises.values() if each.link.sender == ours.me]
        last = max(own, key=lambda each: each.number)
        self._forge(name, self.rng.choice(self.honest), last.number + 1, last.spent, weight)

    def _tell(self, source: str, there: str) -> None:
        peer = self.peers[source]
        statements, proofs = peer.book.since(peer.told.get(there, 0))
        for statement in statements:
            self.peers[there].book.take(statement)
        for proof in proofs:
            self.peers[there].book.take_proof(proof)
        peer.told[there] = peer.book.revision

    def _gossip(self) -> None:
        for name in sorted(self.peers):
            there = self.rng.choice([each for each in self.peers if each != name])
            if self.rng.random() >= self.loss:
                self._tell(name, there)
                if there in self.honest:
                    self._tell(there, name)

    def _count(self) -> None:
        for name in self.honest:
            peer = self.peers[name]
            excess = peer.held - peer.book.worth(name)
            if excess > 0 and peer.book.cuts():
                peer.held -= min(excess, peer.held)
        self.held_max = max(self.held_max, self.held_by_honest())
        for liar in self.liars:
            convicted = [liar in self.peers[each].book.convicted for each in self.honest]
            if any(convicted):
                self._note_lie(liar)
            if all(convicted):
                self.known_by_all.setdefault(liar, self.round)

    def _note_lie(self, liar: str) -> None:
        self.first_lie.setdefault(liar, self.round)

    def held_by_honest(self) -> int:
        """Weight of honest peers, what is in escrow between them left out."""
        return sum(self.peers[name].held for name in self.honest)

    def _outcome(self) -> Outcome:
        books = [self.peers[name].book for name in self.honest]
        guilty = {name for book in books for name in book.convicted}
        return Outcome(
            endowment=GRANT * len(self.peers),
            held=self.held_by_honest(),
            held_max=self.held_max,
            rounds_to_evict=tuple(
                self.known_by_all[each] - self.first_lie[each]
                for each in sorted(guilty & self.known_by_all.keys())
            ),
            honest_evicted=len(guilty & set(self.honest)),
            unconvicted=sum(name not in self.known_by_all for name in guilty - set(self.honest)),
        )


def _table(sizes: dict[int, int]) -> None:
    print(
        "| peers | liars | swarms | rounds until the last honest peer has evicted one: mean, max |"
    )
    print("|---|---|---|---|")
    for n, seeds in sizes.items():
        outcomes = [Market(n, seed).play(21) for seed in range(seeds)]
        rounds = [each for one in outcomes for each in one.rounds_to_evict]
        told = f"{statistics.mean(rounds):.1f}, {max(rounds)}"
        print(f"| {n} | {int(n * 0.3)} | {seeds} | {told} |", flush=True)


if __name__ == "__main__":
    _table({8: 40, 16: 20, 32: 8, 64: 2})
