"""One cell computed: a simulation, and the facts of its graph, as what JSON has."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ...topology import TopologyError, facts, parse
from ..config import SimulationConfig
from ..memory import peak_rss_mib
from ..run_files import as_json
from ..simulate import simulate

__all__ = ["compute"]

# They depend on the machine, and so would tables. Which engine `auto` takes is a matter of speed.
_OF_THE_MACHINE = ("wall_s", "steps_per_s", "peak_rss_mib", "engine", "engine_why")

_QUANTILES = ("least", "quarter", "median", "three_quarters", "most")


def compute(config: SimulationConfig) -> dict[str, Any]:
    """Run a cell on one core, in this process.

    Args:
        config: What is asked for; its own ``threads`` do not count.

    Returns:
        ``summary``, ``series``, ``facts``, ``wall_s`` and ``peak_rss_mib``, as `Result` has them.

    Raises:
        RumorError: It cannot run.
        TopologyError: Likewise.
    """
    start_s = time.perf_counter()
    # Sums that are shared among threads are rounded otherwise.
    with threadpool_limits(1):
        run = simulate(config, threads=1)
        known = _facts(config)
    summary = {k: v for k, v in run.summary.items() if k not in _OF_THE_MACHINE}
    return {
        "summary": as_json(summary),
        "series": as_json(dict(_curves(run.series))),
        "facts": as_json(known),
        "wall_s": time.perf_counter() - start_s,
        "peak_rss_mib": peak_rss_mib(),
    }


def _facts(config: SimulationConfig) -> dict[str, Any]:
    graph = parse(config.topology, config.workers, seed=config.seed, mixing=config.mixing)
    try:
        return facts(graph).as_json()
    except TopologyError:
        # A few graphs that workers can push along have no facts: they never agree, for one.
        return {}


def _curves(
    series: Mapping[str, NDArray[np.float64]],
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Curves one by one; those of the groups of a partition are left out."""
    for name, values in series.items():
        if name.endswith("_quantiles"):
            for index, at in enumerate(_QUANTILES):
                yield f"{name.removesuffix('_quantiles')}_{at}", values[:, index]
        elif values.ndim == 1:
            yield name, values
