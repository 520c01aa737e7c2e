"""Where a picture of a graph puts each node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from types import MappingProxyType

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .builders import host_sizes
from .hosts import resize
from .spec import read
from .topology import Topology

__all__ = ["Placement", "place"]

Points = NDArray[np.float64]

# Nodes beyond which a path goes to and fro, as no line of them fits a square.
LINE_MAX = 10

# Nodes of a tree beyond which it has more room around its root.
TREE_MAX = 32

# Nodes beyond which springs are let loose instead of solving for all distances at once.
EXACT_MAX = 256

# Squares of squares of squares: each is larger than those it consists of, and turned a little
# against them, so that no edge runs through a node.
SQUARE_GROWS = 2.2
SQUARE_TURNS = -0.35

# The dimension that an odd number leaves over makes squares cubes.
OBLIQUE = (0.42, 0.30)


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """Nodes on paper, in no particular unit; y points up."""

    points: Points
    """float64, axes ``(node, x and y)``."""

    groups: tuple[tuple[int, ...], ...] = ()
    """Nodes that stand together and get a common ground, as those of one host."""

    reach: float = float("inf")
    """Edges longer than that along an axis go around the border of the paper."""


def place(topology: Topology) -> Placement:
    """Place the nodes as the family's layout says."""
    return _PLACERS[topology.layout](topology)


def _circle(topology: Topology) -> Placement:
    return Placement(points=_around(topology.n))


def _star(topology: Topology) -> Placement:
    return Placement(points=np.concatenate([np.zeros((1, 2)), _around(topology.n - 1)]))


def _line(topology: Topology) -> Placement:
    columns = topology.n if topology.n <= LINE_MAX else isqrt(topology.n - 1) + 1
    points = _rows(topology.n, columns)
    # To and fro, so that neighbors on the path are neighbors on paper.
    back = points[:, 1] % 2 == 1
    points[back, 0] = columns - 1 - points[back, 0]
    return Placement(points=points)


def _grid(topology: Topology) -> Placement:
    return Placement(points=_rows(topology.n, _columns(topology)), reach=1.5)


def _columns(topology: Topology) -> int:
    """How long a row is: the lattices are numbered row by row."""
    ahead = topology.neighbors(0)
    if read(topology.spec).name == "torus":
        # The farther half is behind.
        ahead = tuple(other for other in ahead if 2 * other <= topology.n)
    return max(ahead, default=1)


def _hypercube(topology: Topology) -> Placement:
    dimensions = (topology.n - 1).bit_length()
    axes = [OBLIQUE] if dimensions % 2 else []
    for level in range(dimensions // 2):
        size, turn = SQUARE_GROWS**level, SQUARE_TURNS * level
        across, up = size * np.cos(turn), size * np.sin(turn)
        axes += [(across, up), (-up, across)]
    bits = np.arange(topology.n)[:, None] >> np.arange(dimensions) & 1
    return Placement(points=bits @ np.array(axes).reshape(-1, 2))


def _tree(topology: Topology) -> Placement:
    graph = topology.graph()
    root = min(nx.center(graph))
    tree = nx.bfs_tree(graph, root, sort_neighbors=sorted)
    depth = nx.shortest_path_length(tree, root)
    points = np.zeros((topology.n, 2))
    leaves = 0
    for node in nx.dfs_postorder_nodes(tree, root):
        below = list(tree.successors(node))
        points[node, 0] = np.mean([points[child, 0] for child in below]) if below else leaves
        leaves += not below
        points[node, 1] = -depth[node]
    if topology.n > TREE_MAX:
        return Placement(points=_rolled_up(points, leaves))
    # As high as wide, or nearly.
    points[:, 1] *= 0.9 * max(leaves - 1, 1) / max(*depth.values(), 1)
    return Placement(points=points)


def _rolled_up(points: Points, leaves: int) -> Points:
    """The root in the middle and the leaves around it."""
    return _around(leaves, at=points[:, 0]) * -points[:, 1:]


def _hosts(topology: Topology) -> Placement:
    sizes = resize(host_sizes(read(topology.spec).values), topology.n)
    centers = _around(len(sizes)) if len(sizes) > 1 else np.zeros((1, 2))
    # Nodes stand equally apart in all hosts, and the largest two hosts do not touch.
    radii = np.array([1 / (2 * np.sin(np.pi / size)) if size > 1 else 0.4 for size in sizes])
    room = 2 * np.sin(np.pi / len(sizes)) if len(sizes) > 1 else 4.0
    radii *= 0.31 * room / max(radii)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    # The first nodes, which are those with links to other hosts, look to the middle.
    inside = [
        center + radius * _around(size, turn=index / len(sizes) + 0.5) if size > 1 else center[None]
        for index, (center, radius, size) in enumerate(zip(centers, radii, sizes, strict=True))
    ]
    groups = tuple(tuple(range(start, end)) for start, end in pairwise(bounds.tolist()))
    return Placement(points=np.concatenate(inside), groups=groups)


def _spring(topology: Topology) -> Placement:
    graph = topology.graph()
    if topology.n <= EXACT_MAX:
        # Weights are what is drawn, not how long an edge is.
        placed = nx.kamada_kawai_layout(graph, weight=None)
    else:
        placed = nx.spring_layout(graph, weight=None, seed=0)
    return Placement(points=np.array([placed[node] for node in range(topology.n)]))


def _around(count: int, turn: float = 0.0, at: Points | None = None) -> Points:
    """Clockwise from the top, on a circle of radius 1 with so many places: all, or those *at*."""
    places = np.arange(count) if at is None else at
    angles = 2 * np.pi * (places / max(count, 1) + turn)
    return np.stack([np.sin(angles), np.cos(angles)], axis=1)


def _rows(n: int, columns: int) -> Points:
    nodes = np.arange(n)
    return np.stack([nodes % columns, -(nodes // columns)], axis=1).astype(np.float64)


_PLACERS: Mapping[str, Callable[[Topology], Placement]] = MappingProxyType(
    {
        "circle": _circle,
        "star": _star,
        "line": _line,
        "grid": _grid,
        "hypercube": _hypercube,
        "tree": _tree,
        "hosts": _hosts,
        "spring": _spring,
    }
)
