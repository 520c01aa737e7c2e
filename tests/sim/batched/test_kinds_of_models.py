"""Simulated workers train wrapped, tied and transposed models exactly as plain training does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from rumor.sim import simulate
from rumor.train import load_task

from .test_exactness import check_same, trained_by_hand


def transposed() -> nn.Module:
    layers: Any = nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))
    layers[0].weight = nn.Parameter(torch.randn(64, 20).t() / 8)
    return nn.Sequential(*layers)


def images() -> nn.Module:
    layers: Any = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return nn.Sequential(*layers.to(memory_format=torch.channels_last))


def tied() -> nn.Module:
    layers: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 10))
    layers[2].weight.data = layers[0].weight.data
    return nn.Sequential(*layers)


def compiled() -> nn.Module:
    layers = nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))
    whole: Any = torch.compile(layers, backend="eager")
    return nn.Sequential(whole)


class Tempered(nn.Module):
    """A model with a scalar parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(inputs) / self.temperature
        return outputs


class Mixture(nn.Module):
    """Counters that are not shared, and two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(64, 12), nn.BatchNorm1d(12))
        self.second = nn.Linear(12, 10).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.second(self.first(inputs).double())
        return outputs


@pytest.mark.extended
@pytest.mark.parametrize("model", [transposed, images, tied, compiled, Tempered, Mixture])
def test_one_worker_equals_plain_training_and_engines_agree_on_several(
    model: Callable[[], nn.Module],
) -> None:
    task = replace(load_task("digits", seed=3), model=model)
    run = simulate(task=task, workers=1, steps=8, seed=3)
    by_hand = trained_by_hand(task, ["peer-0"], 8, seed=3)
    assert run.model is not None and run.model.keys() == by_hand.keys()
    assert all(torch.equal(run.model[name], tensor) for name, tensor in by_hand.items())
    settings: dict[str, Any] = {"task": task, "workers": 3, "steps": 6, "seed": 3, "p": 0.5}
    plain = simulate(**settings, engine="loop", window=1)
    check_same(simulate(**settings, engine="loop", threads=2), plain)
    auto = simulate(**settings)
    check_same(simulate(**settings, threads=2, window=4), auto)
    assert plain.model is not None and auto.model is not None
    # Engines differ only in rounding.
    for name, tensor in plain.model.items():
        torch.testing.assert_close(auto.model[name], tensor, rtol=1e-4, atol=1e-5)
    if auto.summary["engine"] == "loop":
        check_same(auto, plain)
    if model is tied:
        assert torch.equal(plain.model["0.weight"], plain.model["2.weight"])
