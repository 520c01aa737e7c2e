"""Optimizer steps within the backward pass equal steps after it, bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from rumor.train.loop.backward import BackwardSteps
from rumor.train.tensors.vector import Vector


class Tied(nn.Module):
    """A layer that is used twice, an unused layer, and a normalization with buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(40, 40)
        self.norm = nn.BatchNorm1d(40)
        self.unused = nn.Linear(40, 40)
        self.last = nn.Linear(40, 40, bias=False)
        self.last.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.last(torch.relu(self.norm(self.first(inputs))))
        return hidden


def deep() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(40, 40), nn.Tanh()) for _ in range(6)))


def compiled() -> Any:
    return torch.compile(deep(), backend="eager")


OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd": lambda model: SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda model: Adam(model.parameters(), lr=1e-2),
    "adamw": lambda model: AdamW(model.parameters(), lr=1e-2),
}


@pytest.mark.extended
@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("make", [deep, compiled, Tied])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parameters_equal_those_of_a_step_after_the_pass(
    optimizer: str, make: Callable[[], nn.Module], shards: int
) -> None:
    def train(overlap: bool) -> tuple[list[Tensor], list[int]]:
        torch.manual_seed(1)
        model, ready, seen = make(), list[int](), dict[int, Tensor]()
        vector = Vector(model, shards=shards)
        made = OPTIMIZERS[optimizer](model)

        def note(shard: int) -> None:
            ready.append(shard)
            seen[shard] = vector.snapshot(shard=shard).clone()

        steps = BackwardSteps(model, made, vector.schema, note) if overlap else None
        for _ in range(4):
            model(torch.randn(8, 40)).square().mean().backward()
            if steps is None:
                made.step()
                made.zero_grad()
            else:
                steps.finish()
                # A shard is announced with its values after the step.
                for shard, numbers in seen.items() if make is not Tied else ():
                    assert torch.equal(vector.snapshot(shard=shard), numbers)
        trained = [flat.clone() for flat in vector.flats]
        if steps is not None:
            steps.close()
            announced = len(ready)
            model(torch.randn(8, 40)).square().mean().backward()
            assert len(ready) == announced
        return trained, ready

    (plain, _), (found, ready) = train(overlap=False), train(overlap=True)
    for one, other in zip(plain, found, strict=True):
        assert torch.equal(one, other)
    if make is not Tied:
        # Each shard is announced once in a pass, those of the last layers first.
        assert ready == [*range(shards - 1, -1, -1)] * 4


def test_a_shard_waits_for_all_tensors_tied_by_data() -> None:
    torch.manual_seed(1)
    model, moved = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)), list[bool]()
    model[1].weight.data = model[0].weight.data
    vector = Vector(model)
    before = vector.flats[0].clone()

    def ready(shard: int) -> None:
        moved.append(model[0].weight.grad is None and not torch.equal(vector.flats[0], before))

    steps = BackwardSteps(model, SGD(model.parameters(), lr=0.1), vector.schema, ready)
    model(torch.randn(8, 40)).square().mean().backward()
    after = vector.flats[0].clone()
    steps.finish()
    assert moved == [True] and torch.equal(vector.flats[0], after), "no step is left for the end"
