"""``start``: from ``rumor launch`` to the first step of its last peer, beside ``import torch``."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from ...train.storage.jsonl import read_metrics
from ..results import Result, Row, alternate

__all__ = ["measure_start"]

_log = logging.getLogger("rumor.benchmarks")

_LAUNCH: Final = (sys.executable, "-P", "-m", "rumor.cli", "launch")
_IMPORT: Final = (sys.executable, "-P", "-c", "import torch")
_STEPS: Final = 10
_STEP_S: Final = 0.01
_PATIENCE_S: Final = 300.0


def measure_start(
    peers: Sequence[int] = (1, 4, 16), rounds: int = 3, launch: Sequence[str] = _LAUNCH
) -> Result:
    """Launch swarms on the task ``digits``, and look when each peer wrote its first row.

    Args:
        peers: How many at a time.
        rounds: How often each number has its turn.
        launch: The command.

    Raises:
        RuntimeError: A launch failed, or a peer took no step.
    """
    ways: dict[str, Callable[[], list[float]]] = {
        str(n): partial(_first_step, n, launch) for n in peers
    }
    found = alternate({**ways, "import": _import_torch}, rounds)
    reference = median(found["import"])
    rows = [
        Row(
            name=f"{n} {'peer' if n == 1 else 'peers'}",
            ours=median(found[str(n)]),
            reference=reference,
            unit="s",
            note=f"import torch; {median(found[str(n)]) - reference:.1f} s more",
        )
        for n in peers
    ]
    return Result(
        name="start",
        title="From `rumor launch` to the first step of the last peer; less is better",
        rows=tuple(rows),
    )


def _import_torch() -> list[float]:
    start_s = time.perf_counter()
    subprocess.run(_IMPORT, check=True)
    return [time.perf_counter() - start_s]


def _first_step(peers: int, launch: Sequence[str]) -> list[float]:
    """Seconds from the command to the first step of the last of *peers*."""
    _log.info("starting %d peers", peers)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        options = ("--peers", str(peers), "--steps", str(_STEPS), "--step-s-min", str(_STEP_S))
        started_s = time.time()
        done = subprocess.run(
            (*launch, "--task", "digits", *options, "--out", str(out)),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env={"OMP_NUM_THREADS": "1", **os.environ},
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"rumor launch ended with {done.returncode}: {done.stderr[-500:]}")
        first = [read_metrics(path)[:1] for path in out.glob("peers/*/metrics.jsonl")]
    taken_s = [row["unix_s"] - started_s for rows in first for row in rows]
    if len(taken_s) != peers:
        raise RuntimeError(f"{len(taken_s)} of {peers} peers took a step")
    return [max(taken_s)]
