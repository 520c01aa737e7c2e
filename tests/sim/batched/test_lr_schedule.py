"""Learning rates that change during training, by the same clocks as live peers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rumor.sim import simulate
from rumor.train.config import RunConfig
from rumor.train.loop.learner import Learner
from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task

from ...faults import fault

SCHEDULE = "cosine:warmup=0.2,floor=0.1"


def recorded(rates: list[float]) -> Task:
    """Digits, with a record of each step's learning rate."""

    class Noting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    def make(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return Noting(parameters, lr)

    return replace(load_task("digits", seed=0), optimizer=make, lr=1.0)


def rates_of(**settings: Any) -> list[float]:
    """The learning rates of a run's steps, as it computes them."""
    rates: list[float] = []
    given: dict[str, Any] = {"workers": 1, "lr": 1.0, "threads": 1, "engine": "loop"}
    given |= {"lr_schedule": "linear", "tested": 1, "workers_tested": 0}
    simulate(task=recorded(rates), **given | settings)
    return rates


def test_one_worker_trains_like_a_live_peer_to_the_last_bit() -> None:
    learner = Learner(
        RunConfig(task="digits", steps=15, device="cpu", lr_schedule=SCHEDULE, seed=3), "peer-0"
    )
    learner.start()
    for _ in range(15):
        learner.step()
    run = simulate(task="digits", workers=1, steps=15, lr_schedule=SCHEDULE, seed=3)
    assert run.model is not None
    live = learner.model.state_dict()
    assert all(torch.equal(run.model[name], tensor) for name, tensor in live.items())
    assert run.summary["lr_schedule"] == SCHEDULE


def test_rates_follow_the_own_steps_of_a_worker() -> None:
    assert rates_of(steps=4) == [1.0, 0.75, 0.5, 0.25]
    # A slow worker's clock is its own.
    rates = rates_of(workers=2, steps=4, slow=("1:3",))
    assert sorted(rates) == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]


def test_rates_follow_the_clock_of_the_swarm_under_total_steps() -> None:
    rates = rates_of(workers=4, steps=None, total_steps=40, slow=("3:4",))
    known = 40 * (1 - np.array(rates))
    assert rates[0] == 1.0 and min(rates) < 0.15 and len(rates) >= 40
    np.testing.assert_allclose(known, known.round(), atol=1e-9)
    assert sorted(rates, reverse=True) == pytest.approx(rates, abs=0.2)


def test_rates_follow_time_if_only_time_ends_the_run() -> None:
    assert rates_of(time_s=1.0, step_s=0.25) == pytest.approx([0.75, 0.5, 0.25, 0.0])


def test_a_restarted_worker_follows_the_clock_of_the_swarm() -> None:
    faults = [fault(1.0, "crash", 1), fault(2.0, "restart", 1)]
    settings = {"workers": 3, "total_steps": 100, "step_s": 0.1, "checkpoint_every_s": 0.1}
    rates = rates_of(**settings, faults=faults, topology="complete")
    assert len(rates) >= 100 and sorted(rates, reverse=True) == pytest.approx(rates, abs=0.2)


def test_a_run_may_override_the_schedule_of_its_task() -> None:
    rates: list[float] = []
    task = replace(recorded(rates), lr_schedule="linear")
    simulate(task=task, workers=1, steps=2, threads=1)
    assert rates == [1.0, 0.5]
    rates.clear()
    simulate(task=task, workers=1, steps=2, threads=1, engine="loop", lr_schedule="constant")
    assert rates == [1.0, 1.0]
