"""Workers share the Python attributes of a model: a step that changes some is refused."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.train import Task

INPUTS = torch.randn(160, 8, generator=torch.Generator().manual_seed(0))
TARGETS = (INPUTS[:, 0] > 0).long()


class Stateful(nn.Module):
    """Keeps something of each call: *count* says what."""

    def __init__(self, count: Callable[["Stateful"], float]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.count = count
        self.calls, self.log, self.iterator = 0, list[int](), itertools.count(1)
        self.unsaved: Tensor
        self.saved: Tensor
        self.last: Any = None
        self.register_buffer("unsaved", torch.zeros(1), persistent=False)
        self.register_buffer("saved", torch.zeros(1, dtype=torch.int64))
        self.draws = np.random.default_rng(7)
        self.chance = torch.Generator().manual_seed(7)

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.layer(x) / (1 + 0.01 * self.count(self))
        return scale


def by_number(model: Stateful) -> float:
    model.calls += 1
    return model.calls


def by_list(model: Stateful) -> float:
    model.log.append(1)
    return len(model.log)


def by_iterator(model: Stateful) -> float:
    return next(model.iterator)


def by_unsaved_buffer(model: Stateful) -> float:
    model.unsaved.add_(1)
    return float(model.unsaved)


def by_numpy(model: Stateful) -> float:
    return float(model.draws.random())


def by_torch(model: Stateful) -> float:
    return float(torch.rand(1, generator=model.chance))


def now_and_then(model: Stateful) -> float:
    """It counts, but not in the first steps."""
    by_saved_buffer(model)
    model.calls += int(model.saved) % 9 == 8
    return model.calls


def by_saved_buffer(model: Stateful) -> float:
    model.saved += model.training
    return float(model.saved)


def at_first(model: Stateful) -> float:
    model.calls = 1
    return 0.0


def of_last_step(model: Stateful) -> float:
    model.last = model.layer(INPUTS[:1])
    return 0.0


class Counting(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["calls"] = group.get("calls", 0) + 1
        return super().step(closure)


class Counted(nn.CrossEntropyLoss):
    calls = 0

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input, target)


def simulated(
    count: Callable[[Stateful], float] = at_first,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    optimizer: type[torch.optim.SGD] = torch.optim.SGD,
    **settings: Any,
) -> Any:
    task = Task(
        name="stateful",
        model=lambda: Stateful(count),
        train=(INPUTS[:120], TARGETS[:120]),
        test=(INPUTS[120:], TARGETS[120:]),
        loss=loss,
        optimizer=lambda parameters, lr: optimizer(parameters, lr=lr),
        lr=0.5,
        batch_size=5,
        steps=24,
    )
    given: dict[str, Any] = {"workers": 4, "steps": 24, "seed": 3, "engine": "loop", "window": 12}
    return simulate(task=task, **given | settings)


@pytest.mark.parametrize(
    "changes",
    [
        *({"count": count} for count in (by_number, by_list, by_iterator)),
        *({"count": count} for count in (by_unsaved_buffer, by_numpy, by_torch, now_and_then)),
        *({"optimizer": Counting}, {"loss": Counted()}),
    ],
    ids=lambda changes: getattr(next(iter(changes.values())), "__name__", "loss"),
)
def test_a_step_that_changes_attributes_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="changes attributes of the model"):
        simulated(**changes)


@pytest.mark.parametrize("count", [by_saved_buffer, at_first, of_last_step])
def test_buffers_first_calls_and_leftovers_are_no_matter(
    count: Callable[[Stateful], float],
) -> None:
    one, two = (simulated(count, threads=threads) for threads in (1, 2))
    assert one.summary["digest"] == two.summary["digest"]
