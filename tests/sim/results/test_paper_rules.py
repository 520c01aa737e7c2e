"""Results of papers about the rules: convergence, waiting and staleness."""

from math import ceil, floor, log2
from typing import Any

import numpy as np
import pytest

from rumor.gossip.rules.registry import RULES
from rumor.sim import NetworkConfig, Run, simulate
from rumor.sim.models.step_time import make_step_time

from ...rules import OUTER, PLAIN_SGD, fitting, topology_of

# A power of two, of which sums are exact.
STEP_S = 0.125

SYNCHRONOUS = ("allreduce", "dpsgd")
ASYNCHRONOUS = ("gosgd", "sgp", "adpsgd")


def plain_sgd_settings(rule: str) -> dict[str, float]:
    """Settings of a rule that needs plain SGD: steps are as long as with the tasks' momentum."""
    rates = {"qg-dsgdm": 0.2, "decentlam": 0.05, "momentum-tracking": 0.05}
    return {"momentum": 0.0, "lr": rates.get(rule, 0.5)}


@pytest.mark.extended
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_the_optimum_of_least_squares(rule: str) -> None:
    """The loss is the excess of the merged model over the optimum."""
    settings: dict[str, Any] = plain_sgd_settings(rule) if rule in PLAIN_SGD else {"lr": 0.05}
    if rule in OUTER:
        # Momentum within a round and from round to round, of five steps each, would be too much.
        settings = {"momentum": 0.0, "lr": 0.5}
    run = simulate(
        task="quadratic", workers=8, rule=fitting(rule)["rule"], p=0.5 if rule == "gosgd" else None,
        topology=topology_of(rule),
        steps=400 if rule in (*PLAIN_SGD, *OUTER) else 150, eval_every=150, engine="vmap",
        **settings,
    )  # fmt: skip
    assert run.series["loss"][0] > 1
    # Under epidemic learning the mean of all models drifts.
    assert run.summary["loss"] < (1e-3 if rule == "epidemic" else 3e-4)
    # Single workers are about as good, since they agree.
    assert run.series["loss_quantiles"][-1].max() < 1e-2


def consensus_run(rule: str, **settings: Any) -> Run:
    return simulate(task="consensus", rule=rule, step_s=STEP_S, **settings)


@pytest.mark.extended
@pytest.mark.parametrize("n", [2, 7, 8, 12, 16])
def test_a_round_of_allreduce_takes_a_step_and_the_latency_of_each_stage(n: int) -> None:
    """Recursive doubling, Thakur, Rabenseifner and Gropp 2005: floor(log2 n) stages, and two more
    if n is not a power of two."""
    stages = floor(log2(n)) + 2 * (2 ** ceil(log2(n)) != n)
    run = consensus_run(
        "allreduce", workers=n, topology="complete", steps=20,
        network=NetworkConfig(latency_s=STEP_S / 4),
    )  # fmt: skip
    assert run.summary["virtual_time_s"] == 20 * (STEP_S + stages * STEP_S / 4)


@pytest.mark.parametrize(
    ("rule", "topology", "waits"),
    [
        # Lian et al., NeurIPS 2017: neighbors only, all at once.
        ("dpsgd", "ring", 1),
        ("dpsgd", "complete", 1),
        ("dpsgd", "one-peer-exponential", 1),
        *((rule, "ring", 0) for rule in ASYNCHRONOUS),
    ],
)
def test_a_round_takes_a_step_and_the_latency_if_its_rule_waits(
    rule: str, topology: str, waits: int
) -> None:
    latency_s = STEP_S / 4 if waits else 3 * STEP_S
    network = NetworkConfig(latency_s=latency_s)
    run = consensus_run(rule, workers=8, topology=topology, steps=20, network=network)
    assert run.summary["virtual_time_s"] == 20 * (STEP_S + waits * latency_s)
    assert waits or run.summary["idle"] == 0


def test_a_barrier_waits_for_the_slowest_worker_of_each_round() -> None:
    """Each step of n workers takes the maximum of n durations."""
    ids = tuple(f"peer-{index}" for index in range(8))
    pace = make_step_time("pareto:shape=2", ids=ids, step_s=STEP_S, seed=5)
    expected_s = sum(max(pace.step_s(worker, step) for worker in range(8)) for step in range(30))
    run = consensus_run(
        "allreduce", workers=8, topology="complete", steps=30, pace="pareto:shape=2", seed=5,
        network="ideal",
    )  # fmt: skip
    assert run.summary["virtual_time_s"] == pytest.approx(expected_s)
    trained_s = np.mean([sum(pace.step_s(w, step) for step in range(30)) for w in range(8)])
    assert run.summary["idle"] == pytest.approx(1 - trained_s / expected_s, abs=1e-3)


@pytest.mark.parametrize("rule", ASYNCHRONOUS + SYNCHRONOUS)
def test_a_slow_worker_delays_only_workers_that_wait_for_it(rule: str) -> None:
    """Kuehn et al. 2017 (CaffeGPI); Blot et al. 2016."""
    network: dict[str, Any] = {"network": "ideal"} if rule in SYNCHRONOUS else {}
    given: dict[str, Any] = {"topology": "exponential", "time_s": 80 * STEP_S, "slow": ("3:10",)}
    steps = consensus_run(rule, workers=8, steps=None, **given, **network).workers["steps"]
    if rule in ASYNCHRONOUS:
        assert steps.tolist() == [80, 80, 80, 8, 80, 80, 80, 80]
        return
    # Neighbors of neighbors may be some rounds ahead, but no further than they are apart.
    assert steps.min() == 8
    assert steps.max() <= 8 + (3 if rule == "dpsgd" else 1)


def test_staleness_equals_the_steps_within_the_latency() -> None:
    """A share in flight for k steps is k steps behind its receiver, rounded up."""
    for k in (1, 2, 4):
        run = consensus_run(
            "gosgd", p=0.1, workers=8, topology="complete", steps=100,
            network=NetworkConfig(latency_s=(k - 0.5) * STEP_S),
        )  # fmt: skip
        assert run.summary["staleness_steps"] == k
