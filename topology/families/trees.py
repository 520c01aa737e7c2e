"""Trees: the complete binary tree, and a spanning tree of any other graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...gossip.specs.parameter import Parameter
from ..errors import TopologyError
from ..schedules.mixing import adjacency, undirected, union
from ..schedules.schedule import Fixed, Schedule
from .family import Built, Family, Site, Values

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["FAMILIES", "spanning_tree", "tree"]

# Each root costs a search of the whole graph; a few suffice if there is a center to be found.
ROOTS_MAX = 8


def tree(n: int) -> Fixed:
    """The complete binary tree in level order: the parent of node i is (i - 1) // 2."""
    children = np.arange(1, n)
    return undirected(n, (children - 1) // 2, children)


def spanning_tree(schedule: Schedule) -> Fixed:
    """A breadth-first tree, from a node at the center, over the edges of all rounds."""
    from scipy.sparse.csgraph import breadth_first_order

    edges = adjacency(union(schedule), 0)
    order, before = breadth_first_order(edges, _middle(edges), directed=False)
    children = order[1:].astype(np.int64)
    return undirected(schedule.n, before[children].astype(np.int64), children)


def _middle(edges: csr_array) -> int:
    """A node of minimum eccentricity, or nearly."""
    # Each candidate root yields a node far from it. The next root is as near as possible to all of
    # those; when its farthest node is no farther than they are, no root is better.
    at_least = np.zeros(edges.shape[0])
    root, found = 0, []
    for _ in range(ROOTS_MAX):
        away = _distances(edges, root)
        far = int(away.argmax())
        found.append((away[far], root))
        if away[far] <= at_least[root]:
            break
        at_least = np.maximum(at_least, _distances(edges, far))
        root = int(at_least.argmin())
    return min(found)[1]


def _distances(edges: csr_array, node: int) -> np.ndarray:
    from scipy.sparse.csgraph import dijkstra

    distances: np.ndarray = dijkstra(edges, directed=False, indices=node, unweighted=True)
    return distances


def _build_spanning_tree(site: Site, values: Values) -> Built:
    of = str(values["of"])
    try:
        inner = site.inside(of)
    except TopologyError as error:
        raise TopologyError(f"of={of}: {error}") from None
    if inner.schedule.period is None:
        raise TopologyError(f"of={of}: its rounds are random, a tree needs links that stay")
    return Built(schedule=spanning_tree(inner.schedule), names=inner.names)


FAMILIES: Mapping[str, Family] = {
    "tree": Family(
        summary="the complete binary tree",
        source="Vogels et al., NeurIPS 2021 (RelaySGD)",
        build=lambda site, _: tree(site.n),
        layout="spring",
    ),
    "spanning-tree": Family(
        summary="a shallow tree inside another topology",
        source="Vogels et al., NeurIPS 2021 (RelaySGD)",
        build=_build_spanning_tree,
        layout="spring",
        parameters=(
            Parameter(name="of", kind=str, form="a spec, the last thing given", takes_rest=True),
        ),
        joins=("of",),
        fallback="a tree inside what the other topology falls back to",
    ),
}
