"""Hosts with several nodes each: dense inside a host, sparse between hosts."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ...gossip.specs.parameter import Parameter
from ..schedules.mixing import undirected
from ..schedules.schedule import Fixed
from .family import Built, Family, Values

__all__ = ["BETWEEN", "FAMILIES", "hosts", "resize"]

Link = tuple[int, int]

BETWEEN = ("ring", "path", "star", "complete")
"""Ways to link hosts, by the name that users type."""


def hosts(sizes: Sequence[int], links: Sequence[Link]) -> Fixed:
    """Complete graphs inside hosts; each link joins one node of one host to one of another.

    Args:
        sizes: Nodes on each host, at least 1; nodes are numbered host by host.
        links: Pairs of hosts.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    blocks = [_pairs(start, end) for start, end in pairwise(starts)]
    # To a host's nodes in turn, so that none carries more than its share.
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


def _between_hosts(name: str, count: int) -> list[Link]:
    if name == "complete":
        return [(a, b) for a in range(count) for b in range(a + 1, count)]
    if name == "star":
        return [(0, b) for b in range(1, count)]
    line = list(pairwise(range(count)))
    return [*line, (count - 1, 0)] if name == "ring" and count > 2 else line


def resize(sizes: Sequence[int], n: int) -> list[int]:
    """Scale sizes to another number of nodes, in similar proportions, without empty hosts."""
    # Python's integers do not overflow.
    bounds = [end * n // sum(sizes) for end in accumulate(sizes, initial=0)]
    return [end - start for start, end in pairwise(bounds) if end > start]


def _pairs(start: int, end: int) -> NDArray[np.int64]:
    low, high = np.triu_indices(end - start, 1)
    return np.stack([low, high], axis=1) + start


def _linked(sizes: list[int], values: Values) -> Built:
    links = _between_hosts(str(values["between"]), len(sizes))
    return Built(schedule=hosts(sizes, links), runs=tuple(sizes))


def _sizes_of(values: Values) -> list[int]:
    return [int(part) for part in str(values["sizes"]).split("x")]


def _read_sizes(text: str) -> str:
    sizes = [int(part) for part in text.split("x")]
    if min(sizes) < 1:
        raise ValueError
    return "x".join(map(str, sizes))


FAMILIES: Mapping[str, Family] = {
    "hosts": Family(
        summary="dense inside each host, sparse between hosts",
        source="Awan et al., PPoPP 2017 (S-Caffe), on exchange in hierarchies",
        build=lambda site, values: _linked(_sizes_of(values), values),
        layout="hosts",
        parameters=(
            Parameter(
                name="sizes", kind=str, form="nodes of each host, as in 4x4x8", convert=_read_sizes
            ),
            Parameter(name="between", kind=str, choices=BETWEEN, default="ring"),
        ),
        size=lambda values: sum(_sizes_of(values)),
        live=lambda site, values: _linked(resize(_sizes_of(values), site.n), values),
        fallback="hosts are runs of sorted ids and keep their proportions; an empty one is left "
        "out",
    ),
}
