"""Weight is counted in integers, and only the mixing fraction is a float."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.weight import ONE, founders, half, mixing_fraction

UNITS = st.integers(1, 2**60)


@given(UNITS)
def test_half_of_a_weight_and_its_rest_are_the_weight(units: int) -> None:
    assert 0 <= units - 2 * half(units) <= 1


@given(st.integers(0, 2**60), UNITS)
def test_the_mixing_fraction_is_the_quotient_correctly_rounded(own: int, accepted: int) -> None:
    assert mixing_fraction(own, accepted) == float(Fraction(accepted, own + accepted))


def test_a_newcomer_takes_all_of_its_first_share() -> None:
    assert mixing_fraction(0, 1) == 1.0


def test_weights_are_read_in_founders() -> None:
    assert founders(ONE // 4) == 0.25
