"""Static random graphs: drawn at once for `parse`, grown edge by edge from ids on a live view.

Strict ones come from networkx, drawn again until connected. In live ones each edge depends only on
the ids of its two ends, so that a peer that joins or leaves moves hardly any edge of the others:
consistent hashing (Karger et al., STOC 1997) and random cycles (Law and Siu, INFOCOM 2003). They
are connected for any number of peers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...gossip.specs.parameter import Parameter
from ..errors import TopologyError
from ..hashing import Words, blend, key, shuffled
from ..schedules.mixing import undirected
from ..schedules.schedule import Fixed, Schedule
from .family import Family, Site, Values, count, whole
from .lattices import complete

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "FAMILIES",
    "erdos_renyi",
    "erdos_renyi_live",
    "p_connected",
    "random_regular",
    "random_regular_live",
    "scale_free",
    "scale_free_live",
    "small_world",
    "small_world_live",
]

Nodes = NDArray[np.int64]

DRAWS_MAX = 100

# Pairs that are hashed at a time: 32 MiB.
PAIRS_MAX = 2**22

# Labels of draws that must not coincide.
CYCLE, MATCHING, PAIR, REWIRED, TARGET, PICK = range(6)


def random_regular(n: int, d: int, seed: int) -> Fixed:
    """Every node has d neighbors; all such graphs are nearly equally likely.

    Source: Steger and Wormald, CPC 1999; the complement is drawn where d exceeds n / 2.
    """
    import networkx as nx

    if d == 2:
        # A union of cycles is hardly ever one cycle.
        around = shuffled(key(seed, "random-regular", n), n)
        return undirected(n, around, np.roll(around, 1))
    if d > (n - 1) / 2:
        sparse = nx.random_regular_graph(n - 1 - d, n, seed=key(seed, "random-regular", n, d))
        return _from_networkx(nx.complement(sparse))
    return _connected(
        lambda attempt: nx.random_regular_graph(
            d, n, seed=key(seed, "random-regular", n, d, attempt)
        ),
        f"d={d}: no connected graph in {DRAWS_MAX} draws, take a larger d",
    )


def erdos_renyi(n: int, p: float, seed: int) -> Fixed:
    """Each pair is linked with probability p, given that the graph is connected."""
    import networkx as nx

    return _connected(
        lambda attempt: nx.fast_gnp_random_graph(
            n, p, seed=key(seed, "erdos-renyi", n, repr(p), attempt)
        ),
        f"p={p:g}: no connected graph in {DRAWS_MAX} draws; "
        f"graphs are mostly connected from about p = ln(n)/n = {log(n) / n:.2g} on",
    )


def p_connected(n: int) -> float:
    """2 ln(n) / n, twice the threshold of connectivity, to four digits; at most 1."""
    return min(1.0, float(f"{2 * log(n) / n:.4g}")) if n > 1 else 1.0


def small_world(n: int, k: int, p: float, seed: int) -> Fixed:
    """A ring of k nearest neighbors whose edges are rewired at random with probability p."""
    import networkx as nx

    return _connected(
        lambda attempt: nx.watts_strogatz_graph(
            n, k, p, seed=key(seed, "small-world", n, k, repr(p), attempt)
        ),
        f"k={k}, p={p:g}: no connected graph in {DRAWS_MAX} draws; take a larger k or smaller p",
    )


def scale_free(n: int, m: int, seed: int) -> Fixed:
    """Nodes come one by one and link to m earlier ones, preferably to those of high degree."""
    import networkx as nx

    return _from_networkx(nx.barabasi_albert_graph(n, m, seed=key(seed, "scale-free", n, m)))


def _from_networkx(graph: nx.Graph) -> Fixed:
    pairs = np.array(list(graph.edges), np.int64).reshape(-1, 2)
    return undirected(len(graph), pairs[:, 0], pairs[:, 1])


def _connected(draw: Callable[[int], nx.Graph], failure: str) -> Fixed:
    import networkx as nx

    for attempt in range(DRAWS_MAX):
        graph = draw(attempt)
        if nx.is_connected(graph):
            return _from_networkx(graph)
    raise TopologyError(failure)


def random_regular_live(site: Site, d: int) -> Schedule:
    """The union of d / 2 random cycles, plus a random matching where d is odd.

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
    """Each pair is linked by the hash of its two ids; a ring keeps the graph connected."""
    keys = _keys(site)
    left, right = _ring(site.n)
    # Exact for p = 1 as well, unlike a product of floats.
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
    """A ring by ids with k neighbors each; all edges but the nearest are rewired by hash."""
    if site.n <= k + 1:
        return complete(site.n)
    keys = _keys(site)
    left, right = _ring(site.n)
    nodes, order = np.arange(site.n), np.argsort(keys, kind="stable")
    for hop in range(2, k // 2 + 1):
        rewired = blend(keys, REWIRED, hop) < np.uint64(min(int(p * 2**64), 2**64 - 1))
        # The first node at or after a point on a circle of hashes.
        target = order[np.searchsorted(keys[order], blend(keys, TARGET, hop)) % site.n]
        left = np.concatenate([left, nodes])
        right = np.concatenate([right, np.where(rewired, target, (nodes + hop) % site.n)])
    return undirected(site.n, left, right)


def scale_free_live(site: Site, m: int) -> Schedule:
    """Add peers in the order of their hashes, each linked to m earlier ones."""
    keys = _keys(site)
    order = np.argsort(keys, kind="stable")
    place = keys[order].astype(np.float64)
    left, right = [], []
    # In the model of Barabasi and Albert the s-th node is chosen with a probability proportional to
    # 1 / sqrt(s) on average; here, independently of the others' edges.
    for pick in range(m):
        uniform = blend(keys[order], PICK, pick).astype(np.float64) / 2.0**64
        chosen = np.searchsorted(place, place * uniform**2, side="right") - 1
        # Rounding must not let a node choose itself or a later node.
        chosen = np.clip(chosen, 0, np.maximum(np.arange(site.n) - 1, 0))
        left.append(order)
        right.append(order[chosen])
    return undirected(site.n, np.concatenate(left), np.concatenate(right))


def _keys(site: Site) -> Words:
    return np.array([_key(site.seed, "peer", name) for name in site.names], np.uint64)


_key = lru_cache(maxsize=2**16)(key)


def _ring(n: int) -> tuple[Nodes, Nodes]:
    nodes = np.arange(n)
    return nodes, np.roll(nodes, -1)


def _matching(keys: Words) -> tuple[Nodes, Nodes]:
    """Pair up all nodes but at most one, by the longest common prefix of their hashes."""
    # Each half of the range of hashes, each quarter and so on pairs its own nodes, and hands one
    # left over to the next larger part. So a peer more or less changes about log2 n pairs; if
    # neighbors in sorted order were paired, all from there to the end would change.
    # 63 bits, so that the last part contains all nodes.
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


def _build_random_regular(site: Site, values: Values) -> Schedule:
    n, d = site.n, whole(values, "d")
    if n * d % 2 and n > 1:
        raise TopologyError(f"d={d}: n x d must be even, as each edge has two ends")
    if d == 1 and n > 2:
        raise TopologyError("d=1: pairs do not connect more than two nodes, d must be at least 2")
    return complete(n) if d >= n - 1 else random_regular(n, d, site.seed)


def _probability(n: int, values: Values) -> float:
    return float(values.get("p", p_connected(n)))


def _build_small_world(site: Site, values: Values) -> Schedule:
    k = min(whole(values, "k"), site.n - 1)
    return small_world(site.n, k, float(values["p"]), site.seed)


def _build_scale_free(site: Site, values: Values) -> Schedule:
    return complete(1) if site.n == 1 else scale_free(site.n, whole(values, "m"), site.seed)


def _read_even(text: str) -> int:
    if int(text) % 2:
        raise ValueError(text)
    return int(text)


FAMILIES: Mapping[str, Family] = {
    "random-regular": Family(
        summary="d neighbors each, at random: an expander",
        source="Friedman, Memoirs of the AMS 2008",
        build=_build_random_regular,
        layout="spring",
        parameters=(count("d", 4),),
        limits={"d": -1},
        live=lambda site, values: random_regular_live(site, whole(values, "d")),
        fallback="d/2 random cycles in the order of hashed ids, at least one, and a matching "
        "for odd d (Law and Siu 2003): two peers have one neighbor less where cycles share a "
        "link, and so has a peer that the matching leaves out",
    ),
    "erdos-renyi": Family(
        summary="each pair with probability p, drawn again until connected",
        source="Gilbert 1959; Erdos and Renyi 1960",
        build=lambda site, values: erdos_renyi(site.n, _probability(site.n, values), site.seed),
        layout="spring",
        parameters=(Parameter(name="p", above=0, high=1, otherwise="2 ln(n)/n"),),
        live=lambda site, values: erdos_renyi_live(site, _probability(site.n, values)),
        fallback="a pair is linked by the hash of its ids, and a ring by ids keeps all connected",
    ),
    "small-world": Family(
        summary="a ring of k neighbors, each link rewired with probability p",
        source="Watts and Strogatz, Nature 1998",
        build=_build_small_world,
        layout="circle",
        parameters=(
            Parameter(
                name="k",
                kind=int,
                low=2,
                form="an even number of at least 2",
                convert=_read_even,
                default=4,
            ),
            Parameter(name="p", low=0, high=1, default=0.1),
        ),
        limits={"k": -1},
        live=lambda site, values: small_world_live(site, whole(values, "k"), float(values["p"])),
        fallback="links are rewired by the hash of ids; those to the nearest stay, so that all are "
        "connected",
    ),
    "scale-free": Family(
        summary="newcomers link to m earlier nodes, mostly to popular ones: hubs",
        source="Barabasi and Albert, Science 1999",
        build=_build_scale_free,
        layout="spring",
        parameters=(count("m", 2),),
        limits={"m": -1},
        live=lambda site, values: scale_free_live(site, whole(values, "m")),
        fallback="peers come in the order of their hash and choose earlier ones with the "
        "probability that they have on average in the model",
    ),
}
