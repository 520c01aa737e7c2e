"""Which way steps are computed: only one that changes no bit is taken without being asked for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, Adam

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.batches import Batches
from rumor.sim.batched.cores import Cores
from rumor.sim.batched.parameters import ParameterMatrix
from rumor.sim.batched.steppers.engines import Way, Workshop, choose
from rumor.sim.batched.steppers.stepper import Failure, Failures
from rumor.sim.kernel.program import Level
from rumor.train.tasks.data import Sampler
from rumor.train.tasks.partition import split
from rumor.train.tasks.task import Task


def classifier(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*(layers or (nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))))


def task(model: Callable[[], nn.Module] = classifier, **changes: Any) -> Task:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(300, 64, generator=generator)
    targets = torch.randint(10, (300,), generator=generator)
    settings: dict[str, Any] = {
        "name": "small",
        "model": model,
        "train": (inputs, targets),
        "test": (inputs, targets),
        "loss": functional.cross_entropy,
        "lr": 0.1,
        "batch_size": 32,
        "steps": 10,
    }
    return Task(**settings | changes)


def workshop(
    small: Task,
    n: int = 5,
    partition: str = "shared",
    threads: int = 1,
    compiled: bool = False,
) -> Workshop:
    ids = tuple(f"peer-{index}" for index in range(n))

    def make_rows(count: int) -> ParameterMatrix:
        torch.manual_seed(0)
        return ParameterMatrix(small.model(), count)

    return Workshop(
        make_rows=make_rows,
        task=small,
        batches=Batches(small, ids, partition, small.batch_size, 0),
        lr=small.lr,
        ids=ids,
        seed=0,
        cores=Cores(threads, compiled),
    )


def steps(
    shop: Workshop, way: Way, count: int = 4, failures: Failures | None = None
) -> ParameterMatrix:
    """Let every worker take some steps, in two groups that change from step to step."""
    rows = shop.make_rows(len(shop.ids))
    stepper = way(rows, failures or Failures())
    for step in range(count):
        for part in range(2):
            level = Level()
            level.workers = [w for w in range(rows.n) if (w + step) % 2 == part]
            level.steps = [step] * len(level.workers)
            level.orders = [rows.n * step + w for w in level.workers]
            stepper.take(level)
    stepper.close()
    return rows


OPTIMIZERS: dict[str, Callable[[Any, float], torch.optim.Optimizer]] = {
    "plain": lambda parameters, lr: SGD(parameters, lr=lr),
    "momentum": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9),
    "nesterov": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9, nesterov=True),
    "dampened": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.8, dampening=0.3),
    "decay": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9, weight_decay=0.01),
    "maximize": lambda parameters, lr: SGD(parameters, lr=lr, maximize=True),
    "adam": lambda parameters, lr: Adam(parameters, lr=lr),
}


needs_equal_bits = pytest.mark.skipif(
    "other bits" in choose("auto", workshop(task())).why,
    reason="this processor's matrix products round otherwise in batches",
)


@needs_equal_bits
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_batched_steps_are_the_loops_to_the_last_bit(optimizer: str, threads: int) -> None:
    small = task(optimizer=OPTIMIZERS[optimizer])
    shop = workshop(small, n=11, threads=threads)
    looped, batched = steps(shop, shop.loop), steps(shop, shop.batched)
    assert torch.equal(looped.x[0], batched.x[0])
    assert len(set(looped.x[0][:, 0].tolist())) == 11


@needs_equal_bits
def test_batches_of_many_are_those_that_their_samplers_say() -> None:
    work, ids = task(batch_size=7), tuple(f"w{index}" for index in range(5))
    batches = Batches(work, ids, "dirichlet:0.5", 7, 0)
    parts = split("dirichlet:0.5", work.train[1], len(ids), 0)
    samplers = [Sampler(part, 7, seed=0, peer=id) for part, id in zip(parts, ids, strict=True)]
    n_steps = 3 * max(map(len, parts)) // 7
    rng = np.random.default_rng(0)
    # One after another, then in any order.
    for steps in (*np.arange(n_steps)[:, None].repeat(5, 1), *rng.integers(n_steps, size=(20, 5))):
        for size in np.unique(batches.sizes(np.arange(5))):
            workers = np.flatnonzero(batches.sizes(np.arange(5)) == size)
            found = batches.indices(workers, steps[workers])
            expected = [samplers[w].batch(int(steps[w])) for w in workers]
            assert np.array_equal(found, np.stack(expected))


def test_batches_of_different_sizes_are_taken_apart() -> None:
    shop = workshop(task(batch_size=80), n=7, partition="iid")
    sizes = set(shop.batches.sizes(np.arange(7)).tolist())
    assert len(sizes) == 2
    assert torch.equal(steps(shop, shop.loop).x[0], steps(shop, shop.batched).x[0])


def test_one_batch_of_another_size_changes_no_bit() -> None:
    """Kernels differ by it, and a trial of the first workers would not tell."""
    settings: dict[str, Any] = {"workers": 80, "steps": 5, "topology": "ring", "threads": 1}
    digests = {
        simulate(**settings, batch_sizes=("70:1",), engine=engine).summary["digest"]
        for engine in ("loop", "auto")
    }
    assert len(digests) == 1


def test_an_optimizer_of_some_of_the_parameters_leaves_the_others_alone() -> None:
    shop = workshop(task(optimizer=lambda parameters, lr: SGD([*parameters][-2:], lr=lr)))
    looped, batched = steps(shop, shop.loop), steps(shop, shop.batched)
    torch.testing.assert_close(looped.x[0], batched.x[0])


@needs_equal_bits
def test_auto_takes_batches_where_bits_agree_and_they_are_faster() -> None:
    shop = workshop(task(), n=64)
    choice = choose("auto", shop)
    assert choice.make == shop.batched
    assert "the same bits" in choice.why


class TwoFaced(nn.Module):
    """Computes something else when it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))
        self.last = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        # Parameters are then lent for the call, and are plain tensors.
        batched = not isinstance(self.scale, nn.Parameter)
        outputs: torch.Tensor = self.last(inputs * self.scale)
        return outputs * (1.0001 if batched else 1.0)


