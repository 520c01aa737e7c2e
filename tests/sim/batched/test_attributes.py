"""Each simulated worker has the Python attributes that a live peer has: its own."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.train import Task

WORKERS, STEPS = 4, 12
INPUTS = torch.randn(160, 8, generator=torch.Generator().manual_seed(0))
TARGETS = (INPUTS[:, 0] > 0).long()


class Annealed(nn.Module):
    """Its temperature rises with each call; *count* says how calls are counted."""

    def __init__(self, count: Callable[["Annealed"], float]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.count = count
        self.calls = self.extra = 0
        self.log: list[int] = []
        self.iterator = itertools.count(1)
        self.plain = torch.zeros(2)
        self.unsaved: Tensor
        self.saved: Tensor
        self.made: Any
        self.register_buffer("unsaved", torch.zeros(1), persistent=False)
        self.register_buffer("saved", torch.zeros(1, dtype=torch.int64))
        self.draws = np.random.default_rng(7)
        self.chance = torch.Generator().manual_seed(7)

    def get_extra_state(self) -> dict[str, int]:
        return {"extra": self.extra}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.extra = state["extra"]

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.layer(x) / (1 + 0.01 * self.count(self))
        return scale


def by_saved_buffer(model: Annealed) -> float:
    """What rows hold for each worker."""
    if model.training:
        model.saved += 1
    return float(model.saved)


def by_number(model: Annealed) -> float:
    model.calls += 1
    return model.calls


def by_new_attribute(model: Annealed) -> float:
    model.made = getattr(model, "made", 0) + 1
    return float(model.made)


def by_list(model: Annealed) -> float:
    model.log.append(1)
    return len(model.log)


def by_iterator(model: Annealed) -> float:
    return next(model.iterator)


def by_plain_tensor(model: Annealed) -> float:
    model.plain.add_(1)
    return float(model.plain[0])


def by_unsaved_buffer(model: Annealed) -> float:
    model.unsaved.add_(1)
    return float(model.unsaved)


def by_other_buffer(model: Annealed) -> float:
    model.unsaved = model.unsaved + 1
    return float(model.unsaved)


def by_extra_state(model: Annealed) -> float:
    model.extra += 1
    return model.extra


def by_numpy(model: Annealed) -> float:
    return float(model.draws.random())


def by_torch(model: Annealed) -> float:
    return float(torch.rand(1, generator=model.chance))


def now_and_then(model: Annealed) -> float:
    """It counts, but not in the first step."""
    by_saved_buffer(model)
    if int(model.saved) % 5 == 4 and model.training:
        model.calls += 1
    return model.calls


COUNTED = [
    *(by_number, by_new_attribute, by_list, by_iterator, by_plain_tensor, by_unsaved_buffer),
    *(by_other_buffer, by_extra_state),
]


def task(
    count: Callable[[Annealed], float] = lambda model: 0.0,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    optimizer: type[torch.optim.SGD] = torch.optim.SGD,
) -> Task:
    return Task(
        name="annealed",
        model=lambda: Annealed(count),
        train=(INPUTS[:120], TARGETS[:120]),
        test=(INPUTS[120:], TARGETS[120:]),
        loss=loss,
        optimizer=lambda parameters, lr: optimizer(parameters, lr=lr),
        lr=0.5,
        batch_size=5,
        steps=STEPS,
    )


def layer_of(run: Any) -> list[float]:
    assert run.summary["engine"] == "loop"
    found: list[float] = run.model["layer.weight"].flatten().tolist()
    return found


def simulated(count: Callable[[Annealed], float], **settings: Any) -> Any:
    given: dict[str, Any] = {"workers": WORKERS, "steps": STEPS, "threads": 1, "seed": 3}
    return simulate(task=task(count), **given | settings)


@pytest.fixture(scope="module")
def right() -> list[float]:
    return layer_of(simulated(by_saved_buffer))


@pytest.mark.parametrize("count", COUNTED, ids=lambda count: count.__name__)
def test_counts_in_attributes_are_those_of_each_worker(
    count: Callable[[Annealed], float], right: list[float]
) -> None:
    assert layer_of(simulated(count, threads=2)) == right
    # Nor does it matter how often the models were measured on the way.
    assert layer_of(simulated(count, eval_every=2)) == right


@pytest.mark.parametrize("count", [by_numpy, by_torch])
def test_generators_in_attributes_are_those_of_each_worker(
    count: Callable[[Annealed], float],
) -> None:
    drawn: dict[float, int] = {}

    def noted(model: Annealed) -> float:
        value = count(model)
        if model.training:
            drawn[value] = drawn.get(value, 0) + 1
        return value

    simulated(noted, engine="loop")
    # The first step is tried once, too.
    assert sorted(drawn.values()) == [*[WORKERS] * (STEPS - 1), WORKERS + 1]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_attribute_that_changes_later_is_each_workers(threads: int) -> None:
    seen: list[tuple[int, float]] = []

    def noted(model: Annealed) -> float:
        found = now_and_then(model)
        if model.training:
            seen.append((int(model.saved), found))
        return found

    simulated(noted, threads=threads)
    assert set(seen) == {(step, (step + 1) // 5) for step in range(1, STEPS + 1)}


def test_a_loss_and_an_optimizer_keep_theirs_for_each_worker() -> None:
    calls: list[int] = []

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                self.calls += 1
                calls.append(self.calls)
            return functional.cross_entropy(outputs, targets)

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                group["calls"] = group.get("calls", 0) + 1
                calls.append(group["calls"])
            return super().step(closure)

    settings: dict[str, Any] = {"workers": WORKERS, "steps": STEPS, "seed": 3}
    for lr_schedule in ("constant", "cosine"):
        for given in (task(loss=Loss()), task(optimizer=Counting)):
            calls.clear()
            simulate(task=given, **settings, lr_schedule=lr_schedule)
            assert max(calls) == STEPS


def test_a_worker_that_restarts_begins_with_fresh_attributes() -> None:
    seen: list[float] = []

    def noted(model: Annealed) -> float:
        found = by_number(model)
        if model.training:
            seen.append(found)
        return found

    faults = [
        {"at_s": 2.0, "kind": "crash", "peer": 1},
        {"at_s": 2.5, "kind": "restart", "peer": 1, "state": "kept"},
    ]
    given = {"steps": 60, "step_s": 0.1, "checkpoint_every_s": 0.5}
    simulated(noted, engine="loop", faults=faults, **given)
    # The first step is tried once, too.
    assert seen.count(1) == WORKERS + 2
    assert max(seen) == 60


def test_what_cannot_be_each_workers_is_refused() -> None:
    def in_place_later(model: Annealed) -> float:
        by_saved_buffer(model)
        if int(model.saved) == 5 and model.training:
            model.log.append(1)
        return 0.0

    def unwritable(model: Annealed) -> float:
        model.made = (each for each in [1, 2])
        return 0.0

    class Generating(Annealed):
        def __init__(self) -> None:
            super().__init__(by_number)
            self.made = (each for each in range(1000))

    with pytest.raises(ConfigError, match="in place, and the first step did not"):
        simulated(in_place_later)
    with pytest.raises(ConfigError, match="cannot be copied for each worker"):
        simulated(unwritable)
    given: dict[str, Any] = {"workers": WORKERS, "steps": STEPS}
    with pytest.raises(ConfigError, match="model of task annealed cannot be copied"):
        simulate(task=replace(task(), model=Generating), **given)
    with pytest.raises(ConfigError, match="changes attributes of the model"):
        simulated(by_list, engine="vmap")
