"""Random streams are named, and independent of one another."""

import numpy as np
import pytest

from rumor.gossip.types import stream


def test_the_same_name_opens_the_same_stream() -> None:
    np.testing.assert_array_equal(
        stream(3, "a", "rule").random(5), stream(3, "a", "rule").random(5)
    )


@pytest.mark.parametrize("other", [(4, "a", "rule"), (3, "b", "rule"), (3, "a", "data:0")])
def test_another_name_opens_another_stream(other: tuple[int, str, str]) -> None:
    assert stream(3, "a", "rule").random() != stream(*other).random()


def test_names_do_not_run_into_one_another() -> None:
    assert stream(1, "1", "x").random() != stream(11, "", "x").random()


def test_a_stream_is_the_same_in_every_version_and_on_every_machine() -> None:
    assert stream(0, "a", "rule").integers(1000, size=4).tolist() == [206, 70, 280, 983]
