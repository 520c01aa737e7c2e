"""Hosts with several nodes each: dense inside, sparse between."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .errors import TopologyError
from .lattices import undirected
from .mixing import edges, metropolis, uniform
from .schedule import Fixed

__all__ = ["BETWEEN", "between_hosts", "hosts", "hosts_in_turn", "parse_links", "resize"]

Link = tuple[int, int]

BETWEEN = ("ring", "path", "star", "complete", "one-peer-exponential")
"""Ways to link hosts, by the name that people type."""


def hosts(sizes: Sequence[int], links: Sequence[Link]) -> Fixed:
    """Everybody mixes inside a host; each link joins one node of one host to one of another.

    A host's links are dealt to its nodes in turn, so that none carries more than its part.

    Args:
        sizes: Nodes of each host, at least 1; nodes are numbered host by host.
        links: Pairs of hosts.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    blocks = [_pairs(start, end) for start, end in pairwise(starts)]
    dealt = [0] * len(sizes)
    between = []
    for pair in links:
        ends = []
        for host in pair:
            ends.append(starts[host] + dealt[host] % sizes[host])
            dealt[host] += 1
        between.append(ends)
    both = np.concatenate([*blocks, np.array(between, np.int64).reshape(-1, 2)])
    return undirected(int(starts[-1]), both[:, 0], both[:, 1])


def hosts_in_turn(count: int, size: int) -> Fixed:
    """One round inside all hosts, then rounds between them, each node with its like.

    With 2^k hosts of one size, the average is exact after k + 1 rounds.

    Args:
        count: Number of hosts.
        size: Nodes of each.
    """
    n = count * size
    nodes = np.arange(n)
    rounds = []
    if size > 1 or count == 1:
        inside = np.concatenate([_pairs(start, start + size) for start in range(0, n, size)])
        ways = np.concatenate([inside, inside[:, ::-1]])
        rounds.append(metropolis(edges(n, ways[:, 0], ways[:, 1])))
    power = 1
    while power < count:
        ahead = edges(n, nodes, (nodes + power * size) % n)
        rounds.append(uniform(ahead))
        power *= 2
    return Fixed(rounds=tuple(rounds), directed=count > 2)


def between_hosts(name: str, count: int) -> list[Link]:
    """Links of hosts 0 to count-1 for one of `BETWEEN` that does not change."""
    if name == "complete":
        return [(a, b) for a in range(count) for b in range(a + 1, count)]
    if name == "star":
        return [(0, b) for b in range(1, count)]
    line = list(pairwise(range(count)))
    return [*line, (count - 1, 0)] if name == "ring" and count > 2 else line


def parse_links(text: str, count: int) -> list[Link]:
    """Read ``0-1x1-2``: pairs of hosts.

    Raises:
        TopologyError: One is not a pair of the hosts 0 to *count* - 1, or a host is cut off.
    """
    links = []
    for part in text.split("x"):
        a, b = map(int, part.split("-"))
        if a == b or max(a, b) >= count:
            raise TopologyError(f"links={text}: {part} must be two of the hosts 0 to {count - 1}")
        links.append((a, b))
    graph = nx.empty_graph(count)
    graph.add_edges_from(links)
    if cut_off := set(graph) - nx.node_connected_component(graph, 0):
        raise TopologyError(
            f"links={text}: they must connect all hosts, and no way leads from host 0 to "
            f"host {min(cut_off)}"
        )
    return links


def resize(sizes: Sequence[int], n: int) -> list[int]:
    """Sizes for another number of nodes, in about the same proportions, without empty hosts."""
    # In Python's numbers, which do not overflow.
    bounds = [end * n // sum(sizes) for end in accumulate(sizes, initial=0)]
    return [end - start for start, end in pairwise(bounds) if end > start]


def _pairs(start: int, end: int) -> NDArray[np.int64]:
    low, high = np.triu_indices(end - start, 1)
    return np.stack([low, high], axis=1) + start
