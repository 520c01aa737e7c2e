"""``simulator``: simulated workers next to a rival at the same work.

Each measurement is a process of its own: ``python -m benchmarks.simulator`` with its settings as
JSON.
"""

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from rumor.gossip.errors import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.values import peak_rss_mib
from rumor.sim.kernel.fast_path import choice
from rumor.sim.results.run import Run
from rumor.topology import parse
from rumor.train.tasks.digits import digits
from rumor.train.tasks.task import Task

from . import rivals
from .harness import Result, Row, alternate

__all__ = ["measure_simulator", "measured"]

_log = logging.getLogger(__name__)

_TOPOLOGY: Final = "random-regular:d=6"
_BATCH: Final = 32
_WARM_N: Final = 8
_MB_PER_MIB: Final = 2**20 / 1e6

# Without these, glibc returns large blocks and allocates them again, faulting every page: it costs
# the rival a fifth with 1,070 hidden units.
_ENVIRONMENT: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "OMP_WAIT_POLICY": "passive",
}

# For each number of hidden units: steps of all workers that take the rival 7 to 15 s, and the
# factor on ours, for them to last long enough to be timed.
_STEPS: Final = {32: 15_000, 1070: 4_000}
_LONGER: Final = {32: 16, 1070: 12}


def measure_simulator(
    workers: tuple[int, ...] = (100, 1000),
    hidden: tuple[int, ...] = (32, 1070),
    steps: int = 0,
    threads: int = 2,
    rounds: int = 5,
) -> Result:
    """Measure our engine next to gossipy-dfl, each in a fresh process; without it, to our loop.

    Args:
        workers: Numbers of workers.
        hidden: Units of the network's one hidden layer: 2.4 k parameters with 32, 80 k with 1070.
        steps: Steps of all workers together; 0: as many as take the rival a quarter of a minute.
        threads: Threads in the rows that show the gain from more than one.
        rounds: Turns of each way.
    """
    rows: list[Row] = []
    for units in hidden:
        for n in workers:
            each = max(2, (steps or _STEPS.get(units, 4000)) // n)
            rows += _next_to_rival(units, n, each, threads, rounds)
    return Result(
        name="simulator",
        title=f"Simulated workers, {_TOPOLOGY}, every step pushing; more steps/s is better",
        rows=tuple(rows),
    )


_Found = dict[str, Any]
"""Results of one run."""


def _next_to_rival(units: int, n: int, steps: int, threads: int, rounds: int) -> Iterator[Row]:
    title = f"64-{units}-10, {n:,} workers"
    _log.info("%s", title)
    loop, rival = "our loop", f"{rivals.GOSSIPY.name} {rivals.GOSSIPY.version}"
    with TemporaryDirectory() as scratch:
        asked = _hand_over(units, n, steps, Path(scratch) / "work.npz")
        ways = {f"threads: {k}": partial(_ours, units, n, steps, k) for k in sorted({1, threads})}
        ways[loop] = partial(_ours, units, n, steps, engine="loop")
        turns = alternate({rival: partial(_theirs, asked), **ways}, rounds)
    found = {
        way: {name: median(turn[name] for turn in each) for name in each[0]}
        for way, each in turns.items()
        if each
    }
    reference = rival if rival in found else loop
    theirs = found[reference]
    for way in ways:
        one = found[way]
        yield Row(
            name=f"{title}, {way}",
            ours=one["rate"],
            reference=theirs["rate"],
            unit="steps/s",
            note=f"{reference}; accuracy {one['accuracy']:.3f} and "
            f"{theirs['accuracy']:.3f}, which took fewer steps; peak memory "
            f"{one['peak_mb']:.0f} and {theirs['peak_mb']:.0f} MB, of which "
            f"{one['loaded_mb']:.0f} and {theirs['loaded_mb']:.0f} are libraries",
        )


def _ours(units: int, n: int, steps: int, threads: int = 1, engine: str = "dense") -> list[_Found]:
    asked = {"hidden": units, "workers": n, "threads": threads, "engine": engine}
    asked["steps"] = steps * (1 if engine == "loop" else _LONGER.get(units, 1))
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(asked)],
        env={**os.environ, **_ENVIRONMENT, "OMP_NUM_THREADS": str(threads)},
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        check=True,
    )
    return [json.loads(done.stdout.splitlines()[-1])]


