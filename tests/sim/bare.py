"""A swarm of vectors under any rule, one measurement after another: what `simulate` wraps up."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rumor.gossip import ProtocolConfig, Rule
from rumor.sim import NetworkConfig
from rumor.sim.batched.schedule import Reading, Scheduler
from rumor.sim.batched.vector_tasks import VectorRows, VectorTask
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.plan import FleetPlan
from rumor.sim.models.links import Links
from rumor.sim.models.network import read_network
from rumor.sim.models.step_time import make_step_time
from rumor.sim.models.topology import WorkerTopology
from rumor.topology import parse

__all__ = ["STEP_S", "Point", "run_bare"]

# A power of two: sums of it are exact, so that workers of one speed stay together.
STEP_S = 0.125

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """The swarm at one measurement."""

    x: Floats
    """Axes ``(worker, dim)``."""
    stepped: Floats
    """As `x`, but right after each worker's last step."""
    weights: Floats
    """In founders, escrow not counted, axes ``(worker,)``."""
    reading: Reading

    @property
    def disagreement(self) -> float:
        """Sum of squared distances from the mean, per coordinate."""
        return float(np.square(self.x - self.x.mean(axis=0)).sum() / self.x.shape[1])

    @property
    def disagreement_stepped(self) -> float:
        """The same right after each worker's last step."""
        x = self.stepped
        return float(np.square(x - x.mean(axis=0)).sum() / x.shape[1])


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
    samples: Sequence[int] = (),
) -> Iterator[Point]:
    """Run a rule of the test's own choice; a point at the start and after every so many steps.

    Steps are counted at speed 1x, and points lie half a step later.
    """
    net = read_network(network) if isinstance(network, str) else network
    width = len(str(workers - 1))
    ids = tuple(f"peer-{index:0{width}d}" for index in range(workers))
    protocol = protocol or ProtocolConfig()
    values = VectorRows(task, ids, seed, rule().registers, counts="after the step", shards=shards)
    plan = FleetPlan(
        ids=ids,
        schema=values.schema,
        anchor=values.anchor,
        rule=rule,
        neighbors=WorkerTopology(parse(topology, workers, seed=seed), ids),
        pace=make_step_time(pace, ids=ids, step_s=STEP_S, speeds=speeds, seed=seed),
        links=partial(Links, net, ids, seed),
        seed=seed,
        steps=None,
        protocol=protocol,
        samples=samples,
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
            yield Point(values.x.copy(), values.counted.copy(), weights, window.reading)
