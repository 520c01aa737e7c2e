"""Plans of swarms with plain exchanges only."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import strategies as st

from rumor.gossip import ProtocolConfig, Rule
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.sim.kernel.plan import FleetPlan, worker_names
from rumor.sim.models.links import Links
from rumor.sim.models.network import NetworkConfig
from rumor.sim.models.step_time import make_step_time
from rumor.sim.models.topology import WorkerTopology
from rumor.topology import parse

__all__ = ["PACES", "flat", "plan_of", "settings_of_plans"]

TOPOLOGIES = (
    "ring", "complete", "star", "exponential", "one-peer-exponential", "random-regular:d=4",
    "path", "base-k:k=2",
)  # fmt: skip
PACES = ("constant", "lognormal:cv=0.5", "pareto:shape=2.2")


def plan_of(
    n: int = 8,
    *,
    steps: int | None = 20,
    rule: str | Rule = "gosgd",
    p: float = 1.0,
    topology: str = "complete",
    pace: str = "constant",
    speeds: str | None = None,
    latency_s: float = 0.001,
    bandwidth_mbit: float | None = 1000.0,
    downlink_mbit: float | None = None,
    network: NetworkConfig | None = None,
    slow: Sequence[str] = (),
    numbers: int = 8,
    seed: int = 0,
    steps_total: int | None = None,
    exchange_s: float = 0.0,
    scales_lr: bool = False,
    step_s: float = 0.1,
    **protocol: Any,
) -> FleetPlan:
    """The plan of a swarm with plain exchanges only."""
    ids = worker_names(n)
    network = network or NetworkConfig(
        latency_s=latency_s, bandwidth_mbit=bandwidth_mbit, downlink_mbit=downlink_mbit
    )
    named = partial(make_rule, str(rule), p if str(rule).startswith("gosgd") else None)
    return FleetPlan(
        ids=ids,
        schema=Schema((TensorSpec("x", (numbers,), "float32"),)),
        anchor=bytes(16),
        rule=named if isinstance(rule, str) else lambda: rule,
        neighbors=WorkerTopology(parse(topology, n, seed=seed), ids),
        pace=make_step_time(pace, ids=ids, step_s=step_s, speeds=speeds, slow=slow, seed=seed),
        links=partial(Links, network, ids, seed),
        seed=seed,
        steps=steps,
        steps_total=steps_total,
        exchange_s=exchange_s,
        lr_factor=lr_factor if scales_lr else None,
        protocol=ProtocolConfig(shared_memory=False, **protocol),
    )


def lr_factor(steps: int, swarm_steps: int, time_s: float) -> float:
    """A factor of the learning rate that depends on each of its possible arguments."""
    return 1 / (1 + steps + 100 * swarm_steps) + time_s


def settings_of_plans() -> st.SearchStrategy[dict[str, Any]]:
    """Settings for `plan_of`, from calm networks to some on which every answer is late."""
    return st.fixed_dictionaries(
        {
            "n": st.integers(5, 14),
            "steps": st.integers(1, 25),
            "p": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
            "topology": st.sampled_from(TOPOLOGIES),
            "pace": st.sampled_from(PACES),
            "latency_s": st.sampled_from([0.0, 0.001, 0.05, 0.3, 2.0]),
            "bandwidth_mbit": st.sampled_from([None, 1000.0, 1.0, 0.02]),
            "downlink_mbit": st.sampled_from([None, math.inf, 100.0, 0.1]),
            "numbers": st.sampled_from([8, 2_400]),
            "inline_bytes_max": st.sampled_from([1 << 18, 1]),
            "seed": st.integers(0, 1000),
            "step_s": st.sampled_from([0.1, 2.0]),
            "steps_total": st.sampled_from([None, 1, 60]),
            "exchange_s": st.sampled_from([0.0, 0.01]),
            "scales_lr": st.booleans(),
            "staged_max": st.sampled_from([1, 2, 8]),
            "wire": st.sampled_from(["float32", "bfloat16", "int8", "topk:0.1"]),
            "rule": st.sampled_from(
                ["gosgd", "gosgd:emission=per-second", "sgp"]
                + [f"{rule}:outstanding_max={most}" for rule in ("gosgd", "sgp") for most in (1, 5)]
            ),
        }
    )


def flat(levels: Any) -> list[tuple[Any, ...]]:
    """Levels as plain values."""
    return [
        (level.workers, level.steps, [tuple(each) for each in level.operations]) for level in levels
    ]
