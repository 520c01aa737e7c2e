"""Shortest and widest paths: diameter, articulation points, bottleneck bandwidths."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from ..errors import TopologyError
from ..schedules.cayley import Cayley
from ..schedules.schedule import Schedule
from ..schedules.union import adjacency
from ..topology import Topology

__all__ = ["Paths", "bottleneck", "paths", "seconds_per_round"]

SWEEPS_MAX = 64
"""Searches from single nodes, before searching from all nodes at once."""

WORDS_MAX = 1e9
"""Words of 64 sources that all searches together may read, in some seconds."""

SOURCES_AT_ONCE = 16 * 64
"""A block of bits that fits the cache at ten thousand nodes."""

ROUNDS_SAMPLED = 16
"""Rounds that stand for all of a random schedule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """Connectivity and distances of a graph."""

    connected: bool
    """Whether every node can reach every other."""

    diameter: int | None
    """Length of the longest shortest path; None where not connected."""

    diameter_exact: bool
    """False where `diameter` is a lower bound that many searches found."""

    articulation_points: tuple[int, ...]
    """Nodes whose loss splits the graph, ascending."""

    bridges: tuple[tuple[int, int], ...]
    """Edges whose loss splits it, ascending; from first to second where directed."""


def paths(schedule: Schedule) -> Paths:
    """Analyze the graph of round 0.

    Args:
        schedule: Any; its other rounds are ignored.
    """
    if schedule.n == 1:
        return Paths(
            connected=True, diameter=0, diameter_exact=True, articulation_points=(), bridges=()
        )
    if isinstance(schedule, Cayley):
        return _vertex_transitive(schedule)
    edges = adjacency(schedule, 0)
    parts, _ = connected_components(edges, connection="strong")
    connected = parts == 1
    diameter, exact = _diameter(edges) if connected else (None, True)
    cuts = _strong_cuts(edges) if schedule.directed else _cuts(edges)
    return Paths(
        connected=connected,
        diameter=diameter,
        diameter_exact=exact,
        articulation_points=cuts[0],
        bridges=cuts[1],
    )


def _vertex_transitive(schedule: Cayley) -> Paths:
    """By a single search, as the graph looks the same from all nodes.

    A connected vertex-transitive graph of degree d has d edge-disjoint paths and (d + 1) / 2
    node-disjoint ones between any two nodes (Mader 1971; Hamidoune 1977, also for digraphs). So a
    loss can split it only at degree 1: two nodes, or a directed cycle.
    """
    degree = len(schedule.steps(0))
    cuts: tuple[int, ...] = ()
    bridges: tuple[tuple[int, int], ...] = ()
    if degree == schedule.n - 1:
        farthest = 1.0
    else:
        farthest = float(dijkstra(adjacency(schedule, 0), indices=0, unweighted=True).max())
    connected = bool(np.isfinite(farthest))
    if connected and degree == 1:
        bridges = tuple((node, schedule.out(node, 0)[0]) for node in range(schedule.n))
        cuts = tuple(range(schedule.n)) if schedule.n > 2 else ()
        if not schedule.directed:
            bridges = bridges[:1]
    return Paths(
        connected=connected,
        diameter=int(farthest) if connected else None,
        diameter_exact=True,
        articulation_points=cuts,
        bridges=bridges,
    )


def _diameter(edges: csr_array) -> tuple[int, bool]:
    """The diameter of a strongly connected graph, and whether it is proved.

    Bounds on each node's eccentricity narrow with each search: Takes and Kosters, CIKM 2011. On
    expanders they do not, and bits for all sources are propagated instead.
    """
    n = edges.shape[0]
    lower, upper = np.zeros(n), np.full(n, np.inf)
    open_nodes = np.ones(n, bool)
    backward = edges.T.tocsr()
    both_ways = (edges != backward).nnz == 0
    is_tree = both_ways and edges.nnz == 2 * (n - 1)
    node = int(np.diff(edges.indptr).argmax())
    for sweep in range(min(SWEEPS_MAX, n)):
        ahead = dijkstra(edges, indices=node, unweighted=True)
        behind = ahead if both_ways else dijkstra(backward, indices=node, unweighted=True)
        farthest = ahead.max()
        lower = np.maximum(lower, np.maximum(farthest - ahead, behind))
        upper = np.minimum(upper, farthest + behind)
        lower[node] = upper[node] = farthest
        longest = lower.max()
        open_nodes &= (upper > longest) & (lower < upper)
        # In a tree, the node farthest from any node is an end of a longest path.
        if not open_nodes.any() or (is_tree and sweep == 1):
            return int(longest), True
        # Alternate between the node that may be farthest out and the one that may be most central.
        node = int(np.where(open_nodes, -lower if sweep % 2 else upper, -np.inf).argmax())
    words = longest * edges.nnz * np.count_nonzero(open_nodes) / 64
    if words <= WORDS_MAX:
        left = np.flatnonzero(open_nodes)
        parts = range(SOURCES_AT_ONCE, len(left), SOURCES_AT_ONCE)
        farthest = max(_eccentricity(edges, part) for part in np.split(left, parts))
        return max(int(longest), farthest), True
    return int(longest), False


