"""Builders for a live view: any number of peers, and few edges that move."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .base_k import base_k
from .builders import host_sizes, hosts_of, whole
from .exponentials import hypercube_matching
from .family import Built, Site, Values
from .files import GraphFile, read_graph
from .grown import erdos_renyi_live, random_regular_live, scale_free_live, small_world_live
from .hosts import resize
from .lattices import grid, hypercube, incomplete_hypercube, torus, twisted_torus
from .mixing import edges, metropolis, uniform
from .random_graphs import p_connected
from .schedule import Fixed

__all__ = [
    "clipped",
    "forget_files",
    "live_erdos_renyi",
    "live_file",
    "live_grid",
    "live_hosts",
    "live_hypercube",
    "live_hypercube_matching",
    "live_random_regular",
    "live_scale_free",
    "live_small_world",
    "live_torus",
]

Builder = Callable[[Site, Values], Built]


def clipped(build: Builder, name: str, *, most_of_n: int = -1) -> Builder:
    """A strict builder whose parameter must not exceed n + *most_of_n*, made to take any n."""

    def live(site: Site, values: Values) -> Built:
        value = whole(values, name)
        # A lonely peer is fine with anything.
        if site.n > 1:
            value = min(value, site.n + most_of_n)
        return build(site, {**values, name: value})

    return live


def live_grid(site: Site, values: Values) -> Built:
    """Rows of as many columns as was asked for, the last one as long as it gets."""
    return Built(schedule=grid(site.n, _columns(site.n, values)))


def live_torus(site: Site, values: Values) -> Built:
    """The torus where there is one, else a cycle with chords as long as a row."""
    columns = _columns(site.n, values)
    rows = site.n // columns
    if rows * columns == site.n and min(rows, columns) >= 2:
        return Built(schedule=torus(rows, columns))
    return Built(schedule=twisted_torus(site.n, columns))


def live_hypercube(site: Site, values: Values) -> Built:
    """The part of the next larger hypercube that is there."""
    if site.n & (site.n - 1):
        return Built(schedule=incomplete_hypercube(site.n))
    return Built(schedule=hypercube(site.n.bit_length() - 1))


def live_hypercube_matching(site: Site, values: Values) -> Built:
    """The base-2 graph, which is exact for any n and has pairs only, too."""
    if site.n & (site.n - 1):
        return Built(schedule=base_k(site.n, 1))
    return Built(schedule=hypercube_matching(site.n.bit_length() - 1))


def live_random_regular(site: Site, values: Values) -> Built:
    """Random cycles in the order of hashes."""
    return Built(schedule=random_regular_live(site, whole(values, "d")))


def live_erdos_renyi(site: Site, values: Values) -> Built:
    """A hash for each pair, and a ring."""
    return Built(schedule=erdos_renyi_live(site, float(values.get("p", p_connected(site.n)))))


def live_small_world(site: Site, values: Values) -> Built:
    """A ring by ids, rewired by hash."""
    p = float(values["p"])
    return Built(schedule=small_world_live(site, whole(values, "k"), p))


def live_scale_free(site: Site, values: Values) -> Built:
    """Peers in the order of their hash, linked to earlier ones."""
    return Built(schedule=scale_free_live(site, whole(values, "m")))


def live_hosts(site: Site, values: Values) -> Built:
    """Hosts that keep their proportions; links of a host without peers are left out."""
    sizes = resize(host_sizes(values), site.n)
    if values.get("between") == "one-peer-exponential" and len(set(sizes)) > 1:
        return Built(schedule=hosts_of(sizes, {"between": "complete"}))
    if "links" in values and len(sizes) < len(host_sizes(values)):
        return Built(schedule=hosts_of(sizes, {"between": "ring"}))
    return Built(schedule=hosts_of(sizes, values))


def live_file(site: Site, values: Values) -> Built:
    """What is left of a file's graph among the live peers, its parts joined in a ring."""
    read = _read_once(str(values["path"]), str(values["weights"]))
    if tuple(site.names) == read.names:
        return Built(schedule=read.schedule, names=read.names, bandwidth=read.bandwidth)
    left = _left_over(read, site.names)
    _, part_of = connected_components(left, directed=read.schedule.directed, connection="strong")
    # The first peer of each part; parts are numbered in no order that could be relied on.
    firsts = np.sort(np.unique(part_of, return_index=True)[1])
    if len(firsts) > 1:
        following = np.roll(firsts, -1)
        sources, targets = left.nonzero()
        sources = np.concatenate([sources, firsts, following])
        targets = np.concatenate([targets, following, firsts])
        left = edges(site.n, sources, targets)
    mixing = uniform(left) if read.schedule.directed else metropolis(left)
    return Built(schedule=Fixed(rounds=(mixing,), directed=read.schedule.directed))


def _columns(n: int, values: Values) -> int:
    if "cols" in values:
        return whole(values, "cols")
    if "rows" in values:
        return -(-n // whole(values, "rows"))
    # Sides that fit n exactly would be others at n + 1, and all links with them. The power of 2
    # next to sqrt(n) stays while the swarm grows or shrinks by half.
    return 1 << n.bit_length() // 2


def _left_over(read: GraphFile, names: Sequence[str]) -> csr_array:
    """The file's edges among *names*, row j: of j's pushes; others are nodes without edges."""
    number = {name: node for node, name in enumerate(names)}
    # -1 for who is gone.
    now = np.array([number.get(name, -1) for name in read.names], np.int64)
    receivers, senders = read.schedule.matrix(0).tocoo().coords
    sources, targets = now[senders], now[receivers]
    both = (sources >= 0) & (targets >= 0)
    return edges(len(names), sources[both], targets[both])


def forget_files() -> None:
    """Read files of graphs anew from here on: one that lives long may meet changed ones."""
    _read_once.cache_clear()


@lru_cache(maxsize=16)
def _read_once(path: str, weights: str) -> GraphFile:
    return read_graph(path, weights)
