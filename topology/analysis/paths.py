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
    connected = _is_strong(edges)
    points, bridges = _strong_cuts(edges) if schedule.directed else _cuts(edges)
    return Paths(
        connected=connected,
        diameter=int(dijkstra(edges, unweighted=True).max()) if connected else None,
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


def _cuts(edges: csr_array) -> Cuts:
    graph = nx.from_scipy_sparse_array(edges)
    # Each bridge with the smaller end first, as in a sorted list of edges.
    bridges = (tuple(sorted(bridge)) for bridge in nx.bridges(graph))
    return tuple(sorted(nx.articulation_points(graph))), tuple(sorted(bridges))


def _strong_cuts(edges: csr_array) -> Cuts:
    """Return the nodes and edges of a digraph that are on all paths between some pair of nodes."""
    if not _is_strong(edges):
        return (), ()
    nodes = np.arange(edges.shape[0])
    points = [
        node for node in nodes.tolist() if not _is_strong(edges[nodes != node][:, nodes != node])
    ]
    bridges = []
    sources, targets = edges.nonzero()
    for number, link in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        rest = np.arange(edges.nnz) != number
        ends = sources[rest], targets[rest]
        if not _is_strong(csr_array((np.ones(edges.nnz - 1), ends), shape=edges.shape)):
            bridges.append(link)
    return tuple(points), tuple(sorted(bridges))


def _is_strong(edges: csr_array) -> bool:
    count: int = connected_components(edges, connection="strong", return_labels=False)
    return count == 1
