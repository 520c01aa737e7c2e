"""Regressions: bugs of simulations that must not come back."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from rumor.gossip import TrainingError
from rumor.sim import simulate
from rumor.sim.batched.vector_tasks import consensus
from rumor.train.tasks.task import Task


def task(model: Any) -> Task:
    generator = torch.Generator().manual_seed(0)
    sides = torch.randn(40, 4, generator=generator), torch.randint(2, (40,), generator=generator)
    given: dict[str, Any] = {"lr": 0.1, "batch_size": 8, "steps": 6, "train": sides, "test": sides}
    return Task(name="small", model=model, loss=functional.cross_entropy, **given)


@pytest.mark.parametrize("topology", ["complete", "one-peer-exponential"])
def test_peers_that_query_each_other_at_the_same_time_agree(topology: str) -> None:
    settings: dict[str, Any] = {"rule": "adpsgd", "topology": topology}
    series = simulate(task="consensus", workers=8, steps=120, **settings).series["disagreement"]
    assert series[-1] < 1e-6 * series[0]
    # And two peers do not swap forever.
    pair = simulate(task=consensus([[0.0], [1.0]]), workers=2, steps=40, **settings)
    assert pair.series["disagreement"][-1] < 1e-12


def test_a_lost_offer_is_repeated_to_a_waiting_peer() -> None:
    wide = task(lambda: nn.Sequential(nn.Linear(4, 10_000), nn.ReLU(), nn.Linear(10_000, 2)))
    run = simulate(
        task=wide, workers=4, rule="allreduce", network="lan", loss=0.1, steps=6, engine="loop"
    )
    assert run.workers["steps"].tolist() == [6] * 4


def test_a_barrier_over_a_dead_link_ends_with_a_reason() -> None:
    with pytest.raises(TrainingError, match="waited for one another for 300 virtual seconds"):
        simulate(task="consensus", workers=2, rule="dpsgd", topology="ring", loss=1.0, steps=2)


def test_a_waiting_peer_learns_that_the_others_have_finished() -> None:
    settings: dict[str, Any] = {"rule": "noloco:h=32", "topology": "random-matching", "step_s": 3.0}
    ends: dict[str, Any] = {"speeds": "1x:50%,0.1x:50%", "total_steps": 512}
    assert simulate(task="consensus", workers=8, **settings, **ends).summary["steps"] >= 512


class WithExtraState(nn.Linear):
    """A module with extra state that is not a tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_extra_state_of_a_module_is_left_alone() -> None:
    run = simulate(
        task=task(lambda: WithExtraState(4, 2)), workers=2, topology="ring", engine="loop"
    )
    assert run.model is not None and set(run.model) == {"weight", "bias"}


@pytest.mark.extended
@pytest.mark.parametrize(
    "settings",
    [{"slow": ("0:100",)}, {"network": "wan", "rule": "dpsgd", "latency_s": 5.0}],
    ids=["straggler", "barrier over slow links"],
)
def test_long_runs_are_measured_less_often(settings: dict[str, Any]) -> None:
    run = simulate(task="consensus", workers=4, topology="ring", steps=40, **settings)
    assert 15 <= len(run.series["time_s"]) <= 300


def test_the_pace_of_a_finished_worker_does_not_depend_on_one_draw() -> None:
    run = simulate(
        task="consensus", workers=16, topology="ring", steps=30, pace="lognormal:cv=5", p=0.1
    )
    longest_s = run.summary["virtual_time_s"]
    assert run.summary["pushes"] < 16 * (30 + longest_s / 0.1) * 0.1 * 1.5