def _eccentricity(edges: csr_array, sources: NDArray[np.int64]) -> int:
    """The largest distance from any of some sources, by propagating a bit for each, 64 a word."""
    n = edges.shape[0]
    reached = np.zeros((n, -(-len(sources) // 64)), np.uint64)
    bits = np.arange(len(sources))
    reached[sources, bits // 64] = np.uint64(1) << (bits % 64).astype(np.uint64)
    everybody = np.bitwise_or.reduce(reached, axis=0)
    into = edges.T.tocsr()
    rounds = 0
    while not (reached == everybody).all():
        heard = np.bitwise_or.reduceat(reached[into.indices], into.indptr[:-1], axis=0)
        reached |= heard
        rounds += 1
    return rounds


def _cuts(edges: csr_array) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    graph = nx.from_scipy_sparse_array(edges)
    # Each bridge with the smaller end first, as in a sorted list of edges.
    bridges = (tuple(sorted(bridge)) for bridge in nx.bridges(graph))
    return tuple(sorted(nx.articulation_points(graph))), tuple(sorted(bridges))


def _strong_cuts(edges: csr_array) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Nodes and edges of a digraph that are on all paths between some pair of nodes.

    Source: Italiano, Laura and Santaroni, Theoretical Computer Science 2012: dominators.
    """
    graph = nx.from_scipy_sparse_array(edges, create_using=nx.DiGraph)
    if not nx.is_strongly_connected(graph):
        return (), ()
    # Each edge gets a node in its middle.
    halves = nx.DiGraph()
    for a, b in graph.edges:
        halves.add_edge(a, (a, b))
        halves.add_edge((a, b), b)
    cuts = _dominators(halves, 0) | _dominators(halves.reverse(copy=False), 0)
    graph.remove_node(0)
    if not nx.is_strongly_connected(graph):
        cuts.add(0)
    nodes = tuple(sorted(cut for cut in cuts if not isinstance(cut, tuple)))
    return nodes, tuple(sorted(cut for cut in cuts if isinstance(cut, tuple)))


Place = int | tuple[int, int]
"""A node, or the middle of an edge."""


def _dominators(graph: nx.DiGraph, root: int) -> set[Place]:
    """Places other than the root that are on all paths from the root to some node."""
    above: dict[Place, Place] = nx.immediate_dominators(graph, root)
    found: set[Place] = set()
    for node in graph:
        # From each node upward; what is above a place found earlier has been found as well. The
        # root has nothing above it, or itself: networkx changed its mind in version 3.6.
        place = root if isinstance(node, tuple) else above.get(node, root)
        while place != root and place not in found:
            found.add(place)
            place = above[place]
    return found


def bottleneck(bandwidth: csr_array) -> NDArray[np.float64]:
    """Bandwidth between all pairs: of their link, or else of the widest path between them.

    A path is as wide as its narrowest link. On an undirected graph the widest path runs along a
    maximum spanning tree.

    Args:
        bandwidth: Mbit/s of each link, row j: of j's pushes, float64 ``(n, n)``.

    Returns:
        Mbit/s, float64 with axes ``(sender, receiver)``; infinite on the diagonal.

    Raises:
        TopologyError: Some node cannot reach some other.

    Source: Pollack, Operations Research 1960, with Floyd's algorithm, CACM 1962.
    """
    links: NDArray[np.float64] = bandwidth.toarray()
    widest = links.copy()
    np.fill_diagonal(widest, np.inf)
    for via in range(len(widest)):
        np.maximum(widest, np.minimum(widest[:, via, None], widest[via]), out=widest)
    if not widest.all():
        j, i = (int(index) for index in np.argwhere(widest == 0)[0])
        raise TopologyError(f"bandwidths lead no way from node {j} to node {i}")
    return np.where(links > 0, links, widest)


def seconds_per_round(topology: Topology, between: NDArray[np.float64], share_bytes: int) -> float:
    """Mean duration of a round that waits for its slowest push.

    Args:
        topology: Where the pushes come from.
        between: Mbit/s between all pairs, as `bottleneck` gives it.
        share_bytes: Size of one push.
    """
    rounds = range(ROUNDS_SAMPLED if topology.period is None else topology.period)
    slowest = np.zeros(len(rounds))
    for round in rounds:
        receivers, senders = topology.matrix(round).nonzero()
        slowest[round] = between[senders, receivers].min(initial=np.inf)
    return float((share_bytes * 8 / (slowest * 1e6)).mean())
