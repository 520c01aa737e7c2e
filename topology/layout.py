"""Graph layout: where a picture puts each node and each line; a family names its layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from types import MappingProxyType

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .topology import Topology

__all__ = ["Placement", "bodies_of", "links_of", "place"]

Points = NDArray[np.float64]

# Nodes beyond which a path runs back and forth, as a line of them would not fit a square.
LINE_MAX = 10

# Nodes beyond which springs are simulated instead of solving for all distances at once.
EXACT_MAX = 256

_Pairs = list[tuple[int, int]]


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
        """Scale to a square from 0 to *side*, with a margin on all sides."""
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


def place(topology: Topology) -> Placement:
    """Place the nodes according to the family's layout."""
    return _PLACERS[topology.layout](topology)


def _line(topology: Topology) -> Placement:
    columns = topology.n if topology.n <= LINE_MAX else isqrt(topology.n - 1) + 1
    points = _rows(topology.n, columns)
    # Back and forth, so that neighbors on the path are neighbors in the picture.
    back = points[:, 1] % 2 == 1
    points[back, 0] = columns - 1 - points[back, 0]
    return Placement(points=points)


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


def _around(count: int, turn: float = 0.0) -> Points:
    # Clockwise from the top of a unit circle.
    angles = 2 * np.pi * (np.arange(count) / max(count, 1) + turn)
    return np.stack([np.sin(angles), np.cos(angles)], axis=1)


def _rows(n: int, columns: int) -> Points:
    nodes = np.arange(n)
    return np.stack([nodes % columns, -(nodes // columns)], axis=1).astype(np.float64)


_PLACERS: Mapping[str, Callable[[Topology], Placement]] = MappingProxyType(
    {
        "circle": lambda it: Placement(points=_around(it.n)),
        "star": lambda it: Placement(points=np.concatenate([np.zeros((1, 2)), _around(it.n - 1)])),
        "line": _line,
        "grid": lambda it: Placement(points=_rows(it.n, it.runs[0]), reach=1.5),
        "hosts": _hosts,
        "spring": _spring,
    }
)


def links_of(topology: Topology, round: int) -> tuple[_Pairs, _Pairs]:
    """Pairs of nodes that push to each other in a round, and pushes that go one way, ascending."""
    receivers, senders = topology.matrix(round).nonzero()
    pushes = {push for push in zip(senders.tolist(), receivers.tolist(), strict=True)}
    both_ways = [(a, b) for a, b in pushes if a < b and (b, a) in pushes]
    return sorted(both_ways), sorted((a, b) for a, b in pushes if (b, a) not in pushes)


def bodies_of(pairs: Iterable[tuple[int, int]], placed: Placement, stub: float) -> Points:
    """Lines of links, axes ``(line, end, x and y)``; those that wrap around are two stubs."""
    bodies = placed.points[np.array(sorted(pairs), np.int64).reshape(-1, 2)]
    far = np.abs(bodies[:, 1] - bodies[:, 0]).max(axis=1) > placed.reach
    starts, ends = bodies[far, 0], bodies[far, 1]
    along = ends - starts
    main = np.abs(along) == np.abs(along).max(axis=1, keepdims=True)
    out = np.sign(along) * main * stub
    stubs = np.stack([starts, starts - out], axis=1), np.stack([ends, ends + out], axis=1)
    return np.concatenate([bodies[~far], *stubs])
