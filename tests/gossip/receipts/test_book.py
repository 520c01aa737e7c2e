"""The book of one peer: what it signs and believes, whom it convicts, what others are worth."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from rumor.gossip.receipts import book as book_module
from rumor.gossip.receipts.book import Book, Proof, Taken
from rumor.gossip.receipts.statement import Life, Link, Promise, Statement, signer_of

from .market import SWARM, HashKeys, signed_promise, signed_receipt

A, B, C, D = (Life(name, 1) for name in "abcd")


def book_of(me: Life, grant: int = 100) -> Book:
    return Book(me, SWARM, HashKeys(me.peer), lambda _: grant)


def moved(sender: Life, receiver: Life, weight: int, number: int = 1, spent: int = 0) -> Statement:
    promise = signed_promise(Link(sender, receiver), number, weight, spent + weight)
    return signed_receipt(promise, weight, weight)


def test_a_transfer_moves_what_both_are_worth() -> None:
    a, b = book_of(A), book_of(B)
    promise = a.promise(B, 40)
    assert b.take(promise) is Taken.NEW
    assert b.covers(A, 40) and not b.covers(A, 41)
    receipt = b.decide(A, 40, 30)
    assert receipt is not None and (receipt.decided, receipt.returned) == (40, 10)
    assert a.take(receipt) is Taken.NEW
    assert [a.worth(name) for name in "ab"] == [b.worth(name) for name in "ab"] == [70, 130]


def test_a_decision_says_nothing_of_what_is_still_staged() -> None:
    a, b = book_of(A), book_of(B)
    b.take(a.promise(B, 40))
    b.take(a.promise(B, 20))
    first = b.decide(A, 40, 40)
    assert first is not None and (first.decided, first.accepted) == (40, 40)
    assert b.close(A, 20) is first  # nothing new is to be signed
    last = b.close(A, 0)
    assert last is not None and (last.decided, last.returned) == (60, 20)
    assert not b.covers(A, 20)  # should it come after all
    assert b.decide(C, 0, 0) is None and b.close(C, 0) is None


def test_a_decision_is_no_less_than_what_was_accepted_whatever_else_is_coming() -> None:
    a, b = book_of(A), book_of(B)
    b.take(a.promise(B, 40))
    receipt = None
    for _ in range(2):
        b.close(A, 99)  # most of that is not promised yet
        receipt = b.decide(A, 20, 20)
        assert receipt is not None
        assert a.take(receipt) is Taken.NEW
    assert receipt is not None and (receipt.decided, receipt.accepted) == (40, 40)
    assert not a.convicted and not b.convicted


def test_the_same_is_no_news() -> None:
    a, b, c = book_of(A), book_of(B), book_of(C)
    b.take(a.promise(B, 40))
    receipt = b.decide(A, 40, 40)
    assert receipt is not None
    assert c.take(receipt) is Taken.NEW
    assert c.take(receipt) is Taken.KNOWN
    assert c.take(receipt.promise) is Taken.KNOWN


def test_what_is_older_is_no_news() -> None:
    a, b, c = book_of(A), book_of(B), book_of(C)
    told = []
    for _ in range(2):
        b.take(a.promise(B, 20))
        receipt = b.decide(A, 20, 20)
        assert receipt is not None
        told.append(receipt)
    assert c.take(told[1]) is Taken.NEW
    assert c.take(told[0]) is Taken.KNOWN
    assert not c.convicted


def test_what_nobody_signed_is_forged() -> None:
    c = book_of(C)
    promise = signed_promise(Link(A, B), 1, 40, 40)
    receipt = signed_receipt(promise, 40, 40)
    assert c.take(replace(promise, spent=41)) is Taken.FORGED
    assert c.take(replace(receipt, accepted=39)) is Taken.FORGED
    assert c.take(replace(receipt, promise=replace(promise, number=2))) is Taken.FORGED
    assert c.take_proof(Proof((replace(promise, spent=1),))) is Taken.FORGED
    assert c.take_proof(Proof((promise,))) is Taken.FORGED  # it proves nothing
    assert not c.receipts and not c.convicted


def test_another_swarms_statements_are_worth_nothing() -> None:
    there = Book(C, b"the-other-anchor", HashKeys("c"), lambda _: 100)
    assert there.take(moved(A, B, 40)) is Taken.FORGED


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (signed_promise(Link(A, C), 1, 40, 40), "signed two promises of one number"),
        (signed_promise(Link(A, C), 2, 40, 39), "signed that it sent more to one than to all"),
        (signed_promise(Link(A, C), 2, 40, 40), "spent the same weight twice"),
        (signed_promise(Link(A, B), 2, 30, 40), "signed totals of a link that do not add up"),
    ],
)
def test_who_signs_what_cannot_be_true_is_convicted_and_others_believe_the_proof(
    second: Promise, why: str
) -> None:
    c, d = book_of(C), book_of(D)
    c.take(signed_promise(Link(A, B), 1, 40, 40))
    assert c.take(second) is Taken.NEW
    assert c.convicted["a"].reason == why
    assert not c.covers(A, 1)
    (proof,) = c.since(0)[1]
    assert proof.peer == "a"
    assert d.take_proof(proof) is Taken.NEW
    assert d.take_proof(proof) is Taken.KNOWN
    assert d.convicted.keys() == {"a"}
    # What more it signs is kept, and convicts nobody anew.
    assert c.take(signed_promise(Link(A, D), 2, 40, 40)) is Taken.NEW
    assert c.convicted["a"] is proof


def test_an_old_promise_can_convict_as_well() -> None:
    c = book_of(C)
    c.take(signed_promise(Link(A, B), 2, 40, 80))
    assert c.take(signed_promise(Link(A, B), 1, 50, 50)) is Taken.NEW
    assert "a" in c.convicted
    assert c.promises[Link(A, B)].number == 2


def test_the_proof_of_a_sum_holds_no_more_than_it_takes() -> None:
    c = book_of(C)
    for index, weight in enumerate((1, 1, 50, 1)):
        there = Life(f"x{index}", 1)
        c.take(signed_promise(Link(A, there), index + 1, weight, sum((1, 1, 50, 1)[: index + 1])))
    assert not c.convicted
    c.take(signed_promise(Link(A, D), 5, 20, 53))
    assert len(c.convicted["a"].statements) == 2
    assert c.convicted["a"].reason == "spent the same weight twice"


def test_a_receiver_that_signs_twice_is_convicted_and_what_it_returned_counts() -> None:
    c = book_of(C)
    promise = signed_promise(Link(A, B), 1, 40, 40)
    c.take(signed_receipt(promise, 40, 40))
    assert c.worth("b") == 140
    assert c.take(signed_receipt(promise, 40, 0)) is Taken.NEW
    assert c.convicted["b"].reason == "signed for a share twice, and differently"
    assert c.worth("b") == c.worth("a") == 100
    c.take(signed_receipt(promise, 40, 40))
    assert c.worth("b") == 100


def test_a_receipt_for_more_than_was_sent_convicts_its_receiver() -> None:
    c = book_of(C)
    c.take(signed_receipt(signed_promise(Link(A, B), 1, 40, 40), 50, 50))
    assert c.convicted.keys() == {"b"}


def test_nobody_covers_more_than_it_is_worth() -> None:
    b = book_of(B)
    b.take(signed_promise(Link(A, B), 1, 101, 101))
    assert not b.covers(A, 101)
    # With what others gave it, it does.
    b.take(moved(C, A, 1))
    assert b.covers(A, 101)


def test_nobody_covers_who_does_not_own_up_to_what_it_sent() -> None:
    b = book_of(B)
    b.take(signed_promise(Link(A, B), 1, 10, 101))
    assert not b.covers(A, 10)


def test_weight_that_liars_push_to_and_fro_covers_nothing() -> None:
    b = book_of(B, grant=0)
    b.take(moved(C, D, 1000))
    b.take(moved(D, C, 1000))
    b.take(moved(C, A, 1000, number=2, spent=1000))
    b.take(signed_promise(Link(A, B), 1, 1000, 1000))
    assert b.worth("a") == 0
    assert not b.covers(A, 1000)
    assert b.lacking() == {"c": 1000}


def test_what_a_liar_lacks_is_cut_from_its_receivers_in_proportion() -> None:
    d = book_of(D)
    d.take(moved(A, B, 150))
    d.take(moved(A, C, 50, number=2, spent=150))
    assert d.lacking() == {"a": 100}
    assert d.cuts() == {Link(A, B): 75, Link(A, C): 25}
    assert [d.worth(name) for name in "abc"] == [0, 175, 125]


def test_who_gave_a_liar_as_much_as_it_got_loses_nothing() -> None:
    d = book_of(D)
    d.take(moved(B, A, 50))
    d.take(moved(A, B, 50))
    d.take(moved(A, C, 500, number=2, spent=50))
    assert d.cuts() == {Link(A, C): 400}
    assert d.worth("b") == 100


def test_what_was_passed_on_is_cut_where_it_is_now() -> None:
    d = book_of(D)
    d.take(moved(A, B, 300))
    d.take(moved(B, C, 350))
    assert d.cuts() == {Link(A, B): 200, Link(B, C): 150}
    assert [d.worth(name) for name in "abc"] == [0, 0, 300]


def test_later_incarnations_answer_for_earlier_ones() -> None:
    d, again = book_of(D), Life("a", 2)
    d.take(moved(A, B, 80))
    d.take(moved(again, B, 80))
    assert d.lacking() == {"a": 60}
    assert sum(map(d.worth, "ab")) == 200


def test_cutting_ends_even_where_liars_stand_in_a_circle() -> None:
    d = book_of(D, grant=0)
    x, y, z = (Life(name, 1) for name in "xyz")
    d.take(moved(x, y, 10**30))
    d.take(moved(y, z, 10**30))
    d.take(moved(z, x, 10**30 - 7))
    d.take(moved(z, A, 7, number=2, spent=10**30))
    d.take(moved(x, A, 3, number=2, spent=10**30))
    assert [d.worth(name) for name in "axyz"] == [0, 0, 0, 0]


def test_a_full_book_takes_links_of_its_own_alone() -> None:
    c = book_of(C)
    with patch.object(book_module, "LINKS_MAX", 1):
        assert c.take(signed_promise(Link(A, B), 1, 1, 1)) is Taken.NEW
        assert c.take(signed_promise(Link(A, D), 2, 1, 2)) is Taken.KNOWN
        assert c.take(moved(B, D, 1)) is Taken.KNOWN
        assert c.take(signed_promise(Link(A, C), 3, 1, 3)) is Taken.NEW


def test_nobody_fills_the_book_alone() -> None:
    c = book_of(C)
    with patch.object(book_module, "LINKS_OF_ONE_MAX", 1):
        assert c.take(signed_promise(Link(A, B), 1, 1, 1)) is Taken.NEW
        assert c.take(signed_promise(Link(A, D), 2, 1, 2)) is Taken.KNOWN
        assert c.take(signed_promise(Link(B, D), 1, 1, 1)) is Taken.NEW


def test_a_book_is_told_page_by_page() -> None:
    c = book_of(C)
    for index in range(4):
        c.take(moved(A, Life(f"x{index}", 1), 1, index + 1, index))
    c.take(signed_promise(Link(B, D), 1, 1, 1))
    c.take(signed_promise(Link(B, D), 1, 2, 2))  # convicts: a page of its own, however long
    told: list[Statement] = []
    proven: list[Proof] = []
    after = pages = 0
    while after < c.revision:
        statements, proofs, after = c.page(after, 1)
        told, proven, pages = told + statements, proven + proofs, pages + 1
        assert len(statements) + len(proofs) == 1
    assert (told, proven) == c.since(0) and pages == 6
    assert c.page(after, 1) == ([], [], c.revision)
    assert c.page(0, 99) == (*c.since(0), c.revision)


def test_what_is_new_is_told_once_and_in_order() -> None:
    a, b, c = book_of(A), book_of(B), book_of(C)
    b.take(a.promise(B, 10))
    receipt = b.decide(A, 10, 10)
    assert receipt is not None
    a.take(receipt)
    again = a.promise(B, 10)
    assert a.since(0) == ([receipt, again], [])
    assert a.since(a.revision) == ([], [])
    for statement in a.since(0)[0]:
        c.take(statement)
    assert c.since(0) == a.since(0)
    assert signer_of(receipt) == B and signer_of(again) == A
