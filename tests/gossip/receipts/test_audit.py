"""An audit of what several peers have kept."""

from dataclasses import replace

from rumor.gossip.receipts.audit import audit
from rumor.gossip.receipts.statement import Life, Link, Statement

from .market import SWARM, HashKeys, Market, signed_promise, signed_receipt

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
