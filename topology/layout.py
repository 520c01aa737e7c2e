"""Graph layout: where a picture puts each node and each line.

A family names its layout; rows of a grid and hosts come with the topology. `drawing` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from types import MappingProxyType

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .topology import Topology

__all__ = [
    "Links",
    "Placement",
    "links_of",
    "place",
    "wrapped",
]

Points = NDArray[np.float64]
Ints = NDArray[np.int64]

# Nodes beyond which a path runs back and forth, as a line of them would not fit a square.
LINE_MAX = 10

# Nodes of a tree beyond which there is more room around its root.
TREE_MAX = 32

# Nodes beyond which springs are simulated instead of solving for all distances at once.
EXACT_MAX = 256

# Squares of squares of squares: each is larger than those it consists of, and turned a little,
# so that no edge runs through a node.
SQUARE_GROWS = 2.2
SQUARE_TURNS = -0.35

# An odd dimension left over turns squares into cubes.
OBLIQUE = (0.42, 0.30)


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """Positions of nodes, in no particular unit; y points up."""

    points: Points
    """float64, axes ``(node, x and y)``."""

    groups: tuple[tuple[int, ...], ...] = ()
    """Nodes that are drawn on a common background, such as those of one host."""

    reach: float = float("inf")
    """Edges longer than this along an axis wrap around the border of the picture."""

    def on_square(self, side: float, margin: float) -> Placement:
        """The same on a square from 0 to *side*, with a margin on all sides."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        scale = (side - 2 * margin) / max(float((high - low).max()), 1e-9)
        points = (self.points - (low + high) / 2) * scale + side / 2
        return Placement(points=points, groups=self.groups, reach=self.reach * scale)

    def grounds(self, rim: float) -> list[tuple[float, float, float]]:
        """Circles behind the groups, *rim* wider than their nodes: center and radius."""
        found = []
        for group in self.groups:
            points = self.points[list(group)]
            x, y = points.mean(axis=0).tolist()
            found.append((x, y, float(np.linalg.norm(points - (x, y), axis=1).max()) + rim))
        return found


def wrapped(bodies: Points, length: float) -> Points:
    """Both ends of lines that wrap around the border, axes ``(stub, end, x and y)``."""
    starts, ends = bodies[:, 0], bodies[:, 1]
    along = ends - starts
    main = np.abs(along) == np.abs(along).max(axis=1, keepdims=True)
    out = np.sign(along) * main * length
    stubs = np.stack([starts, starts - out], axis=1), np.stack([ends, ends + out], axis=1)
    return np.concatenate(stubs)


def place(topology: Topology) -> Placement:
    """Place the nodes according to the family's layout."""
    return _PLACERS[topology.layout](topology)


def _circle(topology: Topology) -> Placement:
    return Placement(points=_around(topology.n))


def _star(topology: Topology) -> Placement:
    return Placement(points=np.concatenate([np.zeros((1, 2)), _around(topology.n - 1)]))


def _line(topology: Topology) -> Placement:
    columns = topology.n if topology.n <= LINE_MAX else isqrt(topology.n - 1) + 1
    points = _rows(topology.n, columns)
    # Back and forth, so that neighbors on the path are neighbors in the picture.
    back = points[:, 1] % 2 == 1
    points[back, 0] = columns - 1 - points[back, 0]
    return Placement(points=points)


def _grid(topology: Topology) -> Placement:
    return Placement(points=_rows(topology.n, topology.runs[0]), reach=1.5)


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
    # About as high as wide.
    points[:, 1] *= 0.9 * max(leaves - 1, 1) / max(*depth.values(), 1)
    return Placement(points=points)


def _rolled_up(points: Points, leaves: int) -> Points:
    """The root at the center and the leaves around it."""
    return _around(leaves, at=points[:, 0]) * -points[:, 1:]


def _hosts(topology: Topology) -> Placement:
    sizes = topology.runs
    centers = _around(len(sizes)) if len(sizes) > 1 else np.zeros((1, 2))
    # Nodes are equally far apart in all hosts, and the largest two hosts do not touch.
    radii = np.array([1 / (2 * np.sin(np.pi / size)) if size > 1 else 0.4 for size in sizes])
    room = 2 * np.sin(np.pi / len(sizes)) if len(sizes) > 1 else 4.0
    radii *= 0.31 * room / max(radii)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    # The first nodes, which have the links to other hosts, face the center.
    inside = [
        center + radius * _around(size, turn=index / len(sizes) + 0.5) if size > 1 else center[None]
        for index, (center, radius, size) in enumerate(zip(centers, radii, sizes, strict=True))
    ]
    groups = tuple(tuple(range(start, end)) for start, end in pairwise(bounds.tolist()))
    return Placement(points=np.concatenate(inside), groups=groups)


def _spring(topology: Topology) -> Placement:
    graph = topology.graph()
    if topology.n <= EXACT_MAX:
        # Weights are not lengths.
        placed = nx.kamada_kawai_layout(graph, weight=None)
    else:
        placed = nx.spring_layout(graph, weight=None, seed=0)
    return Placement(points=np.array([placed[node] for node in range(topology.n)]))


def _around(count: int, turn: float = 0.0, at: Points | None = None) -> Points:
    """Clockwise from the top of a unit circle with *count* places: all of them, or those *at*."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """Who pushes to whom in one round, each pair of nodes once."""

    low: Ints
    """One end, int64 ``(pair,)``."""

    high: Ints
    """The other end, with the larger number."""

    up: NDArray[np.bool_]
    """Whether low pushes to high."""

    down: NDArray[np.bool_]
    """Whether high pushes to low."""

    values: Points
    """Weight, or Mbit/s where known; the larger one of the two directions."""

    def pairs(self) -> list[tuple[int, int]]:
        """Both ends of each."""
        return list(zip(self.low.tolist(), self.high.tolist(), strict=True))


def links_of(topology: Topology, round: int) -> Links:
    """Read the links of a round off its matrix."""
    matrix = topology.matrix(round).tocoo()
    receivers, senders = (part.astype(np.int64) for part in matrix.coords)
    values = matrix.data
    if topology.bandwidth is not None:
        values = np.asarray(topology.bandwidth[senders, receivers]).ravel()
    off = receivers != senders
    receivers, senders, values = receivers[off], senders[off], values[off]
    keys = np.minimum(receivers, senders) * topology.n + np.maximum(receivers, senders)
    pairs, index = np.unique(keys, return_inverse=True)
    up, down = np.zeros(len(pairs), bool), np.zeros(len(pairs), bool)
    up[index[senders < receivers]] = True
    down[index[senders > receivers]] = True
    largest = np.zeros(len(pairs))
    np.maximum.at(largest, index, values)
    return Links(low=pairs // topology.n, high=pairs % topology.n, up=up, down=down, values=largest)
