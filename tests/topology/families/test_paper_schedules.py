"""Schedules match the definitions in their papers."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rumor.topology import parse
from rumor.topology.families.equitopo import ETA, BasisMatching, BasisPush, draw_shifts, equi_static

from ..samples import dense, is_uniform, out_degrees, product

Matrix = NDArray[np.float64]


def is_mean(matrix: Matrix) -> bool:
    """Return whether all nodes get the exact average."""
    return bool(np.allclose(matrix, 1 / len(matrix), rtol=0, atol=1e-12))


# Takezawa, Sato, Bao, Niwa and Yamada, NeurIPS 2023: the Base-(k+1) graph.


@pytest.mark.parametrize(
    ("k", "n", "rounds"),
    [(1, 8, 3), (2, 9, 2), (2, 18, 3), (3, 64, 3), (3, 48, 3), (4, 30, 3), (5, 30, 2)],
)
def test_base_k_uses_one_round_per_factor_of_at_most_k_plus_1(k: int, n: int, rounds: int) -> None:
    """Algorithm 1 with the smallest number of factors."""
    assert parse(f"base-k:k={k}", n).period == rounds


# Ying, Yuan, Chen, Hu, Pan and Yin, NeurIPS 2021: exponential graphs.


@pytest.mark.parametrize(("p", "k"), [(1, 4), (2, 1), (2, 3), (3, 2), (3, 3), (4, 2), (5, 2)])
def test_p_peer_exponential_is_exact_after_k_rounds_for_p_plus_1_to_the_k(p: int, k: int) -> None:
    topology = parse(f"p-peer-exponential:p={p}", (p + 1) ** k)
    assert topology.period == k
    assert all(out_degrees(topology, round) == [p] * topology.n for round in range(k))
    for first in range(k):
        assert is_mean(product(topology, range(first, first + k)))


@pytest.mark.parametrize("k", range(1, 7))
def test_hypercube_matching_pairs_i_with_i_xor_2_to_the_t(k: int) -> None:
    topology = parse("hypercube-matching", 2**k)
    for round in range(2 * k):
        expected = [(node ^ 2 ** (round % k),) for node in range(2**k)]
        assert [topology.neighbors(node, round) for node in range(2**k)] == expected
        assert np.array_equal(dense(topology, round), dense(topology, round).T)


# Song, Li, Jin, Shi, Yan, Yin and Yuan, NeurIPS 2022: EquiTopo.


def basis(n: int, shift: int) -> Matrix:
    """Return A(u): (n-1)/n of the value u positions behind, and 1/n of the node's own value."""
    nodes = np.arange(n)
    matrix = np.eye(n) / n
    matrix[(nodes + shift) % n, nodes] += (n - 1) / n
    return matrix


shifts_of = st.integers(2, 30).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n - 1), min_size=1).map(tuple))
)


@given(shifts_of)
def test_equi_static_is_the_mean_of_its_basis_matrices(drawn: tuple[int, tuple[int, ...]]) -> None:
    n, shifts = drawn
    mean = np.mean([basis(n, shift) for shift in shifts], axis=0)
    directed = equi_static(n, shifts, one_way=True).matrix(0).toarray()
    assert np.allclose(directed, mean, rtol=0, atol=1e-12)
    undirected = equi_static(n, shifts, one_way=False).matrix(0).toarray()
    assert np.allclose(undirected, (mean + mean.T) / 2, rtol=0, atol=1e-12)


@given(shifts_of, st.integers(0, 1000))
def test_od_equi_dyn_uses_one_basis_matrix_each_round(
    drawn: tuple[int, tuple[int, ...]], round: int
) -> None:
    n, shifts = drawn
    matrix = BasisPush(n=n, shifts=shifts, seed=7).matrix(round).toarray()
    choices = [(1 - ETA) * np.eye(n) + ETA * basis(n, shift) for shift in shifts]
    assert any(np.allclose(matrix, choice, rtol=0, atol=1e-12) for choice in choices)


def test_od_equi_dyn_uses_each_of_its_shifts() -> None:
    topology = parse("od-equi-dyn:m=5", 30)
    assert len({topology.neighbors(0, round) for round in range(100)}) == 5


def greedy(n: int, shift: int, start: int) -> dict[int, int]:
    """Algorithm 3: from *start* on, each free node pairs with the node *shift* ahead, if free."""
    partner: dict[int, int] = {}
    for step in range(n):
        node = (start + step) % n
        ahead = (node + shift) % n
        if node not in partner and ahead not in partner:
            partner[node], partner[ahead] = ahead, node
    return partner


@given(shifts_of, st.data())
def test_equi_dyn_pairs_nodes_greedily_along_a_shift(
    drawn: tuple[int, tuple[int, ...]], data: st.DataObject
) -> None:
    n, shifts = drawn
    shift, start = data.draw(st.sampled_from(shifts)), data.draw(st.integers(0, n - 1))
    matching = BasisMatching(n=n, shifts=shifts, seed=0)
    pairs = greedy(n, shift, start)
    expected = np.eye(n)
    for node, partner in pairs.items():
        expected[node, node] -= ETA * (n - 1) / n
        expected[node, partner] += ETA * (n - 1) / n
    assert np.allclose(matching.matching(shift, start).toarray(), expected, rtol=0, atol=1e-12)
    partners = matching.partners(shift, start, np.arange(n))
    assert partners.tolist() == [pairs.get(node, node) for node in range(n)]


def test_equi_dyn_draws_each_shift_and_each_start() -> None:
    topology = parse("equi-dyn:m=3", 10)
    assert isinstance(topology.schedule, BasisMatching)
    shifts = topology.schedule.shifts
    possible = {
        tuple(sorted(greedy(10, shift, start).items())) for shift in shifts for start in range(10)
    }
    drawn_pairings = {
        tuple((node, *topology.neighbors(node, round)) for node in range(10))
        for round in range(400)
    }
    assert {tuple(pair for pair in pairs if len(pair) == 2) for pairs in drawn_pairings} == possible


@given(st.integers(2, 200), st.data())
def test_shifts_are_distinct_and_connect_the_cycle(n: int, data: st.DataObject) -> None:
    m, seed = data.draw(st.integers(1, min(n - 1, 12))), data.draw(st.integers(0, 999))
    shifts = draw_shifts(n, m, seed)
    assert len(set(shifts)) == m and set(shifts) <= set(range(1, n))
    assert np.gcd.reduce([n, *shifts]) == 1


def test_all_shifts_are_equally_likely() -> None:
    drawn = Counter(shift for seed in range(3000) for shift in draw_shifts(13, 4, seed))
    assert set(drawn) == set(range(1, 13)) and is_uniform(drawn, 12)


def test_one_more_node_changes_few_shifts() -> None:
    def positions(n: int) -> set[int]:
        """Return the shifts as signed positions."""
        shifts = draw_shifts(n, 6, 0)
        return {shift if shift <= n / 2 else shift - n for shift in shifts}

    changed = [len(positions(n + 1) - positions(n)) for n in range(20, 120)]
    assert sum(changed) < 0.1 * 6 * 100
