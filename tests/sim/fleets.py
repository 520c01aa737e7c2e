"""Small fleets with faults, for tests of fleets and of faults."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rumor.gossip.config import timing
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.plan import FaultPlan, FleetPlan, worker_names
from rumor.sim.models.links import Links
from rumor.sim.models.network import NetworkConfig, read_network
from rumor.sim.models.topology import VIEWS_KEPT
from rumor.topology.live import LiveTopology
from rumor.train.faults.schedule import read_faults, resolve

from ..faults import Fault
from .kernel.fast_path import plans

__all__ = ["LARGE", "SMALL", "fleet_of", "live_on", "plan_of"]

SMALL = Schema((TensorSpec("x", (8,), "float32"),))
LARGE = Schema((TensorSpec("x", (1 << 19,), "float32"),))
"""2 MiB: too much for one message."""


def plan_of(
    faults: Sequence[Fault],
    *,
    n: int = 4,
    steps: int | None = 300,
    rule: str = "gosgd",
    p: float = 0.5,
    network: NetworkConfig | str = "lan",
    schema: Schema = SMALL,
    seed: int = 0,
    **settings: Any,
) -> FleetPlan:
    """The plan of a fleet with faults."""
    read = read_faults(faults)
    resolved = resolve(read, worker_names(n))
    fault_plan = FaultPlan(faults=resolved, founders=n, checkpoint_every_s=2.0)
    ids = worker_names(n, fault_plan)
    found = read_network(network) if isinstance(network, str) else network
    return replace(
        plans.plan_of(n, steps=steps, rule=rule, p=p, seed=seed, **timing("local")),
        ids=ids,
        schema=schema,
        neighbors=LiveTopology("complete", seed, VIEWS_KEPT),
        links=partial(Links, found, ids, seed),
        fault_plan=fault_plan,
        **settings,
    )


def fleet_of(*faults: Fault, **settings: Any) -> Fleet:
    """A fleet that is about to start."""
    return Fleet(plan_of(faults, **settings))


def live_on(fleet: Fleet, until_s: float = 400.0, every_s: float = 0.05) -> Fleet:
    """Run the fleet until it is over or *until_s*, and audit all units repeatedly."""
    while not fleet.over and fleet.now < until_s:
        fleet.run(min(until_s, fleet.now + every_s), 10**9)
        found = fleet.audit()
        assert found.balanced, f"at {fleet.now:g} s: {found}"
    return fleet
