"""Diameters and cuts, compared with networkx and with removal of each node and link."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rumor.topology import facts, parse
from rumor.topology.analysis.paths import paths
from rumor.topology.schedules.cayley import circulant
from rumor.topology.schedules.mixing import metropolis, uniform
from rumor.topology.schedules.schedule import Fixed


def fixed(graph: nx.Graph) -> Fixed:
    matrix = csr_array(nx.to_scipy_sparse_array(graph, nodelist=range(len(graph)), dtype=float))
    if graph.is_directed():
        return Fixed(rounds=(uniform(matrix),), directed=True)
    return Fixed(rounds=(metropolis(matrix),))


@st.composite
def connected_graphs(draw: st.DrawFn) -> nx.Graph:
    """Draw a random tree with some more links."""
    n = draw(st.integers(2, 14))
    graph = nx.Graph([(node, draw(st.integers(0, node - 1))) for node in range(1, n)])
    more = st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=8)
    graph.add_edges_from((a, b) for a, b in draw(more) if a != b)
    return graph


@st.composite
def strong_digraphs(draw: st.DrawFn) -> nx.DiGraph:
    """Draw cycles that are attached to one another, with some more edges."""
    graph = nx.DiGraph()
    graph.add_node(0)
    for length in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        start = draw(st.integers(0, len(graph) - 1))
        fresh = list(range(len(graph), len(graph) + length))
        nx.add_cycle(graph, [start, *fresh])
    nodes = st.integers(0, len(graph) - 1)
    graph.add_edges_from(
        (a, b) for a, b in draw(st.lists(st.tuples(nodes, nodes), max_size=4)) if a != b
    )
    return graph


@given(connected_graphs())
def test_diameter_and_cuts_match_networkx_for_any_connected_graph(graph: nx.Graph) -> None:
    found = paths(fixed(graph))
    assert found.connected
    assert found.diameter == nx.diameter(graph)
    assert found.articulation_points == tuple(sorted(nx.articulation_points(graph)))
    assert found.bridges == tuple(sorted((min(link), max(link)) for link in nx.bridges(graph)))


@given(strong_digraphs())
@settings(deadline=None)
def test_diameter_and_cuts_match_networkx_for_any_strong_digraph(graph: nx.DiGraph) -> None:
    found = paths(fixed(graph))
    assert found.connected
    assert found.diameter == nx.diameter(graph)
    assert found.articulation_points == tuple(
        node for node in sorted(graph) if splits(graph, nodes=[node])
    )
    assert found.bridges == tuple(link for link in sorted(graph.edges) if splits(graph, [link]))


def splits(
    graph: nx.Graph, links: list[tuple[int, int]] | None = None, nodes: list[int] | None = None
) -> bool:
    rest = graph.copy()
    rest.remove_edges_from(links or ())
    rest.remove_nodes_from(nodes or ())
    check = nx.is_strongly_connected if rest.is_directed() else nx.is_connected
    return len(rest) > 0 and not check(rest)


def test_a_disconnected_graph_has_no_diameter() -> None:
    graph = nx.Graph([(0, 1), (2, 3)])
    found = paths(fixed(graph))
    assert (found.connected, found.diameter) == (False, None)
    directed = paths(fixed(nx.DiGraph([(0, 1), (1, 2)])))
    assert (directed.connected, directed.diameter, directed.bridges) == (False, None, ())


@pytest.mark.parametrize(
    ("spec", "n", "points", "bridges"),
    [
        ("star", 5, [0], 4),
        ("path", 4, [1, 2], 3),
        ("ring", 5, [], 0),
        ("ring", 2, [], 1),
        ("exponential", 2, [], 1),
        ("complete", 1, [], 0),
        ("hosts:sizes=3x3x3,between=path", 9, [0, 3, 4, 6], 2),
        # The loss of any node cuts a one-way cycle.
        ("d-equi-static:m=1", 5, [0, 1, 2, 3, 4], 5),
    ],
)
def test_articulation_points_and_bridges_match_known_graphs(
    spec: str, n: int, points: list[int], bridges: int
) -> None:
    found = facts(parse(spec, n))
    assert ([*found.articulation_points], len(found.bridges)) == (points, bridges)


@given(st.integers(2, 11), st.data())
@settings(deadline=None)
def test_cuts_of_any_circulant_match_removal_of_each_node_and_link(
    n: int, data: st.DataObject
) -> None:
    shifts = data.draw(st.lists(st.integers(1, n - 1), min_size=1, max_size=3, unique=True))
    schedule = circulant(n, [shifts])
    found = paths(schedule)
    graph = nx.DiGraph((node, (node + shift) % n) for node in range(n) for shift in shifts)
    graph = graph if schedule.directed else graph.to_undirected()
    assert schedule.directed is not all(graph.has_edge(b, a) for a, b in graph.edges)
    check = nx.is_strongly_connected if schedule.directed else nx.is_connected
    assert found.connected == check(graph)
    if not found.connected:
        return
    assert found.diameter == nx.diameter(graph)
    assert [node for node in sorted(graph) if splits(graph, nodes=[node])] == list(
        found.articulation_points
    )
    assert {link for link in graph.edges if splits(graph, [link])} == set(found.bridges)
