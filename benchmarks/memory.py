"""``memory``: what a dead neighbor costs, in memory and in pauses."""

import logging
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final

from .dead_neighbor import available_bytes, fitting, growth, plain_growth
from .machine import machine
from .pauses import pauses
from .result import Result, Row
from .timing import percentile

__all__ = ["DEATHS", "Death", "measure_memory"]

_log = logging.getLogger("rumor.benchmarks")

Death = tuple[signal.Signals, bool]
"""The signal that brings it about, and whether shares went through shared memory."""

DEATHS: Final[Mapping[str, Death]] = {
    "killed, TCP": (signal.SIGKILL, False),
    "killed, shared memory": (signal.SIGKILL, True),
    "stopped with its connections open, TCP": (signal.SIGSTOP, False),
}
"""Ways for a neighbor to fall silent."""


def measure_memory(
    size_mb: float = 4,
    pushes: int = 1000,
    peers: int = 4,
    p: float = 0.1,
    step_s: float = 0.01,
    watch_s: float = 10.0,
    deaths: Mapping[str, Death] = DEATHS,
) -> Result:
    """Push toward a neighbor that is dead, and kill one of several that train.

    Args:
        size_mb: Size of the float32 vector, 10**6 bytes.
        pushes: Due toward the dead neighbor.
        peers: How many train, of which one is killed.
        p: Probability of a push at a step of theirs.
        step_s: How long their optimizer steps sleep, seconds.
        watch_s: How long they are watched before the kill, and after.
        deaths: Ways for the neighbor to fall silent, toward which pushes are due.
    """
    start_s = time.perf_counter()
    size_bytes = int(size_mb * 1e6) // 4 * 4
    rows: list[Row] = []
    # Resident memory is read from the Linux kernel's own files.
    if sys.platform == "linux":
        rows.extend(_dead_neighbor(size_bytes, pushes, deaths))
    rows.extend(_kill(peers, size_bytes // 4, p, step_s, watch_s))
    return Result(
        name="memory",
        title=f"What a dead neighbor costs the living; vectors of {size_mb:g} MB",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _dead_neighbor(size_bytes: int, pushes: int, deaths: Mapping[str, Death]) -> Iterator[Row]:
    sent = fitting(pushes, size_bytes, available_bytes())
    _log.info("pushing toward a dead neighbor: plain ZeroMQ, %d times", sent)
    plain = plain_growth(size_bytes, sent) * pushes / sent
    extrapolated = "" if sent == pushes else f", extrapolated from {sent} pushes"
    for name, (how, shared_memory) in deaths.items():
        _log.info("pushing toward a dead neighbor: %s", name)
        found = growth(size_bytes, pushes, how, shared_memory=shared_memory)
        yield Row(
            name=f"growth in {pushes:,} pushes toward one {name}",
            ours=found["grown_bytes"] / 1e6,
            reference=plain / 1e6,
            unit="MB",
            note=f"a plain DEALER toward one killed{extrapolated}; ours: {found['pushed']} begun, "
            f"{found['skipped']} skipped, another neighbor served meanwhile",
        )


def _kill(peers: int, n_params: int, p: float, step_s: float, watch_s: float) -> Iterator[Row]:
    _log.info("killing one of %d peers", peers)
    found = pauses(peers, n_params, p, step_s, watch_s)
    for name, percent in {"longest": 100.0, "p99": 99.0, "median": 50.0}.items():
        yield Row(
            name=f"{name} step() of the survivors, one of {peers} killed",
            ours=percentile(found.after_s, percent) * 1e3,
            reference=percentile(found.before_s, percent) * 1e3,
            unit="ms",
            note=f"the same {watch_s:g} s before; {len(found.after_s)} and {len(found.before_s)} "
            "steps",
        )
