"""Weight is counted in integers and shown in exact units; only the mixing fraction is a float."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.weight import (
    ONE,
    UNIT,
    WEIGHT_MAX,
    WEIGHT_MIN,
    coarse,
    decode_weight,
    encode_weight,
    founders,
    from_units,
    half,
    in_floats,
    in_units,
    mixing_fraction,
    token,
)

QUANTA = st.integers(1, 1021).flatmap(lambda bits: st.integers(1, 2**bits))
"""Weights of all sizes, up to the maximum."""

UNITS = st.integers(1, 2**60)


@given(UNITS)
def test_half_of_a_weight_in_whole_units_is_exact(units: int) -> None:
    if units >= WEIGHT_MIN:
        assert half(units * UNIT) == units // 2 * UNIT
    assert 0 <= units * UNIT - 2 * half(units * UNIT) <= 2 * UNIT


@given(QUANTA)
def test_a_coarse_weight_is_exact_to_a_thousandth(weight: int) -> None:
    result = coarse(weight)
    assert 0 < result <= weight and (weight - result) << 10 < weight
    assert coarse(result) == result


@given(QUANTA)
def test_a_coarse_weight_has_a_short_encoding(weight: int) -> None:
    assert len(str(in_units(coarse(weight)))) < 26


@given(st.just(0) | QUANTA)
def test_a_weight_shown_in_units_is_parsed_exactly(weight: int) -> None:
    text = in_units(weight)
    assert from_units(text) == from_units(str(text)) == weight
    assert isinstance(text, int) == (weight % UNIT == 0)
    number, _, twos = str(text).partition("/2^")
    assert Fraction(int(number), 2 ** int(twos or 0)) == Fraction(weight, UNIT)


def test_whole_units_are_shown_as_numbers_and_others_as_fractions() -> None:
    assert (in_units(0), in_units(5 * UNIT), in_units(ONE)) == (0, 5, 2**40)
    assert in_units(5 * UNIT // 2**30) == "5/2^30" and in_units(1) == "1/2^960"
    assert in_units(3 * UNIT // 2) == in_units(6 * UNIT // 4) == "3/2^1"
    assert from_units(2**70) == 2**70 * UNIT
    assert in_floats([3 * UNIT, 0, 5 * UNIT]) == ([3.0, 0.0, 5.0], 8.0)
    assert founders(ONE // 4) == 0.25 and founders(2**23 * ONE) == 2**23
    assert founders(1) == 2.0**-1000


@given(st.just(0) | QUANTA)
def test_an_encoded_weight_is_decoded_exactly(weight: int) -> None:
    encoded = encode_weight(weight)
    assert decode_weight(encoded) == weight
    assert encoded == weight // UNIT if weight % UNIT == 0 else isinstance(encoded, bytes)


def test_units_beyond_the_maximum_are_encoded_as_bytes() -> None:
    assert encode_weight(7 * UNIT, units_max=7) == 7
    encoded = encode_weight(8 * UNIT, units_max=7)
    assert isinstance(encoded, bytes) and decode_weight(encoded) == 8 * UNIT


@pytest.mark.parametrize(
    "text",
    [
        -1,
        True,
        1.0,
        None,
        "",
        "-1",
        "+1",
        "01",
        "1.5",
        " 1",
        "1 ",
        "1_0",
        "\u0661",
        b"1",
        "4/2^3",
        "0/2^1",
        "1/2^0",
        "1/2^961",
        "1/2^01",
        "1/2",
        "1/8",
        "2^3",
        "1/2^",
        "/2^3",
        "1/2^-3",
        "-1/2^3",
        "1" * 401,
        "1/2^1000",
        ["1"],
    ],
)
def test_invalid_or_noncanonical_weights_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a weight in units"):
        from_units(text)


@given(QUANTA)
def test_a_token_is_a_unit_or_a_small_part_of_the_held_weight(weight: int) -> None:
    result = token(weight)
    assert result == UNIT if weight >= 2**11 * UNIT else result << 11 <= max(weight, 2**11)
    assert 0 < result <= weight


@given(st.lists(st.just(0) | QUANTA, min_size=1).filter(any), st.integers(0, 960))
def test_means_do_not_depend_on_the_scale_of_the_weights(weights: list[int], twos: int) -> None:
    floats, total = in_floats(weights)
    assert max(floats) >= 0.5 and abs(sum(floats) - total) <= 1e-15 * len(weights) * total
    if max(weights) << twos <= WEIGHT_MAX:
        others, other = in_floats([weight << twos for weight in weights])
        assert [each / other for each in others] == [each / total for each in floats]


@given(st.just(0) | QUANTA, QUANTA)
def test_the_mixing_fraction_is_the_correctly_rounded_quotient(own: int, accepted: int) -> None:
    assert mixing_fraction(own, accepted) == float(Fraction(accepted, own + accepted))
    assert mixing_fraction(0, 1) == 1.0, "a newcomer adopts its first share"
