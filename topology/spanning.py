"""A tree inside any graph, for rules that relay sums along one."""

import numpy as np
from scipy.sparse.csgraph import breadth_first_order

from .lattices import undirected
from .schedule import Fixed, Schedule
from .union import adjacency, union

__all__ = ["spanning_tree"]


def spanning_tree(schedule: Schedule) -> Fixed:
    """The shortest ways from a node in the middle: a breadth-first tree.

    The root is the middle of a longest way found by two searches, so that the tree is about as
    shallow as the graph allows.

    Args:
        schedule: Connected; of a time-varying one, the edges of all rounds are used.
    """
    edges = adjacency(union(schedule), 0)
    far = breadth_first_order(edges, 0, directed=False)[0][-1]
    order, before = breadth_first_order(edges, far, directed=False)
    way = [int(order[-1])]
    while way[-1] != far:
        way.append(int(before[way[-1]]))
    order, before = breadth_first_order(edges, way[len(way) // 2], directed=False)
    children = order[1:].astype(np.int64)
    return undirected(schedule.n, before[children].astype(np.int64), children)
