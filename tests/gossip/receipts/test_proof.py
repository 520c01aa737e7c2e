"""Which statements contradict one another."""

from rumor.gossip.receipts.proof import contradiction, why_guilty
from rumor.gossip.receipts.statement import Life, Link, Promise, Receipt

A, B, C = (Life(name, 1) for name in "abc")


def promise(to: Life, number: int, offered: int, spent: int) -> Promise:
    return Promise(Link(A, to), number, offered, spent)


def receipt(decided: int, accepted: int, offered: int = 100) -> Receipt:
    return Receipt(promise(B, 1, offered, 1000), decided, accepted)


def test_a_history_of_promises_that_add_up_convicts_nobody() -> None:
    history = promise(B, 1, 5, 5), promise(C, 2, 7, 12), promise(B, 3, 6, 13)
    assert why_guilty(history) == ""
    assert why_guilty(reversed(history)) == ""


def test_two_promises_of_one_number_convict() -> None:
    pair = promise(B, 1, 5, 5), promise(C, 1, 5, 5)
    assert why_guilty(pair) == "signed two promises of one number"
    assert why_guilty((pair[0], pair[0])) == ""  # the same, told twice


def test_totals_that_shrink_convict() -> None:
    assert why_guilty((promise(B, 1, 5, 9), promise(C, 2, 1, 8))) == "signed totals that shrink"
    shrinks = promise(B, 1, 5, 9), promise(B, 2, 4, 9)
    assert why_guilty(shrinks) == "signed totals of a link that do not add up"


def test_one_link_cannot_grow_by_more_than_all_together() -> None:
    grows = promise(B, 1, 5, 9), promise(B, 2, 8, 11)
    assert why_guilty(grows) == "signed totals of a link that do not add up"


def test_promises_to_several_that_are_more_than_what_was_spent_convict() -> None:
    three = promise(B, 1, 4, 4), promise(C, 2, 4, 8), promise(Life("d", 1), 3, 4, 8)
    assert why_guilty(three[:2]) == ""
    assert why_guilty(three) == "spent the same weight twice"


def test_a_promise_of_more_than_all_that_was_spent_convicts_alone() -> None:
    assert why_guilty([promise(B, 1, 5, 4)]) == "signed that it sent more to one than to all"
    assert why_guilty([promise(B, 1, 0, 4)]) == "signed that it sent more to one than to all"


def test_receipts_of_more_than_was_sent_convict_alone() -> None:
    assert why_guilty([receipt(101, 0)]) == "signed for more than it was sent"
    assert why_guilty([receipt(5, 6)]) == "signed for more than it was sent"
    assert why_guilty([receipt(5, 5)]) == ""


def test_a_share_that_was_returned_cannot_be_accepted_later() -> None:
    same = "signed for a share twice, and differently"
    assert why_guilty((receipt(5, 0), receipt(5, 5))) == same
    assert why_guilty((receipt(9, 0), receipt(5, 5))) == same
    assert why_guilty((receipt(5, 0), receipt(9, 5))) == same
    assert why_guilty((receipt(5, 0), receipt(9, 4))) == ""


def test_words_of_two_do_not_contradict_one_another() -> None:
    other = Receipt(Promise(Link(C, B), 1, 9, 9), 9, 0)
    assert contradiction(receipt(9, 9), other) == ""
    assert contradiction(receipt(9, 9), promise(B, 1, 5, 5)) == ""
    assert why_guilty((promise(B, 1, 5, 5), Promise(Link(C, B), 1, 9, 9))) == ""
    assert why_guilty(()) == ""
