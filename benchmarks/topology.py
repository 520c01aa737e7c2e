"""``topology``: what facts cost as graphs grow, and what a live view costs a peer.

Facts are measured in a process of their own, which loads nothing else: ``python -m
benchmarks.topology`` with what it is to measure as JSON.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import count, cycle
from pathlib import Path
from statistics import median
from typing import Any, Final

import networkx as nx
import numpy as np

from rumor.topology import Topology, facts, over, parse
from rumor.topology.live import LiveTopology

from .harness import Result, Row, medians, timed

__all__ = ["dense", "measure_topology"]

_log = logging.getLogger(__name__)

_WARM_N: Final = 16


def measure_topology(
    families: tuple[str, ...] = (
        *("ring", "torus", "exponential", "one-peer-exponential", "base-k:k=1", "grid", "tree"),
        *("random-regular:d=4", "small-world", "scale-free", "random-matching"),
    ),
    nodes: tuple[int, ...] = (1_000, 10_000, 100_000),
    viewed: int = 1_000,
    rounds: int = 3,
) -> Result:
    """Measure `facts` next to a dense solver and as n grows, and `LiveTopology` next to networkx.

    Args:
        families: Specs; each takes any n of *nodes*.
        nodes: Sizes of graphs; the dense solver is run at the first of them.
        viewed: Peers of the live view.
        rounds: How often each is measured; once at the last of *nodes*.
    """
    return Result(
        name="topology",
        title="Facts about a graph as it grows, and what a live view costs; less is better",
        rows=(
            *(row for spec in families for row in _facts(spec, nodes, rounds)),
            *(row for spec in families for row in _view(spec, viewed, rounds)),
        ),
    )


def _facts(spec: str, nodes: Sequence[int], rounds: int) -> Iterator[Row]:
    # No single matrix stands for rounds that are drawn at random.
    if parse(spec, nodes[0]).period:
        turns = [
            (_alone("facts", spec, nodes[0], 3), _alone("dense", spec, nodes[0], 1))
            for _ in range(rounds)
        ]
        ours, theirs = zip(*turns, strict=True)
        memory = " and ".join(
            f"{median(one['peak_mb'] for one in way):.0f}" for way in (ours, theirs)
        )
        yield Row(
            name=f"{spec}, n = {nodes[0]:,}",
            ours=median(one["taken_ms"] for one in ours),
            reference=median(one["taken_ms"] for one in theirs),
            unit="ms",
            note="networkx's diameter and the spectrum by numpy alone; peak memory " + memory,
        )
    found = {n: _alone("facts", spec, n, 1 if n == nodes[-1] else rounds) for n in nodes}
    for n, one in found.items():
        yield Row(
            name=f"{spec}, n = {n:,}: growth",
            ours=one["taken_ms"],
            reference=found[nodes[0]]["taken_ms"],
            unit="ms",
            note=f"n = {nodes[0]:,}; parse {one['build_ms']:.3g} ms, peak memory "
            f"{one['peak_mb']:.0f} MB, a dense matrix {8e-6 * n * n:,.0f} MB",
        )


def _alone(how: str, spec: str, n: int, times: int) -> dict[str, float]:
    """Medians of what a fresh process measured, so that its memory is that of this graph."""
    _log.info("%s of %s, n = %d", how, spec, n)
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps([how, spec, n, times])],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(json.loads(done.stdout))


def _measured(how: str, spec: str, n: int, times: int) -> dict[str, float]:
    """Build a topology and find out about it, several times; a small one before is not counted."""
    _taken_s(how, parse(spec, _WARM_N))
    build_s = [timed(lambda: parse(spec, n))[0] for _ in range(times)]
    taken_s = [_taken_s(how, parse(spec, n)) for _ in range(times)]
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak_kb,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return {
        "build_ms": median(build_s) * 1e3,
        "taken_ms": median(taken_s) * 1e3,
        "peak_mb": int(peak_kb) * 1024 / 1e6,
    }


def _taken_s(how: str, topology: Topology) -> float:
    """How long it took, seconds; making networkx graphs is not counted."""
    if how == "facts":
        return timed(lambda: facts(topology))[0]
    graphs = [topology.graph(round) for round in range(topology.period or 1)]
    return timed(lambda: dense(graphs))[0]


def dense(graphs: list[Any]) -> tuple[int, float]:
    """Diameter and contraction of a period's weighted rounds, by networkx and a dense solver."""
    n = len(graphs[0])
    matrices = []
    for graph in graphs:
        # In networkx rows push; here they mix.
        matrix = nx.to_numpy_array(graph, nodelist=range(n)).T
        matrix[np.diag_indices(n)] = 1 - matrix.sum(axis=1)
        matrices.append(matrix)
    product = reduce(lambda earlier, later: later @ earlier, matrices) - 1 / n
    if len(graphs) == 1 and not graphs[0].is_directed():
        second = float(np.abs(np.linalg.eigvalsh(product)).max())
    else:
        second = float(np.linalg.svd(product, compute_uv=False)[0])
    return nx.diameter(nx.compose_all(graphs)), second ** (2 / len(graphs))


def _view(spec: str, peers: int, rounds: int) -> Iterator[Row]:
    _log.info("viewing %s, %d peers", spec, peers)
    # A tuple that stays the same until the view changes, as the protocol hands it over.
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


if __name__ == "__main__":
    print(json.dumps(_measured(*json.loads(sys.argv[1]))))
