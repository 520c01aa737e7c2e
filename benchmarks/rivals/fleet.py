"""One measurement of our own for ``sim``, in a process of its own: run as a script."""

import hashlib
import json
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from rumor.benchmarks.rivals.networks import make
from rumor.gossip.errors import ConfigError
from rumor.sim.batched.values import peak_rss_mib
from rumor.sim.kernel.fast_path import choice
from rumor.sim.kernel.fast_path.compiler import can_compile

__all__ = ["TOPOLOGY", "measure"]

_MB_PER_MIB = 2**20 / 1e6

TOPOLOGY = "random-regular:d=6"
"""Whom a worker may push to; the rival gets the same graph."""

_WARM_N = 8


def measure(
    net: str,
    *,
    workers: int,
    batch_size: int,
    steps: int,
    engine: str,
    threads: int,
    p: float = 1.0,
    longer: int = 1,
    compiled: bool = False,
) -> dict[str, Any]:
    """Simulate GoSGD.

    Set-up and evaluations are not counted, as they are not at the rival: runs of so few steps that
    all of these are proven are subtracted, the quicker of two. They have as much of both.

    Args:
        net: One of `rumor.benchmarks.rivals.networks.NETS`.
        workers: How many.
        batch_size: Samples per step.
        steps: Of the optimizer, for each worker; 2 or more.
        engine: ``auto``, ``batched`` or ``loop``.
        threads: That the simulator may use.
        p: Chance that a step pushes.
        longer: So many times as many steps are taken once more, and those are timed: of what is
            over within a second.
        compiled: Whether machine code may decide and compute; else as if numba were not installed.

    Returns:
        ``steps``, over all workers, but for the first ones, which are set-up, and ``wall_s`` that
        they took (set-up and all where that was too short to tell apart); ``whole_s``, the call
        with *steps* as a whole; ``accuracy`` of the merged model; ``digest`` of its parameters;
        ``loaded_mb`` and ``peak_mb``, the most resident memory before the simulation and in all, in
        10**6 bytes; ``engine`` that was used, and ``why``. Only ``failed``, a line that says why,
        where that engine is not to be had.
    """
    # What is only done once, a small simulation has done before.
    how = {"engine": engine, "threads": threads, "decide": "auto", "p": p}
    if not compiled:
        vars(choice)["can_compile"] = lambda: False
    try:
        _simulate(net, _WARM_N, batch_size, 2, how)
        if compiled:
            # Of models that are too large for its fast path, machine code only takes the steps.
            how |= _decided_by_machine_code(net, batch_size, how)
    except ConfigError as error:
        return {"failed": str(error)}
    loaded_mb = peak_rss_mib() * _MB_PER_MIB
    bare = min(max(1, steps // 4), math.ceil(choice.STEPS_PROVEN / workers))
    bare_s = min(_simulate(net, workers, batch_size, bare, how).summary["wall_s"] for _ in range(2))
    start_s = time.perf_counter()
    run = _simulate(net, workers, batch_size, steps, how)
    whole_s = time.perf_counter() - start_s
    summary = timed = run.summary
    if longer > 1:
        timed = _simulate(net, workers, batch_size, steps * longer, how).summary
    return {
        "steps": timed["steps"] - workers * bare,
        "wall_s": timed["wall_s"] - (bare_s if bare_s < timed["wall_s"] else 0.0),
        "whole_s": whole_s,
        "accuracy": summary["accuracy"],
        "digest": _digest(run.model),
        "loaded_mb": loaded_mb,
        "peak_mb": peak_rss_mib() * _MB_PER_MIB,
        "engine": summary["engine"],
        "why": summary["engine_why"],
    }


def _simulate(net: str, workers: int, batch_size: int, steps: int, how: Mapping[str, Any]) -> Any:
    from rumor.sim import simulate

    return simulate(
        task=make(net),
        workers=workers,
        topology=TOPOLOGY,
        rule="gosgd",
        batch_size=batch_size,
        steps=steps,
        partition="shared",
        network="lan",
        **how,
        # No more measurements than there must be.
        eval_every=steps,
        seed=0,
    )


def _decided_by_machine_code(
    net: str, batch_size: int, how: Mapping[str, Any]
) -> Mapping[str, Any]:
    """How to have it decide where it can.

    Raises:
        ConfigError: numba is not installed.
    """
    if not can_compile():
        raise ConfigError("numba is not installed")
    asked = {"decide": "compiled"}
    try:
        _simulate(net, _WARM_N, batch_size, 2, {**how, **asked})
    except ConfigError:
        return {}
    return asked


def _digest(model: Mapping[str, torch.Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(model):
        found.update(model[name].contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
