"""``topology``: the cost of a live view for a peer, next to networkx."""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, cycle

import networkx as nx

from rumor.topology import over
from rumor.topology.live import LiveTopology

from .harness import Result, Row, medians, timed

__all__ = ["measure_topology"]

_log = logging.getLogger(__name__)


def measure_topology(
    families: tuple[str, ...] = (
        *("ring", "exponential", "one-peer-exponential", "base-k:k=1"),
        *("random-regular:d=4", "small-world", "random-matching"),
    ),
    viewed: int = 1_000,
    rounds: int = 3,
) -> Result:
    """Measure `LiveTopology` on a constant view and on a changing view of *viewed* peers."""
    return Result(
        name="topology",
        title="Cost of a live view; less is better",
        rows=tuple(row for spec in families for row in _view(spec, viewed, rounds)),
    )


def _view(spec: str, peers: int, rounds: int) -> Iterator[Row]:
    _log.info("viewing %s, %d peers", spec, peers)
    # A tuple that stays the same until the view changes, like the protocol's.
    everyone = tuple(f"peer-{index:05}" for index in range(peers))
    without_one = everyone[: peers // 3] + everyone[peers // 3 + 1 :]
    one = everyone[peers // 2]
    graph = nx.relabel_nodes(over(spec, 0, everyone).graph(0), dict(enumerate(everyone)))
    edges = list(graph.edges)
    same, changing = LiveTopology(spec, 0), LiveTopology(spec, 0)
    asked, views = count(), cycle([everyone, without_one])
    compared: Mapping[str, tuple[Callable[[], object], Callable[[], object], int, str]] = {
        "same view": (
            lambda: same(everyone, one, next(asked)),
            lambda: list(graph.neighbors(one)),
            *(300, "networkx, one kept graph"),
        ),
        "one more or less": (
            lambda: changing(next(views), one, 0),
            lambda: type(graph)().add_edges_from(edges),
            *(10, "networkx, edges given"),
        ),
    }
    for what, (ours, theirs, times, note) in compared.items():
        ways = {"ours": partial(timed, ours, times), "theirs": partial(timed, theirs, times)}
        us = {way: taken_s * 1e6 for way, taken_s in medians(ways, rounds).items()}
        name = f"{spec}, {peers:,} peers: {what}"
        yield Row(name=name, ours=us["ours"], reference=us["theirs"], unit="us", note=note)
