"""``sim``: the simulator beside a rival at the same work, and its engines beside each other."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector

from ..sim.kernel.fast_path.compiler import can_compile
from ..topology import parse
from .results import Result, Row
from .rivals import fleet as simulated
from .rivals import gossipy as rival_gossipy
from .rivals.networks import HIDDEN, make
from .rivals.rivals import GOSSIPY, Rival, RivalError
from .rivals.rivals import measure as measure_rival

__all__ = ["measure_sim"]

_log = logging.getLogger("rumor.benchmarks")

_BATCH = 32

# glibc hands large blocks back and fetches them anew, faulting every page: it costs our rival a
# fifth at 80 k parameters.
_ENVIRONMENT: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "OMP_WAIT_POLICY": "passive",
}

# Steps of all workers together that take the rival 7 to 15 seconds.
_STEPS = {"2.4 k": 15_000, "80 k": 4_000}

# So many times as many are taken by ours, which would be over too soon.
_LONGER = {"2.4 k": 4, "80 k": 12}

# And so many times as many of those by what is batched, for its pace: half a second of it tells as
# much of the machine as of us.
_TIMED = {"2.4 k": 4}

# How often a step pushes in the rows that are not beside the rival, which knows only always.
_RARELY = 0.1

# Steps of each worker that take the loop some 5 seconds, and so many that recording is over soon.
_OTHERS = {"LayerNorm": 1200, "LeNet": 60, "LeNet, BatchNorm": 60, "ResNet-20": 24}


def measure_sim(
    sizes: Sequence[int] = (100, 1000),
    nets: Mapping[str, int] | None = None,
    others: Mapping[str, int] | None = None,
    few: int = 16,
    threads: int = 2,
    rounds: int = 5,
    rival: Rival = GOSSIPY,
    cache: Path | None = None,
) -> Result:
    """Measure engines beside gossipy-dfl and beside our own loop, each in a fresh process.

    Args:
        sizes: Numbers of workers.
        nets: Keys of `HIDDEN`, and how many steps all workers together take; every size of them
            for a quarter of a minute of the rival unless given.
        others: Names of other networks, and how many steps each worker takes.
        few: Workers that train those.
        threads: Of the rows that show what more than one brings.
        rounds: Turns of each way; figures are medians.
        rival: What is run as gossipy-dfl.
        cache: Where rivals are installed, as `rivals.install` takes it.
    """
    nets = _STEPS if nets is None else nets
    others = _OTHERS if others is None else others
    made = chain(
        (
            row
            for net, steps in nets.items()
            for n in sizes
            for row in _beside_rival(
                _Work(net, n, max(2, steps // n)), threads, rounds, rival, cache
            )
        ),
        (
            _beside_loop(_Work(net, max(sizes), max(2, steps // max(sizes)), p=_RARELY), rounds)
            for net, steps in nets.items()
        ),
        (_beside_loop(_Work(net, few, steps), rounds) for net, steps in others.items()),
    )
    rows = []
    for row in made:
        # Whoever ends it early has what there is by then.
        beside = f"{row.reference:.4g} of {row.note}"
        _log.info("%s: %.4g %s beside %s", row.name, row.ours, row.unit, beside)
        rows.append(row)
    return Result(
        name="sim",
        title="Simulated workers, every step pushing unless p says less, random-regular:d=6; more "
        "steps/s is better",
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """What one comparison simulates."""

    net: str
    n: int
    steps: int
    """Of each worker."""
    p: float = 1.0
    """Chance that a step pushes."""

    def __str__(self) -> str:
        return f"{self.net}, n = {self.n:,}" + (f", p = {self.p:g}" if self.p != 1 else "")


@dataclass(frozen=True, slots=True)
class _Found:
    """Medians over the turns of one way; all nothing where it could not be run."""

    rate: float = 0.0
    """Steps per second."""
    peak_mb: float = 0.0
    loaded_mb: float = 0.0
    whole_s: float = 0.0
    accuracy: float = 0.0
    engine: str = ""
    """What ran, or why nothing did."""
    why: str = ""
    """Why that engine."""
    digests: frozenset[str] = frozenset()


def _beside_rival(
    work: _Work, threads: int, rounds: int, rival: Rival, cache: Path | None
) -> Iterator[Row]:
    with TemporaryDirectory() as scratch:
        given = Path(scratch) / "work.npz"
        asked = _hand_over(work, given)
        ways: dict[str, Callable[[], dict[str, Any]]] = {
            "rival": partial(_theirs, work, asked, rival, cache),
            "loop": partial(_ours, work, "loop", 1),
            **{
                name: partial(_ours, work, "batched", n, compiled=compiled)
                for name, (compiled, n) in _ways(threads).items()
            },
        }
        found = _in_turn(ways, rounds)
    yield from _rows(work, threads, found)


def _ways(threads: int) -> dict[str, tuple[bool, int]]:
    """Names of ways to batch, with whether there is machine code, and on how many threads."""
    return {
        name if n == 1 else f"{name}, {n} threads": (compiled, n)
        for n in sorted({1, threads})
        for name, compiled in {"batched": False, "batched, compiled": True}.items()
    }


def _beside_loop(work: _Work, rounds: int) -> Row:
    ways = ("auto", "loop")
    found = _in_turn(
        {way: partial(_ours, work, way, 1, compiled=can_compile()) for way in ways}, rounds
    )
    auto, loop = found["auto"], found["loop"]
    return Row(
        name=f"{work}: auto",
        ours=auto.rate,
        reference=loop.rate,
        unit="steps/s",
        note=f"our loop; auto took {auto.engine}: {auto.why}; {_bits(auto, loop)}",
    )


def _rows(work: _Work, threads: int, found: Mapping[str, _Found]) -> Iterator[Row]:
    theirs, loop = found["rival"], found["loop"]
    for name in ("loop", *_ways(threads)):
        ours = found[name]
        if not ours.rate:
            _log.info("%s: no %s: %s", work, name, ours.engine)
            continue
        yield Row(
            name=f"{work}: {name}",
            ours=ours.rate,
            reference=theirs.rate,
            unit="steps/s",
            note=_beside(ours, theirs),
        )
        if name != "loop":
            yield Row(
                name=f"{work}: {name} beside loop",
                ours=ours.rate,
                reference=loop.rate,
                unit="steps/s",
                note=f"our loop; {_bits(ours, loop)}",
            )
    batched = found["batched"]
    yield Row(
        name=f"{work}: peak memory",
        ours=batched.peak_mb,
        reference=theirs.peak_mb,
        unit="MB",
        note=f"{theirs.engine}; {batched.loaded_mb:.0f} and {theirs.loaded_mb:.0f} MB are "
        f"libraries; our loop {loop.peak_mb:.0f} MB",
    )


def _beside(ours: _Found, theirs: _Found) -> str:
    if not theirs.rate:
        return f"{theirs.engine}; accuracy {ours.accuracy:.3f}"
    return (
        f"{theirs.engine}; accuracy {ours.accuracy:.3f} and {theirs.accuracy:.3f}; "
        f"{ours.whole_s:.2f} s with set-up"
    )


def _bits(ours: _Found, loop: _Found) -> str:
    return "the same bits" if ours.digests == loop.digests else "other bits"


def _in_turn(ways: Mapping[str, Callable[[], dict[str, Any]]], rounds: int) -> dict[str, _Found]:
    """Each way in turn, so that a slow minute falls on all; one that cannot be run is left out."""
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name, way in ways.items():
            if turn == 0 or "failed" not in taken[name][-1]:
                taken[name].append(way())
    return {name: _medians(turns) for name, turns in taken.items()}


def _medians(turns: Sequence[Mapping[str, Any]]) -> _Found:
    for turn in turns:
        if "failed" in turn:
            return _Found(engine=turn["failed"])
    return _Found(
        rate=median(turn["steps"] / turn["wall_s"] for turn in turns),
        peak_mb=median(turn["peak_mb"] for turn in turns),
        loaded_mb=median(turn["loaded_mb"] for turn in turns),
        whole_s=median(turn.get("whole_s", 0.0) for turn in turns),
        accuracy=median(turn["accuracy"] for turn in turns),
        engine=turns[0]["engine"],
        why=turns[0].get("why", ""),
        digests=frozenset(turn["digest"] for turn in turns if "digest" in turn),
    )


def _ours(work: _Work, engine: str, threads: int, *, compiled: bool = False) -> dict[str, Any]:
    _log.info("%s: %s, machine code: %s, threads: %d", work, engine, compiled, threads)
    asked = {
        "net": work.net,
        "workers": work.n,
        "batch_size": _BATCH,
        "steps": work.steps * _LONGER.get(work.net, 1),
        "longer": 1 if engine == "loop" else _TIMED.get(work.net, 1),
        "engine": engine,
        "threads": threads,
        "compiled": compiled,
        "p": work.p,
    }
    done = subprocess.run(
        # -P: the folder of this file has modules called topology and result.
        [sys.executable, "-P", simulated.__file__, json.dumps(asked)],
        env={**os.environ, **_environment(threads)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _theirs(
    work: _Work, asked: Mapping[str, Any], rival: Rival, cache: Path | None
) -> dict[str, Any]:
    _log.info("%s: %s", work, rival.name)
    try:
        return measure_rival(rival, rival_gossipy.__file__, asked, _environment(1), cache)
    except RivalError as error:
        _log.warning("%s", error)
        return {"failed": f"{rival.name} was not measured: {error}"}


def _environment(threads: int) -> dict[str, str]:
    return {**_ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}


def _hand_over(work: _Work, path: Path) -> dict[str, Any]:
    """Write graph, samples and first parameters to *path*; what to ask of the rival's script."""
    task = make(work.net)
    torch.manual_seed(0)
    start = parameters_to_vector(task.model().parameters()).detach()
    graph = parse(simulated.TOPOLOGY, work.n, seed=0).graph(0)
    arrays = {
        "edges": np.array(list(graph.edges), np.int64),
        "start": start.numpy(),
        "train_inputs": task.train[0].numpy(),
        "train_targets": task.train[1].numpy(),
        "test_inputs": task.test[0].numpy(),
        "test_targets": task.test[1].numpy(),
    }
    np.savez(path, allow_pickle=False, **arrays)
    return {
        "work": str(path),
        "n": work.n,
        "hidden": HIDDEN[work.net],
        "lr": task.lr,
        "batch_size": _BATCH,
        "rounds": work.steps,
        "threads": 1,
    }
