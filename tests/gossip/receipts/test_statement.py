"""What is signed is all that is said, and nothing else that could be said."""

from dataclasses import replace

from rumor.gossip.receipts.statement import Life, Link, Promise, Receipt

PROMISE = Promise(Link(Life("a", 1), Life("b", 2)), 3, 4, 5)


def test_every_field_is_under_the_signature() -> None:
    receipt = Receipt(PROMISE, 4, 2)
    changed = [
        replace(PROMISE, link=Link(Life("a", 2), Life("b", 2))),
        replace(PROMISE, number=4),
        replace(PROMISE, offered=5),
        replace(PROMISE, spent=6),
    ]
    signed = {each.signed(bytes(16)) for each in (PROMISE, *changed)}
    signed |= {each.signed(bytes(16)) for each in (receipt, replace(receipt, decided=3))}
    signed |= {replace(receipt, accepted=1).signed(bytes(16)), PROMISE.signed(b"s" * 16)}
    assert len(signed) == 9
