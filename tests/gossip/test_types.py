"""Cheap frozen values behave as frozen dataclasses do, and random streams are named."""

import numpy as np
import pytest

from rumor.gossip.types import stream
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


def test_the_same_name_opens_the_same_stream() -> None:
    first, again = (stream(3, "a", "rule").random(5) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("other", [(4, "a", "rule"), (3, "b", "rule"), (3, "a", "data:0")])
def test_another_name_opens_another_stream(other: tuple[int, str, str]) -> None:
    assert stream(3, "a", "rule").random() != stream(*other).random()


def test_names_do_not_run_into_one_another() -> None:
    assert stream(1, "1", "x").random() != stream(11, "", "x").random()


def test_a_stream_is_the_same_in_every_version_and_on_every_machine() -> None:
    assert stream(0, "a", "rule").integers(1000, size=4).tolist() == [206, 70, 280, 983]
