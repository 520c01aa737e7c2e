"""Graphs that do not change, and that a node can find its way in by arithmetic."""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from .cayley import Cayley, Step, circulant
from .mixing import edges, metropolis
from .schedule import Fixed

__all__ = [
    "complete",
    "grid",
    "hypercube",
    "incomplete_hypercube",
    "path",
    "ring",
    "sides",
    "star",
    "torus",
    "tree",
    "twisted_torus",
    "undirected",
]

Nodes = NDArray[np.int64]


def undirected(n: int, left: Nodes, right: Nodes) -> Fixed:
    """A graph with Metropolis weights from its edges, each named once."""
    both = np.concatenate([left, right]), np.concatenate([right, left])
    return Fixed(rounds=(metropolis(edges(n, *both)),))


def ring(n: int) -> Cayley:
    """A cycle: the next and the previous node, which are one node when n = 2."""
    return circulant(n, [_both_ways(1, n)])


def complete(n: int) -> Cayley:
    """Everybody mixes with everybody: the average after one round."""
    return circulant(n, [range(1, n)])


def path(n: int) -> Fixed:
    """A ring with one link cut."""
    return undirected(n, np.arange(n - 1), np.arange(1, n))


def star(n: int) -> Fixed:
    """Node 0 in the middle, all others around it."""
    return undirected(n, np.zeros(n - 1, np.int64), np.arange(1, n))


def tree(n: int) -> Fixed:
    """The complete binary tree in level order: the parent of node i is (i - 1) // 2."""
    children = np.arange(1, n)
    return undirected(n, (children - 1) // 2, children)


def grid(n: int, columns: int) -> Fixed:
    """Rows of so many columns; the last row may be shorter."""
    nodes = np.arange(n)
    right = nodes[(nodes + 1 < n) & ((nodes + 1) % columns != 0)]
    below = nodes[nodes + columns < n]
    return undirected(
        n, np.concatenate([right, below]), np.concatenate([right + 1, below + columns])
    )


def torus(rows: int, columns: int) -> Cayley:
    """A grid whose rows and columns close to rings."""
    pairs = [
        (axis, shift) for axis, size in ((1, columns), (0, rows)) for shift in _both_ways(1, size)
    ]
    share = 1.0 / (len(pairs) + 1)
    steps = tuple(Step(shift, share, axis) for axis, shift in pairs)
    return Cayley(shape=(rows, columns), rounds=(steps,), directed=False)


def twisted_torus(n: int, columns: int) -> Cayley:
    """A torus for any n: on a cycle, one place and *columns* places to either side.

    Where n = rows * columns it is the torus whose rows are joined, end to start, to one long
    line. It has the torus's degree, and a diameter of about sqrt(n) if columns is about that.
    """
    shifts = dict.fromkeys([*_both_ways(1, n), *_both_ways(columns, n)])
    return circulant(n, [tuple(shifts)])


def hypercube(dimensions: int) -> Cayley:
    """Nodes whose numbers differ in one bit are neighbors."""
    share = 1.0 / (dimensions + 1)
    # The last axis is the lowest bit.
    steps = tuple(Step(1, share, axis) for axis in reversed(range(dimensions)))
    return Cayley(shape=(2,) * dimensions, rounds=(steps,), directed=False)


def incomplete_hypercube(n: int) -> Fixed:
    """The part of a hypercube that the nodes 0 to n-1 make up: connected for any n.

    Source: Katseff, IEEE Transactions on Computers 1988.
    """
    nodes = np.arange(n)
    flips = [(nodes, nodes ^ 2**bit) for bit in range((n - 1).bit_length())]
    pairs = [(low[keep], high[keep]) for low, high in flips for keep in [(low < high) & (high < n)]]
    none = np.empty(0, np.int64)
    left, right = zip(*pairs, strict=True) if pairs else ((none,), (none,))
    return undirected(n, np.concatenate(left), np.concatenate(right))


def sides(n: int) -> tuple[int, int]:
    """Rows and columns of the rectangle nearest to a square, rows at most columns."""
    rows = isqrt(n)
    while n % rows:
        rows -= 1
    return rows, n // rows


def _both_ways(shift: int, size: int) -> tuple[int, ...]:
    return tuple(way for way in dict.fromkeys((shift % size, -shift % size)) if way)
