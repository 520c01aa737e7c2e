"""Random rounds are uniform, and different families draw different rounds."""

from collections import Counter
from itertools import combinations
from math import comb

import numpy as np
import pytest

from rumor.topology import parse

from ..samples import dense, is_uniform


def test_all_pairs_and_all_idle_nodes_are_equally_likely() -> None:
    matching = parse("random-matching", 7)
    rounds = [[matching.neighbors(node, round) for node in range(7)] for round in range(1500)]
    pairs = Counter(
        frozenset((node, other))
        for partners in rounds
        for node, others in enumerate(partners)
        for other in others
        if node < other
    )
    assert is_uniform(pairs, comb(7, 2))
    alone = Counter(partners.index(()) for partners in rounds)
    assert is_uniform(alone, 7)


@pytest.mark.extended
@pytest.mark.parametrize("spec", ["epidemic:s=2", "epidemic-local:s=2"])
def test_all_sets_of_targets_are_equally_likely(spec: str) -> None:
    epidemic = parse(spec, 6)
    targets = Counter(frozenset(epidemic.neighbors(4, round)) for round in range(3000))
    assert set(targets) == {frozenset(pair) for pair in combinations([0, 1, 2, 3, 5], 2)}
    assert is_uniform(targets, comb(5, 2))


def test_random_groups_average_exactly() -> None:
    groups = parse("random-groups:m=4", 10)
    for round in range(20):
        matrix = dense(groups, round)
        assert np.allclose(matrix @ matrix, matrix, rtol=0, atol=1e-12)
        sizes = sorted(len(groups.neighbors(node, round)) + 1 for node in range(10))
        assert sizes == [3, 3, 3, 3, 3, 3, 4, 4, 4, 4]


def test_families_do_not_draw_the_same_rounds() -> None:
    matching, pairs = parse("random-matching", 12), parse("random-groups:m=2", 12)
    assert any(not np.array_equal(dense(matching, r), dense(pairs, r)) for r in range(3))


def test_a_receiver_averages_its_arrivals_in_the_local_epidemic() -> None:
    matrix = dense(parse("epidemic-local:s=3", 12), 5)
    for row in matrix:
        assert np.allclose(row[row > 0], 1 / np.count_nonzero(row))
    assert not np.allclose(matrix.sum(axis=0), 1)
