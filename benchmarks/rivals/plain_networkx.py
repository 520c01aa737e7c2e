"""One measurement of ``topology``, in a process that loads nothing else: run as a script.

The package around it loads torch, which would be most of the memory.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from rumor.topology import Topology, facts, parse

__all__ = ["find", "measure", "plain"]

_WARM_N = 16


def measure(how: str, spec: str, n: int, times: int) -> dict[str, Any]:
    """Build a topology and find out about it, several times.

    Args:
        how: ``facts``, or ``plain`` for networkx with a dense solver.
        spec: Of a family that 16 nodes will do for as well.
        n: Number of nodes.
        times: How often; a small one before is not counted.

    Returns:
        ``build_s`` and ``taken_s``, lists of seconds; ``peak_mb``, the most memory that the process
        ever had, and ``loaded_mb``, what it had before, both resident, in 10**6 bytes; ``found``.
    """
    _taken(how, parse(spec, _WARM_N))
    loaded_mb = _peak_mb()
    build_s, taken_s = [], []
    for _ in range(times):
        start_s = time.perf_counter()
        topology = parse(spec, n)
        build_s.append(time.perf_counter() - start_s)
        once_s, found = _taken(how, topology)
        taken_s.append(once_s)
    return {
        "build_s": build_s,
        "taken_s": taken_s,
        "loaded_mb": loaded_mb,
        "peak_mb": _peak_mb(),
        "found": found,
    }


def find(topology: Topology) -> list[float | None]:
    """Diameter and contraction, among all that `facts` finds."""
    found = facts(topology)
    return [found.diameter, found.contraction]


def plain(graphs: list[nx.Graph]) -> list[float | None]:
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
    return [nx.diameter(nx.compose_all(graphs)), second ** (2 / len(graphs))]


def _taken(how: str, topology: Topology) -> tuple[float, list[float | None]]:
    """How long it took, seconds, and what was found; making networkx graphs is not counted."""
    action: Callable[[], list[float | None]] = partial(find, topology)
    if how == "plain":
        graphs = [topology.graph(round) for round in range(topology.period or 1)]
        action = partial(plain, graphs)
    start_s = time.perf_counter()
    found = action()
    return time.perf_counter() - start_s, found


def _peak_mb() -> float:
    """The most resident memory of this process so far, in 10**6 bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        # In bytes on macOS; on Linux it would count the process that started this one.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
