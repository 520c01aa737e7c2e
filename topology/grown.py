"""Random graphs for a changing set of peers: each edge hangs on the ids of its two ends.

A peer that comes or goes then moves hardly an edge of the others', where a graph drawn anew for
n + 1 nodes would move nearly all. The ideas are consistent hashing (Karger et al., STOC 1997)
and random cycles (Law and Siu, INFOCOM 2003). All graphs are connected for any number of peers.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .draws import Words, blend, key
from .family import Site
from .lattices import complete, undirected
from .schedule import Schedule

__all__ = ["erdos_renyi_live", "random_regular_live", "scale_free_live", "small_world_live"]

Nodes = NDArray[np.int64]

# Pairs that are hashed at a time: 32 MiB.
PAIRS_MAX = 2**22

# Labels of draws that must not coincide.
CYCLE, MATCHING, PAIR, REWIRED, TARGET, PICK = range(6)


def random_regular_live(site: Site, d: int) -> Schedule:
    """The union of d / 2 random cycles; an odd d adds a random matching.

    Where two cycles share a link, two peers have a neighbor less.

    Source: Law and Siu, INFOCOM 2003; Friedman, Memoirs of the AMS 2008, model H, for its gap.
    """
    if site.n <= d + 1:
        return complete(site.n)
    keys = _keys(site)
    left, right = [], []
    for cycle in range(max(1, d // 2)):
        order = np.argsort(blend(keys, CYCLE, cycle), kind="stable")
        left.append(order)
        right.append(np.roll(order, -1))
    if d % 2 and d > 1:
        low, high = _matching(blend(keys, MATCHING))
        left.append(low)
        right.append(high)
    return undirected(site.n, np.concatenate(left), np.concatenate(right))


def erdos_renyi_live(site: Site, p: float) -> Schedule:
    """Each pair is linked when the hash of its two ids says so; a ring keeps all connected."""
    keys = _keys(site)
    left, right = _ring(site.n)
    # Exact for p = 1 as well, which a product of floats would not be.
    below = np.uint64(min(int(p * 2**64), 2**64 - 1))
    rows = max(1, PAIRS_MAX // site.n)
    for start in range(0, site.n, rows):
        some = keys[start : start + rows, None]
        linked = blend(PAIR, some + keys[None, :]) <= below
        low, high = np.nonzero(linked)
        low = low + start
        left = np.concatenate([left, low[low < high]])
        right = np.concatenate([right, high[low < high]])
    return undirected(site.n, left, right)


def small_world_live(site: Site, k: int, p: float) -> Schedule:
    """A ring by ids with k neighbors each, of which all but the nearest are rewired by hash."""
    if site.n <= k + 1:
        return complete(site.n)
    keys = _keys(site)
    left, right = _ring(site.n)
    nodes = np.arange(site.n)
    for hop in range(2, k // 2 + 1):
        rewired = blend(keys, REWIRED, hop) < np.uint64(min(int(p * 2**64), 2**64 - 1))
        target = _successors(keys, blend(keys, TARGET, hop))
        left = np.concatenate([left, nodes])
        right = np.concatenate([right, np.where(rewired, target, (nodes + hop) % site.n)])
    return undirected(site.n, left, right)


def scale_free_live(site: Site, m: int) -> Schedule:
    """Peers come in the order of their hash, and each links to m earlier ones.

    In the model of Barabasi and Albert the node that came s-th is chosen with a probability that
    goes with 1 / sqrt(s), in the mean: so is it here, whatever the others' links.
    """
    keys = _keys(site)
    order = np.argsort(keys, kind="stable")
    place = keys[order].astype(np.float64)
    left, right = [], []
    for pick in range(m):
        uniform = blend(keys[order], PICK, pick).astype(np.float64) / 2.0**64
        chosen = np.searchsorted(place, place * uniform**2, side="right") - 1
        # Rounding must not let a node choose itself or one that comes later.
        chosen = np.clip(chosen, 0, np.maximum(np.arange(site.n) - 1, 0))
        left.append(order)
        right.append(order[chosen])
    return undirected(site.n, np.concatenate(left), np.concatenate(right))


def _keys(site: Site) -> Words:
    """A hash of each peer's id."""
    return np.array([_key(site.seed, name) for name in site.names], np.uint64)


@lru_cache(maxsize=2**16)
def _key(seed: int, name: str) -> int:
    return key(seed, "peer", name)


def _ring(n: int) -> tuple[Nodes, Nodes]:
    nodes = np.arange(n)
    return nodes, np.roll(nodes, -1)


def _matching(keys: Words) -> tuple[Nodes, Nodes]:
    """Pairs of all nodes but at most one: those whose hashes have the longest common prefix.

    Each half of the numbers, each half of a half and so on pairs its own nodes, and hands the one
    that is left over, if any, to the next larger part: one peer more or less changes no more than
    one pair in each part that it is in, about log2 n of them. Pairs of neighbors in order would
    change from there to the end.
    """
    # Of 63 bits, so that the last part is everybody.
    keys = keys >> np.uint64(1)
    free = np.argsort(keys, kind="stable")
    left, right = [], []
    for bits in range(64):
        part = keys[free] >> np.uint64(bits)
        first = np.flatnonzero(part[:-1] == part[1:])
        left.append(free[first])
        right.append(free[first + 1])
        free = np.delete(free, np.concatenate([first, first + 1]))
    return np.concatenate(left), np.concatenate(right)


def _successors(keys: Words, points: Words) -> Nodes:
    """On a circle of hashes, whoever comes first at or after each point."""
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], points) % len(keys)
    successors: Nodes = order[at]
    return successors
