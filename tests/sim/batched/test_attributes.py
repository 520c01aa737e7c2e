"""In the loop each worker has its own model, loss and optimizer, including their attributes."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rumor.gossip import TrainingError
from rumor.sim import Run, simulate
from rumor.train import Task

INPUTS = torch.randn(160, 8, generator=torch.Generator().manual_seed(0))
TARGETS = (INPUTS[:, 0] > 0).long()


class Stateful(nn.Module):
    """A model that changes state in each call, as *count* defines."""

    def __init__(self, count: Callable[["Stateful"], float]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.count = count
        self.calls, self.log = 0, list[int]()
        self.unsaved: Tensor
        self.saved: Tensor
        self.register_buffer("unsaved", torch.zeros(1), persistent=False)
        self.register_buffer("saved", torch.zeros(1, dtype=torch.int64))
        self.draws = np.random.default_rng(7)

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.layer(x) / (1 + 0.1 * self.count(self))
        return scale


def by_number(model: Stateful) -> float:
    model.calls += 1
    return model.calls


def by_new_buffer(model: Stateful) -> float:
    model.saved = model.saved + 1
    return 0.0


by_list: Callable[[Any], float] = lambda model: model.log.append(1) or len(model.log)  # noqa: E731
by_unsaved_buffer: Callable[[Any], float] = lambda model: float(model.unsaved.add_(1))  # noqa: E731
by_saved_buffer: Callable[[Any], float] = lambda m: float(m.saved.add_(m.training))  # noqa: E731
by_generator: Callable[[Any], float] = lambda model: float(model.draws.random())  # noqa: E731


class CountingSGD(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] *= 0.9
        return super().step(closure)


class CountingLoss(nn.CrossEntropyLoss):
    calls = 0

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input, target) / self.calls


def simulated(
    count: Callable[[Stateful], float] = by_saved_buffer,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    optimizer: type[torch.optim.SGD] = torch.optim.SGD,
    **settings: Any,
) -> Run:
    given: dict[str, Any] = {"lr": 0.5, "batch_size": 5, "steps": 24}
    task = Task(
        name="stateful",
        model=lambda: Stateful(count),
        train=(INPUTS[:120], TARGETS[:120]),
        test=(INPUTS[120:], TARGETS[120:]),
        loss=loss,
        optimizer=lambda parameters, lr: optimizer(parameters, lr=lr),
        **given,
    )
    return simulate(task=task, **{"workers": 4, "steps": 24, "seed": 3, "window": 12} | settings)


@pytest.mark.extended
@pytest.mark.parametrize("count", [by_number, by_list, by_unsaved_buffer])
def test_each_worker_counts_its_own_steps(count: Callable[[Stateful], float]) -> None:
    run, expected = simulated(count), simulated(by_saved_buffer)
    assert run.summary["engine"] == "loop"
    assert run.model is not None and expected.model is not None
    assert torch.equal(run.model["layer.weight"], expected.model["layer.weight"])


@pytest.mark.extended
@pytest.mark.parametrize(
    "changes",
    [{"count": by_generator}, {"loss": CountingLoss()}, {"optimizer": CountingSGD}],
    ids=["generator", "loss", "optimizer"],
)
def test_changing_attributes_belong_to_each_worker_on_every_engine(changes: dict[str, Any]) -> None:
    one, two = (
        simulated(**deepcopy(changes), engine="loop", threads=threads, window=window)
        for threads, window in ((1, 5), (2, 12))
    )
    assert one.summary["digest"] == two.summary["digest"]
    assert one.summary["digest"] != simulated(engine="loop").summary["digest"]


@pytest.mark.extended
def test_reassigning_a_buffer_is_an_error_as_in_a_live_run() -> None:
    with pytest.raises(TrainingError, match="assigns saved anew: write into it with copy_"):
        simulated(by_new_buffer, engine="loop")
