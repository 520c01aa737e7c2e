"""Families of graphs: out-neighbors, as numbers that can be checked by hand."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import FAMILIES
from rumor.topology.families import CATALOG, complete, exponential, ring

sizes = st.integers(1, 200)
names = st.sampled_from(sorted(FAMILIES))


@st.composite
def nodes(draw: st.DrawFn) -> tuple[int, int]:
    """``(n, node)``"""
    n = draw(sizes)
    return n, draw(st.integers(0, n - 1))


@given(names, nodes())
def test_neighbors_are_other_nodes_each_once(name: str, place: tuple[int, int]) -> None:
    n, node = place
    out = CATALOG[name].out(n, node)
    assert set(out) <= set(range(n)) - {node}
    assert len(set(out)) == len(out)


@given(names, nodes())
def test_only_a_lonely_node_has_nobody_to_push_to(name: str, place: tuple[int, int]) -> None:
    n, node = place
    assert (CATALOG[name].out(n, node) == ()) == (n == 1)


@given(names, sizes)
def test_as_many_nodes_push_to_a_node_as_it_pushes_to(name: str, n: int) -> None:
    out = [CATALOG[name].out(n, node) for node in range(n)]
    arrivals = [0] * n
    for node in (other for others in out for other in others):
        arrivals[node] += 1
    assert arrivals == [len(others) for others in out]


@given(nodes())
def test_a_ring_has_two_neighbors_as_soon_as_it_can(place: tuple[int, int]) -> None:
    n, node = place
    assert len(ring(n, node)) == min(n - 1, 2)
    assert all((node - other) % n in (1, n - 1) for other in ring(n, node))


@given(nodes())
def test_complete_means_all_others(place: tuple[int, int]) -> None:
    n, node = place
    assert complete(n, node) == tuple(other for other in range(n) if other != node)


@given(nodes())
def test_exponential_neighbors_stand_at_powers_of_two(place: tuple[int, int]) -> None:
    n, node = place
    distances = [(other - node) % n for other in exponential(n, node)]
    assert distances == [2**power for power in range(ceil(log2(n)))]


@pytest.mark.parametrize("name", FAMILIES)
def test_two_nodes_push_to_each_other(name: str) -> None:
    assert [CATALOG[name].out(2, node) for node in (0, 1)] == [(1,), (0,)]


@pytest.mark.parametrize("name", ["ring", "exponential"])
def test_one_node_of_a_graph_that_would_fill_any_memory(name: str) -> None:
    assert len(CATALOG[name].out(2**60, 7)) == {"ring": 2, "exponential": 60}[name]
