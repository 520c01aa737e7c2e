"""A swarm of vectors under any rule, measured point by point: the core of `simulate`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rumor.gossip import ProtocolConfig, Rule
from rumor.sim import NetworkConfig
from rumor.sim.batched.schedule import Reading, Scheduler
from rumor.sim.batched.vector_tasks import VectorRows, VectorTask
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.plan import worker_names
from rumor.sim.models.network import read_network

from .kernel.fast_path.plans import plan_of

__all__ = ["STEP_S", "Point", "run_bare"]

# A power of two: sums of it are exact, so that workers of one speed stay together.
STEP_S = 0.125

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """The swarm at one measurement."""

    x: Floats
    """Axes ``(worker, dim)``."""
    weights: Floats
    """In founders, escrow not counted, axes ``(worker,)``."""
    reading: Reading

    @property
    def disagreement(self) -> float:
        """Sum of squared distances of the models from their mean, per coordinate."""
        return float(np.square(self.x - self.x.mean(axis=0)).sum() / self.x.shape[1])


def run_bare(
    task: VectorTask,
    rule: Callable[[], Rule],
    *,
    workers: int,
    topology: str,
    steps: int,
    network: str | NetworkConfig = "ideal",
    speeds: str | None = None,
    pace: str = "constant",
    seed: int = 0,
    every: int = 1,
    protocol: ProtocolConfig | None = None,
    shards: int = 1,
) -> Iterator[Point]:
    """Run any rule; return a point at the start and after every few steps.

    Steps are counted at speed 1x, and points lie half a step later.
    """
    ids = worker_names(workers)
    values = VectorRows(task, ids, seed, rule().registers, counts="after the step", shards=shards)
    given: Any = {"topology": topology, "pace": pace, "speeds": speeds, "seed": seed}
    given["network"] = read_network(network) if isinstance(network, str) else network
    plan = replace(
        plan_of(workers, steps=None, step_s=STEP_S, **given),
        schema=values.schema,
        anchor=values.anchor,
        rule=rule,
        protocol=protocol or ProtocolConfig(),
    )
    half_s = STEP_S / 2
    scheduler = Scheduler(
        partial(Fleet, plan),
        every_s=every * STEP_S,
        shift_s=half_s,
        time_s=steps * STEP_S + half_s,
        window=4096,
    )
    for window in iter(scheduler.next_window, None):
        values.execute(window.levels)
        if window.reading is not None:
            weights = window.reading.weight_units.sum(axis=1) / (2**40 * shards)
            yield Point(values.x.copy(), weights, window.reading)
