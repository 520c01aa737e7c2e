"""Random draws are pure functions of their keys."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology.hashing import blend, distinct, key, shuffled

from .samples import is_uniform

words = st.integers(0, 2**64 - 1)


def test_draws_never_change_between_versions() -> None:
    assert key(0) == 0x75DFCD439D7D2B84
    assert key(7, "peer", "ada") == 0xE674AD92561F1214
    assert int(blend(1, 2)[0]) == 0xBCD9DBB49673066B
    assert shuffled(key(7, "x", 3), 6).tolist() == [1, 5, 4, 3, 2, 0]


def test_every_order_is_equally_likely() -> None:
    orders = Counter(tuple(shuffled(key(0, draw), 4).tolist()) for draw in range(2400))
    assert is_uniform(orders, 24)


@given(st.lists(st.one_of(st.text(st.characters(codec=None)), st.integers()), max_size=4), words)
def test_a_key_is_a_number_of_64_bits_for_any_labels(labels: list[str | int], seed: int) -> None:
    assert 0 <= key(seed, *labels) < 2**64 and key(seed, *labels) == key(seed, *labels)


def test_different_labels_give_different_keys() -> None:
    keys = [key(0, *labels) for labels in (("ab", "c"), ("a", "bc"), ("abc",), ("ab", "c", ""))]
    assert len({*keys, key(1, "abc")}) == 5


@given(words, words, st.integers(0, 63))
def test_every_input_bit_changes_a_blended_word(one: int, other: int, bit: int) -> None:
    before, after = int(blend(one, other)[0]), int(blend(one ^ (1 << bit), other)[0])
    assert 8 <= (before ^ after).bit_count() <= 56
    assert one == other or blend(one, other)[0] != blend(other, one)[0]


@given(st.integers(1, 40), st.data())
def test_drawn_numbers_are_distinct_and_from_the_population(
    population: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, population))
    drawn = data.draw(st.lists(words, min_size=count, max_size=count))
    numbers = distinct([np.array([word], np.uint64) for word in drawn], population)
    assert numbers.shape == (1, count) and numbers.dtype == np.int64
    assert len(set(numbers[0])) == count and set(numbers[0]) <= set(range(population))


@pytest.mark.parametrize(("population", "count"), [(5, 1), (5, 2), (6, 3), (7, 6)])
def test_every_set_is_equally_likely(population: int, count: int) -> None:
    sources = np.arange(20_000, dtype=np.uint64)
    numbers = distinct([blend(number, sources) for number in range(count)], population)
    drawn = Counter(frozenset(row) for row in numbers.tolist())
    kinds = len(list(combinations(range(population), count)))
    assert is_uniform(drawn, kinds)
