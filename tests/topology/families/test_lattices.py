"""Families with simple definitions, compared with networkx and arithmetic."""

from math import ceil, log2

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import over, parse

from ..samples import dense, ids, out_degrees

sizes = st.integers(1, 200)
sides = st.tuples(st.integers(2, 6), st.integers(2, 6))


def simple(graph: nx.Graph) -> nx.Graph:
    """Number the nodes in order and keep each edge once."""
    return nx.Graph(nx.convert_node_labels_to_integers(graph, ordering="sorted"))


def matches(spec: str, expected: nx.Graph, n: int | None = None) -> bool:
    n = len(expected) if n is None else n
    return {frozenset(edge) for edge in parse(spec, n).graph().edges} == {
        frozenset(edge) for edge in simple(expected).edges if edge[0] != edge[1]
    }


def test_named_graphs_match_networkx() -> None:
    for n in (1, 2, 3, 4, 9, 16):
        assert matches("ring", nx.cycle_graph(n))
        assert matches("path", nx.path_graph(n))
        assert matches("star", nx.star_graph(n - 1))
        assert matches("complete", nx.complete_graph(n))
    for dimensions in range(6):
        expected = nx.hypercube_graph(dimensions) if dimensions else nx.empty_graph(1)
        assert matches("hypercube", expected)
    for height in range(5):
        assert matches("tree", nx.balanced_tree(2, height))


@given(sides)
def test_grids_and_tori_match_networkx(shape: tuple[int, int]) -> None:
    rows, columns = shape
    spec = f"rows={rows},cols={columns}"
    assert matches(f"grid:{spec}", nx.grid_2d_graph(rows, columns))
    assert matches(f"torus:{spec}", nx.grid_2d_graph(rows, columns, periodic=True))


@pytest.mark.parametrize(("n", "rows"), [(4, 2), (12, 3), (16, 4), (22, 2), (36, 6), (40, 5)])
def test_the_default_torus_is_as_square_as_possible(n: int, rows: int) -> None:
    explicit = parse(f"torus:rows={rows}", n)
    assert nx.utils.graphs_equal(parse("torus", n).graph(), explicit.graph())


@given(sizes)
def test_exponential_neighbors_are_at_ascending_powers_of_two(n: int) -> None:
    exponential = parse("exponential", n)
    powers = [2**power for power in range(ceil(log2(n)))]
    for node in (0, n // 2, n - 1):
        assert [(other - node) % n for other in exponential.neighbors(node)] == powers


@given(sizes, st.integers(0, 100))
def test_one_peer_exponential_uses_the_exponential_neighbors_in_turn(n: int, round: int) -> None:
    all_neighbors = parse("exponential", n).neighbors(n - 1)
    one = parse("one-peer-exponential", n).neighbors(n - 1, round)
    assert one == (all_neighbors[round % len(all_neighbors)],) if n > 1 else one == ()


def test_two_nodes_push_to_each_other_in_every_family() -> None:
    specs = ["ring", "path", "star", "complete", "tree", "hypercube", "exponential", "base-k"]
    specs += ["one-peer-exponential", "hypercube-matching", "random-matching", "equi-static:m=1"]
    for spec in specs:
        assert [parse(spec, 2).neighbors(node) for node in (0, 1)] == [(1,), (0,)]
        assert np.allclose(dense(parse(spec, 2)), 1 / 2)


@pytest.mark.parametrize("n", range(1, 41))
def test_a_live_grid_has_equal_rows_except_the_last(n: int) -> None:
    for spec in ("grid", "grid:cols=3", "grid:rows=4"):
        graph = over(spec, 0, ids(n)).graph()
        steps = {abs(a - b) for a, b in graph.edges}
        assert len(steps - {1}) <= 1
        columns = max(steps, default=1)
        for a, b in graph.edges:
            assert b - a == columns or a // columns == b // columns
        assert graph.number_of_edges() == (n - ceil(n / columns)) + (n - columns) or columns == 1


@pytest.mark.parametrize("n", [5, 7, 11, 13, 23, 37, 61, 97])
def test_a_live_torus_of_prime_size_has_degree_four_and_short_paths(n: int) -> None:
    torus = over("torus", 0, ids(n))
    assert set(out_degrees(torus)) == {4}
    assert nx.diameter(torus.graph()) <= n**0.5


@pytest.mark.parametrize("n", [*range(1, 18), 31, 32, 33, 50, 63, 64])
def test_an_incomplete_hypercube_lacks_only_the_missing_nodes(n: int) -> None:
    dimensions = ceil(log2(n))
    cube = over("hypercube", 0, ids(n))
    whole = simple(nx.hypercube_graph(dimensions)) if dimensions else nx.empty_graph(1)
    assert set(map(frozenset, cube.graph().edges)) == {
        frozenset(edge) for edge in whole.edges if max(edge) < n
    }
    assert max(out_degrees(cube)) <= dimensions and nx.diameter(cube.graph()) <= dimensions


@pytest.mark.parametrize(("spec", "n", "rounds"), [("moshpit", 25, 2), ("moshpit:d=3", 64, 3)])
def test_a_full_moshpit_is_exact_after_a_round_of_each_axis(spec: str, n: int, rounds: int) -> None:
    topology = parse(spec, n, seed=3)
    assert topology.period == rounds
    product = np.linalg.multi_dot([dense(topology, round) for round in range(rounds)])
    assert np.allclose(product, 1 / n, rtol=0, atol=1e-15)


def test_lines_of_a_moshpit_average_their_nodes() -> None:
    topology = parse("moshpit:side=8", 30, seed=1)
    for round in range(2):
        matrix = dense(topology, round)
        sizes = {tuple(np.flatnonzero(row)): row.max() for row in matrix}
        assert sorted(node for line in sizes for node in line) == list(range(30))
        assert all(share == pytest.approx(1 / len(line)) for line, share in sizes.items())
    # Other seeds use other cells.
    assert not np.array_equal(dense(topology), dense(parse("moshpit:side=8", 30, seed=2)))


def test_a_moshpit_with_too_many_cells_uses_one_connected_line() -> None:
    topology = parse("moshpit:side=50", 4)
    assert out_degrees(topology, 0) == [3, 3, 3, 3]
    assert out_degrees(topology, 1) == [0, 0, 0, 0]
