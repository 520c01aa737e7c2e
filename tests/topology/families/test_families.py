"""What holds for every family, at every size it can have."""

from collections.abc import Callable, Iterable, Mapping
from math import ceil, log2

import networkx as nx
import numpy as np
import pytest

from rumor.topology import FAMILIES, Topology, TopologyError, parse
from rumor.topology.families.family import Values, whole
from rumor.topology.spec import read

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
def test_a_mixing_matrix_takes_what_there_is_and_alike_from_both_where_links_go_both_ways(
    spec: str, n: int
) -> None:
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
def test_neighbors_graph_and_matrix_tell_of_the_same_pushes(spec: str, n: int) -> None:
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
def test_every_node_reaches_every_other_over_the_rounds(spec: str, n: int) -> None:
    assert all(is_connected(parse(spec, n, seed=seed)) for seed in range(3))


@each
def test_rounds_repeat_after_the_period_and_whenever_they_are_asked_for(spec: str, n: int) -> None:
    topology, again = parse(spec, n, seed=7), parse(spec, n, seed=7)
    assert (topology.period is None) == (spec.partition(":")[0] in RANDOM_ROUNDS)
    for round in (2**64, 5, 0):
        later = round + (topology.period or 0)
        pushes = [topology.neighbors(node, round) for node in range(n)]
        assert [again.neighbors(node, later) for node in reversed(range(n))] == pushes[::-1]
        assert np.array_equal(dense(topology, round), dense(again, later))


@pytest.mark.extended
@each
def test_nodes_push_to_as_many_others_as_the_family_says(spec: str, n: int) -> None:
    topology, asked = parse(spec, n, seed=7), read(spec)
    if asked.name in DEGREES:
        allowed = DEGREES[asked.name](n, asked.values)
        for round in some_rounds(topology):
            assert set(out_degrees(topology, round)) <= set(allowed)


def cases(name: str) -> list[Topology]:
    """Of one family."""
    return [parse(spec, n, seed=7) for spec, n in FIXED if spec.partition(":")[0] == name]


def _most(name: str) -> Callable[[int, Values], range]:
    return lambda n, given: range(min(n, whole(given, name) + 1))


def _exactly(name: str) -> Callable[[int, Values], list[int]]:
    return lambda n, given: [min(n - 1, whole(given, name))]


