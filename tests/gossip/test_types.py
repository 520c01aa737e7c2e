"""Cheap frozen values behave as frozen dataclasses do, and random streams are named."""

import numpy as np

from rumor.gossip.types import stream
from rumor.gossip.weight import UNIT
from rumor.gossip.wire.messages import Ack, Pending, Push, Query


def test_values_are_equal_by_type_and_fields_have_no_room_for_others_and_print_with_names() -> None:
    assert Ack(1, 2) == Ack(1, 2) and hash(Ack(1, 2)) == hash(Ack(1, 2))
    values: list[object] = [Query(7), Pending(7)]
    assert Ack(1, 2) != Ack(1, 3) and values[0] != values[1]
    assert not hasattr(Ack(1, 2), "__dict__")
    push = Push(seq=1, escrow=2 * UNIT, size_bytes=3, epoch=0, round=4, note=0, step=5)
    assert repr(push).startswith("Push(seq=1, escrow=2")


def test_each_name_opens_a_stream_of_its_own_on_every_machine() -> None:
    assert stream(0, "a", "rule").integers(1000, size=4).tolist() == [206, 70, 280, 983]
    first, again = (stream(3, "a", "rule").random(5) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    for other in ((4, "a", "rule"), (3, "b", "rule"), (3, "a", "data:0")):
        assert first[0] != stream(*other).random()
    assert stream(1, "1", "x").random() != stream(11, "", "x").random(), "names do not run together"
