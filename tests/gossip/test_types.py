"""Random streams are named."""

import numpy as np

from rumor.gossip.types import stream


def test_each_name_has_its_own_stream_that_is_the_same_on_every_machine() -> None:
    assert stream(0, "a", "rule").integers(1000, size=4).tolist() == [206, 70, 280, 983]
    first, again = (stream(3, "a", "rule").random(5) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    for other in ((4, "a", "rule"), (3, "b", "rule"), (3, "a", "data:0")):
        assert first[0] != stream(*other).random()
    assert stream(1, "1", "x").random() != stream(11, "", "x").random(), "names are kept separate"
