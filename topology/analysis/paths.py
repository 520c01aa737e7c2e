"""Shortest paths: diameter, articulation points and bridges."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from ..schedules.cayley import Cayley
from ..schedules.mixing import adjacency
from ..schedules.schedule import Schedule

__all__ = ["Paths", "paths"]

Cuts = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """Connectivity and distances of a graph; the fields are those of `Facts`."""

    connected: bool
    diameter: int | None
    articulation_points: tuple[int, ...] = ()
    bridges: tuple[tuple[int, int], ...] = ()


def paths(schedule: Schedule) -> Paths:
    """Analyze the graph of round 0; its other rounds are ignored."""
    if schedule.n == 1:
        return Paths(connected=True, diameter=0)
    if isinstance(schedule, Cayley):
        return _vertex_transitive(schedule)
    edges = adjacency(schedule, 0)
    connected = connected_components(edges, connection="strong", return_labels=False) == 1
    points, bridges = _strong_cuts(edges) if schedule.directed else _cuts(edges)
    return Paths(
        connected=connected,
        diameter=_diameter(edges) if connected else None,
        articulation_points=points,
        bridges=bridges,
    )


def _vertex_transitive(schedule: Cayley) -> Paths:
    """Analyze by a single search, as the graph looks the same from all nodes."""
    degree = len(schedule.steps(0))
    cuts: tuple[int, ...] = ()
    bridges: tuple[tuple[int, int], ...] = ()
    if degree == schedule.n - 1:
        farthest = 1.0
    else:
        farthest = float(dijkstra(adjacency(schedule, 0), indices=0, unweighted=True).max())
    connected = bool(np.isfinite(farthest))
    # A vertex-transitive graph of degree d has d edge-disjoint paths and (d + 1) / 2 node-disjoint
    # ones between any two nodes (Mader 1971; Hamidoune 1977), so that a loss splits only two nodes,
    # or a directed cycle.
    if connected and degree == 1:
        bridges = tuple((node, schedule.out(node, 0)[0]) for node in range(schedule.n))
        cuts = tuple(range(schedule.n)) if schedule.n > 2 else ()
        if not schedule.directed:
            bridges = bridges[:1]
    return Paths(
        connected=connected,
        diameter=int(farthest) if connected else None,
        articulation_points=cuts,
        bridges=bridges,
    )


def _diameter(edges: csr_array) -> int:
    """Return the diameter of a strongly connected graph, with 64 searches at once in each word."""
    n = edges.shape[0]
    reached = np.zeros((n, -(-n // 64)), np.uint64)
    nodes = np.arange(n)
    reached[nodes, nodes // 64] = np.uint64(1) << (nodes % 64).astype(np.uint64)
    everybody = np.bitwise_or.reduce(reached, axis=0)
    into = edges.T.tocsr()
    rounds = 0
    while not (reached == everybody).all():
        reached |= np.bitwise_or.reduceat(reached[into.indices], into.indptr[:-1], axis=0)
        rounds += 1
    return rounds


def _cuts(edges: csr_array) -> Cuts:
    graph = nx.from_scipy_sparse_array(edges)
    # Each bridge with the smaller end first, as in a sorted list of edges.
    bridges = (tuple(sorted(bridge)) for bridge in nx.bridges(graph))
    return tuple(sorted(nx.articulation_points(graph))), tuple(sorted(bridges))


def _strong_cuts(edges: csr_array) -> Cuts:
    """Return the nodes and edges of a digraph that are on all paths between some pair of nodes.

    Source: Italiano, Laura and Santaroni, Theoretical Computer Science 2012: dominators.
    """
    graph = nx.from_scipy_sparse_array(edges, create_using=nx.DiGraph)
    if not nx.is_strongly_connected(graph):
        return (), ()
    # Each edge gets a node in its middle.
    halves = nx.DiGraph()
    for a, b in graph.edges:
        nx.add_path(halves, [a, (a, b), b])
    cuts = _dominators(halves) | _dominators(halves.reverse(copy=False))
    graph.remove_node(0)
    if not nx.is_strongly_connected(graph):
        cuts.add(0)
    nodes = tuple(sorted(cut for cut in cuts if not isinstance(cut, tuple)))
    return nodes, tuple(sorted(cut for cut in cuts if isinstance(cut, tuple)))


Place = int | tuple[int, int]
"""A node, or the middle of an edge."""


def _dominators(graph: nx.DiGraph) -> set[Place]:
    """Return places other than node 0 that are on all paths from node 0 to some node."""
    above: dict[Place, Place] = nx.immediate_dominators(graph, 0)
    # networkx leaves out the root, or maps it to itself: this changed in version 3.6.
    found = {above.get(node, 0) for node in graph if not isinstance(node, tuple)}
    rest = [*found]
    while rest:
        place = above.get(rest.pop(), 0)
        if place not in found:
            found.add(place)
            rest.append(place)
    return found - {0, None}