def _groups(n: int, given: Values) -> set[int]:
    count = ceil(n / whole(given, "m"))
    return {n // count - 1, ceil(n / count) - 1}


DEGREES: Mapping[str, Callable[[int, Values], Iterable[float]]] = {
    "ring": lambda n, _: [min(2, n - 1)],
    "path": lambda n, _: [0] if n == 1 else [1, 2],
    "star": lambda n, _: [0] if n == 1 else [1, n - 1],
    "complete": lambda n, _: [n - 1],
    "grid": lambda n, _: [0] if n == 1 else [2, 3, 4],
    "torus": lambda n, _: [2, 3, 4],
    "hypercube": lambda n, _: [log2(n)],
    "moshpit": lambda n, given: range(min(n, int(given.get("side", n)))),
    "tree": lambda n, _: [0] if n == 1 else [1, 2, 3],
    "exponential": lambda n, _: [ceil(log2(n))],
    "one-peer-exponential": lambda n, _: [min(1, n - 1)],
    "p-peer-exponential": _most("p"),
    "hypercube-matching": lambda n, _: [min(1, n - 1)],
    "base-k": _most("k"),
    "random-regular": _exactly("d"),
    "random-matching": lambda n, _: [0, 1],
    "random-groups": _groups,
    "epidemic": _exactly("s"),
    "epidemic-local": _exactly("s"),
    "d-equi-static": _exactly("m"),
    "equi-static": lambda n, given: range(min(n, 2 * whole(given, "m") + 1)),
    "equi-dyn": lambda n, _: [0, 1],
    "od-equi-dyn": lambda n, _: [min(1, n - 1)],
}


def test_in_the_oracle_s_epidemic_everybody_hears_from_as_many_as_it_pushes_to() -> None:
    for topology in cases("epidemic"):
        arrivals = [in_degree for _, in_degree in topology.graph().to_directed().in_degree()]
        assert arrivals == out_degrees(topology)


def test_nobody_sits_out_a_matching_unless_the_number_is_odd() -> None:
    for topology in cases("random-matching"):
        assert all(out_degrees(topology, round).count(0) == topology.n % 2 for round in range(9))


def test_a_spanning_tree_takes_only_links_of_the_graph_that_it_spans() -> None:
    for topology in cases("spanning-tree"):
        inner = parse(topology.spec.partition("of=")[2], topology.n, seed=7)
        linked = np.sum([dense(inner, round) for round in some_rounds(inner)], axis=0)
        assert all(linked[a, b] + linked[b, a] > 0 for a, b in topology.graph().edges)


def test_a_spanning_tree_is_shallow() -> None:
    for inner, n, diameter in (("grid", 25, 8), ("complete", 9, 2), ("ring", 9, 8), ("path", 9, 8)):
        assert nx.diameter(parse(f"spanning-tree:of={inner}", n).graph()) == diameter


def test_rewiring_keeps_the_number_of_links_and_every_newcomer_brings_m() -> None:
    for spec, links in (("small-world:k=6,p=0.5", 12 * 3), ("scale-free:m=3", 3 * (12 - 3))):
        assert all(parse(spec, 12, seed=s).graph().number_of_edges() == links for s in range(9))


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"hosts", "file", "torus"}))
def test_a_lonely_node_has_nobody_and_keeps_all(name: str) -> None:
    spec = f"{name}:of=ring" if name == "spanning-tree" else name
    topology = parse(spec, 1)
    assert topology.neighbors(0) == () and not topology.graph().edges
    assert dense(topology).tolist() == [[1.0]]


ALMOST_ALL = [
    *(("p-peer-exponential:p=6", 7), ("d-equi-static:m=6", 7), ("od-equi-dyn:m=2", 5)),
    *(("epidemic:s=4", 5), ("epidemic:s=3", 5), ("epidemic-local:s=4", 5), ("epidemic-local", 5)),
]
"""Where every node pushes to all others, or to all but one."""


@pytest.mark.parametrize(("spec", "n"), [*FIXED, *ALMOST_ALL])
def test_directed_means_that_some_push_is_not_answered_in_its_round(spec: str, n: int) -> None:
    topology = parse(spec, n)
    one_way = any(
        node not in topology.neighbors(other, round)
        for round in range(topology.period or 12)
        for node in range(n)
        for other in topology.neighbors(node, round)
    )
    assert topology.directed == one_way


@pytest.mark.parametrize("name", FAMILIES)
def test_a_node_or_a_round_that_is_not_there_is_refused(name: str) -> None:
    spec, n = next(case for case in reversed(FIXED) if case[0].partition(":")[0] == name)
    topology = parse(spec, n)
    for node in (-1, n):
        expected = f"with n={n} has no node {node}: nodes are 0 to {n - 1}"
        with pytest.raises(TopologyError, match=expected):
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


def test_every_family_says_in_a_line_what_it_is_and_which_paper_it_is_from() -> None:
    for family in FAMILIES.values():
        for words in (family.summary, family.source, family.fallback):
            assert words and "\n" not in words


TREES = ("path", "star", "tree", "spanning-tree", "scale-free:m=1")


@pytest.mark.parametrize(("spec", "n"), FIXED)
def test_a_graph_is_a_tree_where_networkx_says_so(spec: str, n: int) -> None:
    topology = parse(spec, n)
    edges = dense(topology) != 0
    is_tree = bool((edges == edges.T).all()) and nx.is_tree(
        nx.from_numpy_array(edges & ~np.eye(n, dtype=bool))
    )
    if topology.period == 1 or n == 1:
        assert topology.is_tree == is_tree
    assert topology.is_tree or not spec.startswith(TREES)
