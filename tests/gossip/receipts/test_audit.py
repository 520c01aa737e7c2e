"""An audit of what several peers have kept."""

import random
from dataclasses import replace

import pytest

from rumor.gossip.receipts.audit import audit
from rumor.gossip.receipts.book import Book
from rumor.gossip.receipts.statement import Life, Link, Statement

from .market import GRANT, SWARM, HashKeys, Market, signed_promise, signed_receipt

A, B = Life("a", 1), Life("b", 1)


def test_an_honest_swarm_is_sound_and_everybody_is_worth_what_it_holds() -> None:
    market = Market(5, 1, liars=0.0)
    market.play(10)
    books = [peer.book.since(0) for peer in market.peers.values()]
    verdict = audit(books, SWARM, HashKeys("nobody"), lambda _: 1 << 40)
    assert verdict.is_sound
    assert verdict.endowment == sum(row.worth for row in verdict.rows) == 5 << 40
    assert {row.peer: row.worth for row in verdict.rows} == {
        name: peer.held for name, peer in market.peers.items()
    }
    assert "worth='" in repr(verdict.rows[0])  # told in units, here a part of one


def test_a_liar_is_named_with_what_it_signed_and_what_it_lacks() -> None:
    receipt = signed_receipt(signed_promise(Link(A, B), 1, 7, 7), 7, 7)
    twin = signed_promise(Link(A, Life("c", 1)), 1, 7, 7)
    verdict = audit([([receipt, twin], [])], SWARM, HashKeys(""), lambda _: 5)
    assert not verdict.is_sound
    liar, taker = verdict.rows[:2]
    # What it has promised to the second counts, too.
    assert (liar.lacking, liar.convicted) == (9, "signed two promises of one number")
    assert (taker.cut, taker.worth) == (2, 10)
    assert verdict.statements == 2


def test_who_is_convicted_by_a_proof_alone_is_named() -> None:
    market = Market(5, 1, liars=0.0)
    book = market.peers["p000"].book
    book.take(signed_promise(Link(A, B), 1, 7, 7))
    book.take(signed_promise(Link(A, B), 1, 8, 8))
    proofs = book.since(0)[1]
    verdict = audit([([], proofs)], SWARM, HashKeys(""), lambda _: 5)
    assert [row.peer for row in verdict.rows] == ["a"]
    assert not verdict.is_sound


def test_forged_statements_are_counted() -> None:
    promise = signed_promise(Link(A, B), 1, 7, 7)
    told: list[Statement] = [replace(promise, spent=8), signed_receipt(promise, 7, 7)]
    verdict = audit([(told, [])], SWARM, HashKeys(""), lambda _: 9)
    assert verdict.forged == 1 and not verdict.is_sound


def test_a_promise_counts_for_both_until_it_goes_back() -> None:
    promise = signed_promise(Link(A, B), 1, 5, 5)
    onward = signed_receipt(signed_promise(Link(B, Life("c", 1)), 1, 7, 7), 7, 7)
    # b may have died before it signed what it took of a.
    verdict = audit([([promise, onward], [])], SWARM, HashKeys(""), lambda _: 5)
    assert verdict.is_sound and sum(row.cut for row in verdict.rows) == 0
    assert [(row.got, row.given, row.worth) for row in verdict.rows] == [
        *((0, 0, 5), (0, 7, -2), (7, 0, 12)),
    ]
    # What it has sent back it cannot have spent.
    verdict = audit(
        [([signed_receipt(promise, 5, 0), onward], [])], SWARM, HashKeys(""), lambda _: 5
    )
    assert [row.lacking for row in verdict.rows] == [0, 2, 0]
    # And a promises no more than it has.
    verdict = audit([([promise, onward], [])], SWARM, HashKeys(""), lambda _: 4)
    assert [row.lacking for row in verdict.rows] == [1, 0, 0]


