"""Cheap frozen values behave as frozen dataclasses do, except that nothing stops a change."""

from rumor.gossip.weight import UNIT
from rumor.gossip.wire.messages import Ack, Pending, Push, Query


def test_values_of_equal_fields_are_equal_and_hash_alike() -> None:
    assert Ack(1, 2) == Ack(1, 2)
    assert hash(Ack(1, 2)) == hash(Ack(1, 2))
    assert Ack(1, 2) != Ack(1, 3)


def test_values_of_different_types_differ_though_their_fields_are_equal() -> None:
    values: list[object] = [Query(7), Pending(7)]
    assert values[0] != values[1]


def test_values_have_no_room_for_other_fields() -> None:
    assert not hasattr(Ack(1, 2), "__dict__")


def test_fields_by_keyword_print_with_their_names() -> None:
    push = Push(seq=1, escrow=2 * UNIT, size_bytes=3, epoch=0, round=4, note=0, step=5)
    assert repr(push).startswith("Push(seq=1, escrow=2")
