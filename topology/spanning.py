"""A tree inside any graph, for rules that relay sums along one."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, dijkstra

from .lattices import undirected
from .schedule import Fixed, Schedule
from .union import adjacency, union

__all__ = ["spanning_tree"]

# Each costs a search of the whole graph; a few are enough where there is a middle to be found.
ROOTS_MAX = 8


def spanning_tree(schedule: Schedule) -> Fixed:
    """The shortest ways from a node in the middle: a breadth-first tree.

    Args:
        schedule: Connected; of a time-varying one, the edges of all rounds are used.
    """
    edges = adjacency(union(schedule), 0)
    order, before = breadth_first_order(edges, _middle(edges), directed=False)
    children = order[1:].astype(np.int64)
    return undirected(schedule.n, before[children].astype(np.int64), children)


def _middle(edges: csr_array) -> int:
    """The node from which the farthest one is nearest, or about so.

    Each root that is tried names a node that is far from it. The next one is as near as can be to
    all of those; when its farthest node is no farther than them, there is no better root.
    """
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
    distances: np.ndarray = dijkstra(edges, directed=False, indices=node, unweighted=True)
    return distances