def _theirs(asked: Mapping[str, Any]) -> list[_Found]:
    environment = {**_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    try:
        return [rivals.measure(rivals.GOSSIPY, "gossipy", asked, environment)]
    except rivals.RivalError as error:
        _log.warning("%s was not measured: %s", rivals.GOSSIPY.name, error)
        return []


def _task(hidden: int) -> Task:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    return replace(digits(), name=f"digits, {hidden} hidden", model=network)


def _hand_over(hidden: int, n: int, steps: int, path: Path) -> dict[str, Any]:
    """Write graph, samples and first parameters to *path*; return the rival's arguments."""
    task = _task(hidden)
    torch.manual_seed(0)
    start = parameters_to_vector(task.model().parameters()).detach()
    arrays = {
        "edges": np.array(list(parse(_TOPOLOGY, n, seed=0).graph(0).edges), np.int64),
        "start": start.numpy(),
        "train_inputs": task.train[0].numpy(),
        "train_targets": task.train[1].numpy(),
        "test_inputs": task.test[0].numpy(),
        "test_targets": task.test[1].numpy(),
    }
    np.savez(path, allow_pickle=False, **arrays)
    asked = {"work": str(path), "n": n, "hidden": hidden, "lr": task.lr}
    return {**asked, "batch_size": _BATCH, "rounds": steps, "threads": 1}


def measured(*, hidden: int, workers: int, steps: int, threads: int, engine: str) -> dict[str, Any]:
    """Simulate GoSGD, in this process.

    Returns:
        ``rate``, steps of all workers per second; ``accuracy`` of the merged model;
        ``loaded_mb`` and ``peak_mb``, peak resident memory before the simulation and in all, in
        10**6 bytes.
    """
    how = {"engine": engine, "threads": threads, "decide": "auto", "p": 1.0}
    run = partial(_simulate, hidden)
    # A small simulation first does everything that happens only once.
    run(_WARM_N, 2, how)
    # Models too large for the fast path are left to the protocols.
    try:
        run(_WARM_N, 2, {**how, "decide": "compiled"})
        how["decide"] = "compiled"
    except ConfigError:
        pass
    loaded_mb = peak_rss_mib() * _MB_PER_MIB
    # Set-up and evaluations are not counted, like the rival's: runs of so few steps that all of
    # these are decided twice are subtracted, the quicker of two. They have as much of both.
    bare = min(max(1, steps // 4), math.ceil(choice.STEPS_VERIFIED / workers))
    bare_s = min(run(workers, bare, how).summary["wall_s"] for _ in range(2))
    found = run(workers, steps, how).summary
    wall_s = found["wall_s"] - (bare_s if bare_s < found["wall_s"] else 0.0)
    return {
        "rate": (found["steps"] - workers * bare) / wall_s,
        "accuracy": found["accuracy"],
        "loaded_mb": loaded_mb,
        "peak_mb": peak_rss_mib() * _MB_PER_MIB,
    }


def _simulate(hidden: int, workers: int, steps: int, how: Mapping[str, Any]) -> Run:
    return simulate(
        task=_task(hidden),
        workers=workers,
        topology=_TOPOLOGY,
        rule="gosgd",
        batch_size=_BATCH,
        steps=steps,
        partition="shared",
        network="lan",
        **how,
        # As few measurements as possible.
        eval_every=steps,
        seed=0,
    )


if __name__ == "__main__":
    print(json.dumps(measured(**json.loads(sys.argv[1]))))
