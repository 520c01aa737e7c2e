"""Properties of every family at every supported size."""

import networkx as nx
import numpy as np
import pytest

from rumor.topology import FAMILIES, Topology, TopologyError, parse

from ..samples import (
    DOUBLY,
    FIXED,
    RANDOM_ROUNDS,
    STREETS,
    dense,
    is_connected,
    out_degrees,
    some_rounds,
)

each = pytest.mark.parametrize(("spec", "n"), FIXED)


@each
def test_mixing_matrices_are_stochastic_and_undirected_ones_symmetric(spec: str, n: int) -> None:
    topology = parse(spec, n, seed=7)
    for round in some_rounds(topology):
        matrix = dense(topology, round)
        assert matrix.min() >= 0
        columns = np.allclose(matrix.sum(axis=0), 1, rtol=0, atol=1e-12)
        rows = np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-12)
        if spec.startswith("epidemic-local"):
            assert rows
        elif spec.startswith(STREETS):
            assert columns and not rows
        else:
            assert spec.partition(":")[0] in DOUBLY and rows and columns
        assert topology.directed or np.allclose(matrix, matrix.T, rtol=0, atol=1e-15)


@each
def test_neighbors_match_the_graph_and_the_matrix(spec: str, n: int) -> None:
    topology = parse(spec, n, seed=7)
    for round in some_rounds(topology):
        graph, matrix = topology.graph(round), dense(topology, round)
        assert list(graph) == list(range(n))
        assert graph.is_directed() == topology.directed
        for node in range(n):
            out = topology.neighbors(node, round)
            assert len(set(out)) == len(out)
            assert set(out) == set(graph.adj[node])
            assert set(out) == set(np.flatnonzero(matrix[:, node])) - {node}
            assert all(graph[node][other]["weight"] == matrix[other, node] for other in out)


@pytest.mark.extended
@each
def test_every_node_reaches_every_other_node_over_the_rounds(spec: str, n: int) -> None:
    assert all(is_connected(parse(spec, n, seed=seed)) for seed in range(3))


@each
def test_rounds_repeat_after_the_period_and_at_every_call(spec: str, n: int) -> None:
    topology, again = parse(spec, n, seed=7), parse(spec, n, seed=7)
    assert (topology.period is None) == (spec.partition(":")[0] in RANDOM_ROUNDS)
    for round in (2**64, 5, 0):
        later = round + (topology.period or 0)
        pushes = [topology.neighbors(node, round) for node in range(n)]
        assert [again.neighbors(node, later) for node in reversed(range(n))] == pushes[::-1]
        assert np.array_equal(dense(topology, round), dense(again, later))


def cases(name: str) -> list[Topology]:
    """Return the cases of one family."""
    return [parse(spec, n, seed=7) for spec, n in FIXED if spec.partition(":")[0] == name]


def test_a_node_sits_out_a_matching_only_if_n_is_odd() -> None:
    for topology in cases("random-matching"):
        assert all(out_degrees(topology, round).count(0) == topology.n % 2 for round in range(9))


@pytest.mark.parametrize(
    ("spec", "n", "degree"),
    [
        ("random-regular", 1, 0),
        ("random-regular:d=3", 8, 3),
        ("random-regular:d=8", 12, 8),
        ("epidemic:s=5", 13, 5),
        ("epidemic-local:s=5", 13, 5),
        ("d-equi-static:m=5", 13, 5),
    ],
)
def test_nodes_push_to_the_requested_number_of_others(spec: str, n: int, degree: int) -> None:
    topology = parse(spec, n, seed=7)
    for round in some_rounds(topology):
        assert out_degrees(topology, round) == [degree] * n


@pytest.mark.parametrize(("inner", "n"), [("torus", 12), ("exponential", 13)])
def test_a_spanning_tree_uses_only_links_of_its_graph(inner: str, n: int) -> None:
    linked = dense(parse(inner, n))
    tree = parse(f"spanning-tree:of={inner}", n).graph()
    assert all(linked[a, b] + linked[b, a] > 0 for a, b in tree.edges)


def test_a_spanning_tree_is_shallow() -> None:
    for inner, n, diameter in (("grid", 25, 8), ("complete", 9, 2), ("ring", 9, 8), ("path", 9, 8)):
        assert nx.diameter(parse(f"spanning-tree:of={inner}", n).graph()) == diameter


def test_small_world_and_scale_free_graphs_have_the_expected_link_count() -> None:
    for spec, links in (("small-world:k=6,p=0.5", 12 * 3), ("scale-free:m=3", 3 * (12 - 3))):
        assert all(parse(spec, 12, seed=s).graph().number_of_edges() == links for s in range(9))


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"hosts", "file", "torus"}))
def test_a_single_node_has_no_neighbors_and_keeps_all_weight(name: str) -> None:
    spec = f"{name}:of=ring" if name == "spanning-tree" else name
    topology = parse(spec, 1)
    assert topology.neighbors(0) == () and not topology.graph().edges
    assert dense(topology).tolist() == [[1.0]]


ALMOST_ALL = [
    ("p-peer-exponential:p=6", 7),
    ("d-equi-static:m=6", 7),
    ("od-equi-dyn:m=2", 5),
    ("epidemic:s=4", 5),
    ("epidemic:s=3", 5),
    ("epidemic-local:s=4", 5),
    ("epidemic-local", 5),
]
"""Cases in which every node pushes to all other nodes, or to all but one."""


@pytest.mark.parametrize(("spec", "n"), [*FIXED, *ALMOST_ALL])
def test_a_topology_is_directed_if_some_push_is_not_returned(spec: str, n: int) -> None:
    topology = parse(spec, n)
    one_way = any(
        node not in topology.neighbors(other, round)
        for round in range(topology.period or 12)
        for node in range(n)
        for other in topology.neighbors(node, round)
    )
    assert topology.directed == one_way


@pytest.mark.parametrize("spec", ["ring", "star", "random-matching"])
def test_invalid_nodes_and_rounds_are_refused(spec: str) -> None:
    topology = parse(spec, 4)
    for node in (-1, 4):
        with pytest.raises(TopologyError, match=f"with n=4 has no node {node}: nodes are 0 to 3"):
            topology.neighbors(node)
    for ask in (topology.graph, topology.matrix, lambda round: topology.neighbors(0, round)):
        with pytest.raises(TopologyError, match="round -1 is negative: rounds are counted from 0"):
            ask(-1)


def test_seeds_draw_different_graphs_and_rounds() -> None:
    drawn = ["random-regular", "erdos-renyi", "small-world", "scale-free", "equi-static"]
    for spec in [*drawn, *sorted(RANDOM_ROUNDS)]:
        graphs = {
            str(sorted(parse(spec, 24, seed=seed).graph(round).edges))
            for seed in range(5)
            for round in range(3)
        }
        assert len(graphs) >= 4, spec


TREES = ("path", "star", "tree", "spanning-tree", "scale-free:m=1")


@pytest.mark.parametrize(("spec", "n"), FIXED)
def test_trees_are_recognized_like_in_networkx(spec: str, n: int) -> None:
    topology = parse(spec, n)
    edges = dense(topology) != 0
    is_tree = bool((edges == edges.T).all()) and nx.is_tree(
        nx.from_numpy_array(edges & ~np.eye(n, dtype=bool))
    )
    if topology.period == 1 or n == 1:
        assert topology.is_tree == is_tree
    assert topology.is_tree or not spec.startswith(TREES)