class Books:
    """Peers that let in whatever is promised, and sign what they took now and then; some lie."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = [f"p{number}" for number in range(self.rng.randrange(4, 11))]
        self.liars = set(self.rng.sample(self.names, int(len(self.names) * 0.3)))
        self.books = {
            name: Book(Life(name, 1), SWARM, HashKeys(name), lambda _: GRANT) for name in self.names
        }
        self.held = dict.fromkeys(self.names, GRANT)
        self.owed: dict[tuple[str, str], int] = {}
        self.lied: set[str] = set()

    def play(self, turns: int) -> None:
        for _ in range(turns):
            source, to = self.rng.sample(self.names, 2)
            if source in self.liars and self.rng.random() < 0.3:
                self.lie(source, to)
            else:
                self.push(source, to, self.held[source] // 2)
            if self.rng.random() < 0.3:
                self.sign(self.rng.choice(self.names))

    def push(self, source: str, to: str, weight: int) -> None:
        if not weight:
            return
        promise = self.books[source].promise(Life(to, 1), weight)
        self.held[source] = max(0, self.held[source] - weight)
        there = self.books[to]
        there.take(promise)
        owed = self.owed.get((source, to), 0)
        if not there.has_promised(Life(source, 1), owed + weight):
            assert source in self.lied and source in there.convicted
            return
        if self.rng.random() < 0.2:
            receipt = there.decide(Life(source, 1), owed + weight, owed)
            self.owed.pop((source, to), None)
            assert receipt is not None
            self.books[source].take(receipt)
            self.held[source] += weight
        else:
            self.owed[source, to] = owed + weight
            self.held[to] += weight

    def lie(self, source: str, to: str) -> None:
        self.lied.add(source)
        if self.rng.random() < 0.5:
            self.push(source, to, self.held[source] + 9 * GRANT)
        else:
            twin = Book(Life(source, 1), SWARM, HashKeys(source), lambda _: GRANT)
            self.books[to].take(twin.promise(Life(to, 1), 99 * GRANT))

    def sign(self, name: str) -> None:
        for (source, to), weight in list(self.owed.items()):
            if to == name:
                del self.owed[source, to]
                self.books[to].decide(Life(source, 1), weight, weight)


def test_an_audit_of_all_books_names_each_liar_and_nobody_else() -> None:
    assert sum(map(named_in, range(60))) > 60


@pytest.mark.slow
def test_audits_name_each_liar_and_nobody_else_over_a_thousand_seeds() -> None:
    assert sum(map(named_in, range(1000))) > 1000


def named_in(seed: int) -> int:
    """How many liars an audit names; it must name none but liars."""
    swarm = Books(seed)
    swarm.play(80)
    # Who has died has signed for a part of what it took, or for none.
    for name in swarm.names:
        if swarm.rng.random() < 0.6:
            swarm.sign(name)
    told = [book.since(0) for book in swarm.books.values()]
    if swarm.liars:
        # Nor need a liar tell anything.
        told = [book.since(0) for name, book in swarm.books.items() if name not in swarm.liars]
    verdict = audit(told, SWARM, HashKeys(""), lambda _: GRANT)
    named = {row.peer for row in verdict.rows if row.lacking or row.convicted}
    assert not named - swarm.liars, f"seed {seed}"
    # One is named that honest peers have more of, or were promised, than they gave it.
    honest = [swarm.books[name] for name in swarm.names if name not in swarm.liars]
    for liar in swarm.lied:
        there = Life(liar, 1)
        gave = sum(kept(book, Link(there, book.me)) for book in honest)
        got = sum(kept(book, Link(book.me, there)) for book in honest)
        assert liar in named or gave <= GRANT + got, f"seed {seed}: {liar}"
    return len(named)


def kept(book: Book, link: Link) -> int:
    """What was promised on a link and did not go back."""
    promise, receipt = book.promises.get(link), book.receipts.get(link)
    offered = 0 if promise is None else promise.offered
    return offered - (0 if receipt is None else receipt.returned)
