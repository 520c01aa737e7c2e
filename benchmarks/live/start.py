"""``start``: from ``rumor launch`` to the first step of its last peer, next to ``import torch``."""

import logging
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from rumor.train.storage.jsonl import read_metrics

from ..harness import Result, Row, alternate, timed

__all__ = ["measure_start"]

_log = logging.getLogger(__name__)

# With -P, a module in the working directory cannot shadow one of theirs.
_LAUNCH: Final = (sys.executable, "-P", "-m", "rumor.cli", "launch", "--task", "digits")
_IMPORT: Final = (sys.executable, "-P", "-c", "import torch")
_STEPS: Final = ("--steps", "10", "--set", "step_s_min=0.01")
_TIMEOUT_S: Final = 300.0


def measure_start(peers: tuple[int, ...] = (1, 4, 16), rounds: int = 3) -> Result:
    """Launch swarms on the task ``digits``, and measure when each peer wrote its first row."""
    importing = partial(timed, partial(subprocess.run, _IMPORT, check=True))
    launches = {n: partial(_first_step, n) for n in peers}
    found = alternate({0: importing, **launches}, rounds)
    reference = median(found[0])
    return Result(
        name="start",
        title="From `rumor launch` to the first step of the last peer; less is better",
        rows=tuple(
            Row(
                name=f"{n} {'peer' if n == 1 else 'peers'}",
                ours=median(found[n]),
                reference=reference,
                unit="s",
                note=f"import torch; {median(found[n]) - reference:.1f} s more",
            )
            for n in peers
        ),
    )


def _first_step(peers: int) -> list[float]:
    """Return the seconds from the command to the first step of the last of *peers*."""
    _log.info("starting %d peers", peers)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        started_s = time.time()
        done = subprocess.run(
            (*_LAUNCH, "--peers", str(peers), *_STEPS, "--out", str(out)),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        if done.returncode:
            raise RuntimeError(f"rumor launch ended with {done.returncode}: {done.stderr[-500:]}")
        first = [read_metrics(path)[:1] for path in out.glob("peers/*/metrics.jsonl")]
    taken_s = [row["unix_s"] - started_s for rows in first for row in rows]
    if len(taken_s) != peers:
        raise RuntimeError(f"{len(taken_s)} of {peers} peers took a step")
    return [max(taken_s)]
