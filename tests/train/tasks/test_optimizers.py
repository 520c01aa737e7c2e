"""Optimizers that a task can be trained with, and the description of a task's optimizer."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from rumor.gossip import ConfigError
from rumor.gossip.rules.registry import make_rule
from rumor.sim import simulate
from rumor.train.tasks.digits import digits
from rumor.train.tasks.task import OPTIMIZERS, Task, require_optimizer, trained_by


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_lowers_a_loss(name: str) -> None:
    task = digits().trained_with(optimizer=name)
    torch.manual_seed(0)
    model = task.model()
    optimizer = task.optimizer(model.parameters(), 0.01)
    inputs, targets = task.train
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = task.batch_loss(model, (inputs[:64], targets[:64]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_the_optimizer_of_a_task_is_described() -> None:
    task = digits()
    assert trained_by(task) == {"optimizer": "SGD", "momentum": 0.9, "lr": 0.1}
    assert trained_by(task.trained_with(momentum=0.5), 0.2) == {
        "optimizer": "SGD", "momentum": 0.5, "lr": 0.2,
    }  # fmt: skip
    assert trained_by(task.trained_with(optimizer="nesterov"))["optimizer"] == "SGD (Nesterov)"
    assert trained_by(task.trained_with(optimizer="adam"))["momentum"] is None
    assert trained_by(task.trained_with(optimizer=None, momentum=0.0))["momentum"] == 0.0


def test_unknown_optimizers_and_unsupported_momentum_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown optimizer 'lion'\. Valid names: sgd, nes"):
        digits().trained_with(optimizer="lion")
    message = r"momentum is 0\.5: the task's optimizer, Adam, has none"
    with pytest.raises(ConfigError, match=message):
        trained_by(digits().trained_with(optimizer="adam", momentum=0.5))


def test_an_optimizer_function_is_described_by_its_name() -> None:
    def picky(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
        return SGD([part for part in parameters if part.ndim > 1], lr=lr)

    task = replace(digits(), optimizer=picky)
    assert trained_by(task, 0.3) == {"optimizer": "picky", "momentum": None, "lr": 0.3}


def sgd_with_two_rates(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """SGD with another rate for biases, as in many recipes."""
    parts = [*parameters]
    weights, biases = ([p for p in parts if (p.ndim > 1) is large] for large in (True, False))
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases, "lr": 2 * lr}]
    return SGD([group for group in groups if group["params"]], lr=lr)


@pytest.mark.parametrize("rule", ["d2", "gradient-tracking", "qg-dsgdm"])
def test_a_rule_that_depends_on_the_rate_refuses_several_rates(rule: str) -> None:
    task: Task = replace(digits(), optimizer=sgd_with_two_rates)
    with pytest.raises(
        ConfigError, match=rf"{rule}.* have 2, from 0\.1 to 0\.2: give all the same"
    ):
        require_optimizer(make_rule(rule), task, task.model())
    with pytest.raises(ConfigError, match=r"from 0\.05 to 0\.1: give all"):
        simulate(task=replace(task, lr=0.05), rule=rule, workers=2, steps=1, threads=1)
    require_optimizer(make_rule("dpsgd"), task, task.model())
    require_optimizer(make_rule(rule), task.trained_with(momentum=0.0), nn.Linear(1, 1, bias=False))
