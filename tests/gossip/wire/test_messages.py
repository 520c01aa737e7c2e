"""Valid names of peers, numbers of incarnations, and weights in messages."""

from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.weight import UNIT
from rumor.gossip.wire.messages import Ack, Excerpt, Offer, Phase, Stopping, is_name, later_life


def test_names_consist_of_letters_digits_dots_and_dashes() -> None:
    assert all(map(is_name, ["a", "peer-07", "node.example.org", "Ada_1", "é", "x" * 64]))
    assert not any(map(is_name, ["", "x" * 65, "a b", "a/b", "a\n", "$x$"]))


@given(st.integers(1, 2**50), st.integers(1, 2**50), st.integers(1, 2**50))
def test_a_later_incarnation_is_larger_and_depends_on_the_time_of_its_start(
    known: int, one: int, other: int
) -> None:
    assert later_life(known, one) > known
    if one % 4096 != other % 4096:
        assert later_life(known, one) != later_life(known, other)


def test_weights_are_shown_in_units() -> None:
    assert repr(Ack(7, 3 * UNIT)) == "Ack(seq=7, accepted=3, credit_bytes=0, bytes_s=0)"
    assert "held=3," in repr(Excerpt(snapshot=2, held=3 * UNIT))
    assert "weight=3, phase=" in repr(Stopping("", 3 * UNIT, Phase.QUIET, 40, True))
    offer = Offer(seq=1, escrow=2 * UNIT, size_bytes=0, epoch=0, round=0, note=0, step=0)
    assert "escrow=2," in repr(offer)
