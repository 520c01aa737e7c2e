"""``topology``: what facts cost as graphs grow, and what a live view costs a peer."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from statistics import median

import networkx as nx

from ..topology import LiveTopology, over
from .results import Result, Row, medians, timed
from .rivals import plain_networkx as alone

__all__ = ["measure_topology"]

_log = logging.getLogger("rumor.benchmarks")

_FAMILIES = (
    "ring",
    "torus",
    "exponential",
    "one-peer-exponential",
    "base-k:k=1",
    "grid",
    "tree",
    "random-regular:d=4",
    "small-world",
    "scale-free",
    "random-matching",
)

_LIVE = (
    "ring",
    "exponential",
    "one-peer-exponential",
    "base-k:k=1",
    "random-regular:d=4",
    "small-world",
    "random-matching",
)

# No single matrix stands for rounds that are drawn at random.
_NOT_DENSE = ("random-matching",)


def measure_topology(
    families: Sequence[str] = _FAMILIES,
    sizes: Sequence[int] = (1_000, 10_000, 100_000),
    grown: Mapping[str, int] | None = None,
    live: Sequence[str] = _LIVE,
    peers: int = 1_000,
    rounds: int = 3,
) -> Result:
    """Measure `facts` beside a dense solver and as n grows, and `LiveTopology` beside networkx.

    Args:
        families: Specs; each takes any n of *sizes*.
        sizes: Numbers of nodes; the dense solver is run at the first of them.
        grown: Specs for which it is run at another n as well, to show how it grows; ring and
            random-regular at twice the first n unless given.
        live: Specs that are laid over a live view.
        peers: Size of the view.
        rounds: How often each is measured; once at the last of *sizes*.
    """
    if grown is None:
        grown = dict.fromkeys(("ring", "random-regular:d=4"), 2 * sizes[0])
    rows = [
        *(_beside_dense(spec, sizes[0], rounds) for spec in families if spec not in _NOT_DENSE),
        *(_beside_dense(spec, n, rounds) for spec, n in grown.items()),
        *(row for spec in families for row in _growing(spec, sizes, rounds)),
        *(row for spec in live for row in _live_rows(spec, peers, rounds)),
    ]
    return Result(
        name="topology",
        title="Facts about a graph as it grows, and what a live view costs; less is better",
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """Medians of what one process measured."""

    build_ms: float
    taken_ms: float
    peak_mb: float


def _alone(how: str, spec: str, n: int, times: int) -> _Measured:
    """Measure in a fresh process, so that its memory is that of this graph."""
    _log.info("%s of %s, n = %d", how, spec, n)
    asked = json.dumps({"how": how, "spec": spec, "n": n, "times": times})
    # -P: a folder with modules called topology and result must not be searched for imports.
    done = subprocess.run(
        [sys.executable, "-P", alone.__file__, asked], stdout=subprocess.PIPE, check=True
    )
    read = json.loads(done.stdout)
    return _Measured(
        build_ms=median(read["build_s"]) * 1e3,
        taken_ms=median(read["taken_s"]) * 1e3,
        peak_mb=read["peak_mb"],
    )


def _beside_dense(spec: str, n: int, rounds: int) -> Row:
    turns = [(_alone("facts", spec, n, 3), _alone("plain", spec, n, 1)) for _ in range(rounds)]
    memory_mb = [median(way.peak_mb for way in ways) for ways in zip(*turns, strict=True)]
    return Row(
        name=f"{spec}, n = {n:,}",
        ours=median(ours.taken_ms for ours, _ in turns),
        reference=median(dense.taken_ms for _, dense in turns),
        unit="ms",
        note="networkx's diameter and the spectrum by numpy alone; peak memory "
        f"{memory_mb[0]:.0f} and {memory_mb[1]:.0f} MB",
    )


def _growing(spec: str, sizes: Sequence[int], rounds: int) -> list[Row]:
    found = {n: _alone("facts", spec, n, 1 if n == sizes[-1] else rounds) for n in sizes}
    first = found[sizes[0]]
    return [
        Row(
            name=f"{spec}, n = {n:,}: growth",
            ours=found[n].taken_ms,
            reference=first.taken_ms,
            unit="ms",
            note=f"n = {sizes[0]:,}; parse {found[n].build_ms:.3g} ms, "
            f"peak memory {found[n].peak_mb:.0f} MB, a dense matrix {8e-6 * n * n:,.0f} MB",
        )
        for n in sizes
    ]


def _live_rows(spec: str, peers: int, rounds: int) -> list[Row]:
    _log.info("viewing %s, %d peers", spec, peers)
    # A tuple that stays the same until the view changes, as the protocol hands it over.
    everybody = tuple(f"peer-{index:05}" for index in range(peers))
    without_one = everybody[: peers // 3] + everybody[peers // 3 + 1 :]
    one = everybody[peers // 2]
    graph = nx.relabel_nodes(over(spec, 0, everybody).graph(0), dict(enumerate(everybody)))
    edges = list(graph.edges)
    view, changing = LiveTopology(spec, 0), LiveTopology(spec, 0)
    asked, views = count(), cycle([everybody, without_one])
    known = {
        "ours": _each_us(lambda: view(everybody, one, next(asked)), 300),
        "plain": _each_us(lambda: list(graph.neighbors(one)), 300),
    }
    anew = {
        "ours": _each_us(lambda: changing(next(views), one, 0), 10),
        "plain": _each_us(lambda: type(graph)().add_edges_from(edges), 10),
    }
    return [
        _live_row(f"{spec}, {peers:,} peers: same view", known, rounds, "networkx, one kept graph"),
        _live_row(
            f"{spec}, {peers:,} peers: one more or less", anew, rounds, "networkx, edges given"
        ),
    ]


def _live_row(
    name: str, ways: Mapping[str, Callable[[], list[float]]], rounds: int, note: str
) -> Row:
    found = medians(ways, rounds)
    return Row(name=name, ours=found["ours"], reference=found["plain"], unit="us", note=note)


def _each_us(action: Callable[[], object], times: int) -> Callable[[], list[float]]:
    return lambda: [taken_s * 1e6 for taken_s in timed(action, times)]
