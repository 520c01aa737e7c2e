"""Random graphs that do not change, drawn by networkx and drawn again until connected."""

from collections.abc import Callable
from math import log

import networkx as nx
import numpy as np

from .draws import key, shuffled
from .errors import TopologyError
from .lattices import undirected
from .schedule import Fixed

__all__ = ["erdos_renyi", "p_connected", "random_regular", "scale_free", "small_world"]

DRAWS_MAX = 100


def random_regular(n: int, d: int, seed: int) -> Fixed:
    """Every node has d neighbors; any such graph is about equally likely.

    Source: Steger and Wormald, CPC 1999; the complement is drawn where d exceeds n / 2.
    """
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
    """Each pair is linked with probability p, given that the graph is connected.

    Source: Gilbert 1959; Erdos and Renyi 1960 for the threshold ln(n) / n of connectivity.
    """
    return _connected(
        lambda attempt: nx.fast_gnp_random_graph(
            n, p, seed=key(seed, "erdos-renyi", n, repr(p), attempt)
        ),
        f"p={p:g}: no connected graph in {DRAWS_MAX} draws; "
        f"graphs are mostly connected from about p = ln(n)/n = {log(n) / n:.2g} on",
    )


def p_connected(n: int) -> float:
    """2 ln(n) / n, twice the threshold of connectivity, in four digits; at most 1."""
    return min(1.0, float(f"{2 * log(n) / n:.4g}")) if n > 1 else 1.0


def small_world(n: int, k: int, p: float, seed: int) -> Fixed:
    """A ring of k nearest neighbors whose links are rewired at random with probability p.

    Source: Watts and Strogatz, Nature 1998.
    """
    return _connected(
        lambda attempt: nx.watts_strogatz_graph(
            n, k, p, seed=key(seed, "small-world", n, k, repr(p), attempt)
        ),
        f"k={k}, p={p:g}: no connected graph in {DRAWS_MAX} draws; take a larger k or smaller p",
    )


def scale_free(n: int, m: int, seed: int) -> Fixed:
    """Nodes come one by one and link to m earlier ones, mostly to those with many links.

    Source: Barabasi and Albert, Science 1999.
    """
    return _from_networkx(nx.barabasi_albert_graph(n, m, seed=key(seed, "scale-free", n, m)))


def _from_networkx(graph: nx.Graph) -> Fixed:
    """Metropolis weights on an undirected graph of nodes 0 to n-1."""
    pairs = np.array(list(graph.edges), np.int64).reshape(-1, 2)
    return undirected(len(graph), pairs[:, 0], pairs[:, 1])


def _connected(draw: Callable[[int], nx.Graph], failure: str) -> Fixed:
    for attempt in range(DRAWS_MAX):
        graph = draw(attempt)
        if nx.is_connected(graph):
            return _from_networkx(graph)
    raise TopologyError(failure)