def test_auto_keeps_to_the_loop_where_batching_gives_other_bits() -> None:
    shop = workshop(task(TwoFaced))
    choice = choose("auto", shop)
    assert choice.make == shop.loop
    assert choice.why == "batching would give other bits than one by one"
    assert choose("batched", shop).make == shop.batched


class Counting(nn.Module):
    """It counts its calls, so that copies of it are told apart by their buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.calls: torch.Tensor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        outputs: torch.Tensor = self.last(inputs)
        return outputs


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: classifier(nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 10)), "random"),
        (lambda: classifier(nn.Linear(64, 10), Doubled()), "several dtypes"),
    ],
    ids=["dropout", "two dtypes"],
)
def test_what_cannot_be_batched_is_looped_and_refused_when_asked_for(
    model: Callable[[], nn.Module], why: str
) -> None:
    shop = workshop(task(model))
    choice = choose("auto", shop)
    assert choice.make == shop.loop
    assert why in choice.why
    with pytest.raises(ConfigError, match="engine batched cannot take the task small"):
        choose("batched", shop)


class Doubled(nn.Module):
    """A layer in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10, dtype=torch.float64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.scale.float()


def test_local_buffers_are_each_workers_own() -> None:
    shop = workshop(task(Counting), n=3)
    rows = shop.make_rows(3)
    stepper = shop.loop(rows, Failures())
    for step, workers in enumerate(([0, 1], [0])):
        level = Level()
        level.workers, level.steps = workers, [step] * len(workers)
        level.orders = list(range(len(workers)))
        stepper.take(level)
    assert rows.locals[0].tolist() == [2, 1, 0]


@pytest.mark.parametrize("threads", [1, 3])
def test_dropout_is_drawn_by_worker_and_step_and_not_by_turn(threads: int) -> None:
    small = task(lambda: classifier(nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 10)))
    shop = workshop(small, threads=threads)
    together = steps(shop, shop.loop)
    alone = workshop(small)
    assert torch.equal(together.x[0], steps(alone, alone.loop).x[0])
    assert len(set(together.x[0][:, 0].tolist())) == 5


def test_a_single_worker_is_looped() -> None:
    assert choose("auto", workshop(task(), n=1)).why == "there is one worker"


def test_a_model_of_millions_of_numbers_is_not_tried() -> None:
    large = task(lambda: classifier(nn.Linear(64, 40_000), nn.Linear(40_000, 10)))
    assert choose("auto", workshop(large, n=3)).why == "the model is too large to batch"


@pytest.mark.parametrize("name", ["loop", "batched"])
def test_a_step_that_ends_in_no_finite_values_is_found(name: str) -> None:
    small = task()
    spoilt = small.train[0].clone()
    spoilt[17] = float("inf")
    small = replace(small, train=(spoilt, small.train[1]), batch_size=1)
    shop = workshop(small, n=4)
    hit = min(
        (step * 4 + worker, worker, step)
        for worker in range(4)
        for step in range(50)
        if 17 in shop.batches.indices(np.array([worker]), np.array([step]))[0]
    )
    failures = Failures()
    steps(shop, getattr(shop, name), 50, failures)
    with pytest.raises(Failure) as caught:
        failures.check()
    assert caught.value.stop == hit
