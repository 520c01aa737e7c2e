"""Whole steps in machine code have the bits of the loop, or are not taken."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.compiled import dense, interface
from rumor.sim.batched.compiled.dense import DenseLayer, DenseStep, dense_layers, why_not
from rumor.sim.batched.steppers.engines import Way, Workshop, choose
from rumor.sim.batched.steppers.optimizers import stacked_optimizer
from rumor.sim.batched.steppers.stepper import Failure, Failures
from rumor.sim.kernel.fast_path import choice
from rumor.sim.kernel.plan import Stop
from rumor.train.tasks.task import Task

from ..test_engines import classifier, steps, task, workshop

pytestmark = [
    pytest.mark.skipif(
        bool(why_not([DenseLayer(0, 640, 64, 10)])),
        reason="torch's library rounds otherwise here, or shows no products of matrices",
    ),
]

OPTIMIZERS: dict[str, Callable[[Any, float], Optimizer]] = {
    "plain": lambda parameters, lr: SGD(parameters, lr=lr),
    "momentum and decay": lambda p, lr: SGD(p, lr=lr, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters, lr: Adam(parameters, lr=lr / 10),
    "adam with decay": lambda p, lr: Adam(p, lr=lr / 10, weight_decay=0.1),
    "adamw": lambda p, lr: AdamW(p, lr=lr / 10, betas=(0.3, 0.95), weight_decay=0.1),
}


def deep() -> nn.Module:
    return classifier(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 12), nn.ReLU(), nn.Linear(12, 10))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", [classifier, deep, lambda: classifier(nn.Linear(64, 10))])
def test_steps_are_the_loops_to_the_last_bit(
    model: Callable[[], nn.Module], optimizer: str
) -> None:
    shop = workshop(task(model, optimizer=OPTIMIZERS[optimizer]), n=7, compiled=True)
    assert torch.equal(steps(shop, shop.loop).x[0], steps(shop, shop.in_machine_code).x[0])


def regression(n_outputs: int = 3, **changes: Any) -> Task:
    """Numbers to be found, by squared errors."""
    inputs, _ = task().train
    wanted = inputs[:, :n_outputs] * inputs[:, 10 : 10 + n_outputs] + 1

    def model() -> nn.Module:
        return classifier(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, n_outputs))

    settings = {"train": (inputs, wanted), "test": (inputs, wanted), "loss": functional.mse_loss}
    return task(model, **settings | changes)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("n_outputs", [1, 3, 10])
def test_steps_by_squared_errors_are_the_loops_to_the_last_bit(
    n_outputs: int, optimizer: str
) -> None:
    small = regression(n_outputs, optimizer=OPTIMIZERS[optimizer])
    shop = workshop(small, n=7, compiled=True)
    rows = shop.make_rows(1)
    inputs, wanted = small.train
    assert DenseStep(dense_layers(rows, small), inputs, wanted, rows.x[0].shape[1]).fits(32)
    assert torch.equal(steps(shop, shop.loop).x[0], steps(shop, shop.in_machine_code).x[0])


def test_squared_errors_and_their_mean_are_torchs() -> None:
    from rumor.sim.batched.compiled import dense_code

    drawn = torch.Generator().manual_seed(5)
    for batch, n in ((1, 1), (5, 3), (33, 10)):
        outputs, targets = torch.randn(2, batch, n, generator=drawn) * 7
        slopes, losses = torch.empty_like(outputs), np.zeros(1, np.float32)
        given = outputs.numpy(), targets.numpy(), slopes.numpy(), losses
        dense_code.squared_error(*given, np.float32(2 / (batch * n)))
        outputs.requires_grad_()
        loss = functional.mse_loss(outputs, targets)
        loss.backward()
        assert torch.equal(slopes, outputs.grad)
        assert losses[0] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_of_different_sizes_and_threads_change_no_bit(threads: int) -> None:
    shop = workshop(task(batch_size=80), n=29, partition="iid", threads=threads, compiled=True)
    assert len(set(shop.batches.sizes(np.arange(29)).tolist())) == 2
    assert torch.equal(steps(shop, shop.loop).x[0], steps(shop, shop.in_machine_code).x[0])


def test_where_sums_round_otherwise_a_batch_is_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_sum_lanes", lambda batch, n: 0)
    shop = workshop(task(), n=5, compiled=True)
    assert torch.equal(steps(shop, shop.loop).x[0], steps(shop, shop.in_machine_code).x[0])


def test_it_is_what_auto_takes_and_what_batched_takes() -> None:
    shop = workshop(task(), n=20, compiled=True)
    assert choose("batched", shop).make == shop.in_machine_code


@pytest.mark.parametrize(
    ("small", "why"),
    [
        (task(optimizer=lambda p, lr: SGD(p, lr=lr, momentum=0.9, nesterov=True)), "machine code"),
        (task(optimizer=lambda p, lr: Adam(p, lr=lr, amsgrad=True)), "machine code"),
        (task(lambda: classifier(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))), "Linear and"),
        (task(lambda: classifier(nn.Linear(64, 9))), "of integer targets"),
        (regression(train=(torch.zeros(9, 64), torch.zeros(9, 1))), "number for each output"),
    ],
    ids=["nesterov", "amsgrad", "tanh", "labels beyond the classes", "one number for three"],
)
def test_other_tasks_are_refused(small: Task, why: str) -> None:
    shop = workshop(small, compiled=True)
    with pytest.raises(ConfigError, match=why):
        steps(shop, shop.in_machine_code)


def stop_of(shop: Workshop, way: Way, count: int) -> Stop:
    """Where a run of so many steps has to stop."""
    failures = Failures()
    steps(shop, way, count, failures)
    with pytest.raises(Failure) as caught:
        failures.check()
    return caught.value.stop


def narrowed() -> nn.Module:
    """Its first layer says that it has 32 outputs, and has 8."""
    made = classifier(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    first, _, last = made.children()
    first.weight, first.bias = nn.Parameter(torch.randn(8, 64)), nn.Parameter(torch.zeros(8))
    last.weight = nn.Parameter(torch.randn(10, 8))
    return made


def test_parameters_count_and_not_what_a_layer_says_of_itself() -> None:
    shop = workshop(task(narrowed), compiled=True)
    assert torch.equal(steps(shop, shop.loop).x[0], steps(shop, shop.in_machine_code).x[0])


@pytest.mark.parametrize(
    ("optimizer", "scale"),
    [
        (lambda p, lr: SGD(p, lr=1e6, momentum=0.9), 1e3),
        (lambda p, lr: AdamW(p, lr=30.0, weight_decay=0.5), 1e36),
        (lambda p, lr: AdamW(p, lr=1e3, weight_decay=0.5), 1e19),
    ],
)
def test_one_that_diverges_stops_where_the_loop_does(
    optimizer: Callable[[Any, float], Optimizer], scale: float
) -> None:
    inputs, targets = task().train
    shop = workshop(task(train=(inputs * scale, targets), optimizer=optimizer))
    machine = replace(shop, cores=shop.cores._replace(compiled=True))
    assert stop_of(shop, shop.loop, 4) == stop_of(machine, machine.in_machine_code, 4)


def test_squared_errors_that_diverge_stop_where_the_loop_does() -> None:
    shop = workshop(regression(lr=30.0))
    machine = replace(shop, cores=shop.cores._replace(compiled=True))
    assert stop_of(shop, shop.loop, 20) == stop_of(machine, machine.in_machine_code, 20)


def test_labels_that_are_turned_around_are_refused() -> None:
    shop = workshop(task(), compiled=True)
    shop.batches.flipped = frozenset({1})
    with pytest.raises(ConfigError, match="turned around"):
        steps(shop, shop.in_machine_code)


def test_a_step_that_ends_in_no_finite_values_is_found() -> None:
    small = task()
    spoilt = small.train[0].clone()
    spoilt[17] = float("inf")
    shop = workshop(replace(small, train=(spoilt, small.train[1])), n=4)
    machine = replace(shop, cores=shop.cores._replace(compiled=True))
    assert stop_of(shop, shop.loop, 12) == stop_of(machine, machine.in_machine_code, 12)


@pytest.mark.parametrize("n_classes", [2, 3, 7, 8, 9, 10, 15, 16, 17, 31, 47, 100, 256])
def test_softmax_is_torchs_for_any_number_of_classes(n_classes: int) -> None:
    from rumor.sim.batched.compiled import dense_code

    lanes = dense._lanes(n_classes)
    assert lanes
    drawn = torch.Generator().manual_seed(n_classes)
    for batch in (1, 5, 16, 33):
        outputs = torch.randn(batch, n_classes, generator=drawn) * 7
        targets = torch.randint(0, n_classes, (batch,), generator=drawn)
        slopes, losses = torch.empty_like(outputs), np.zeros(1, np.float32)
        given = outputs.numpy(), targets.numpy(), slopes.numpy(), losses
        dense_code.cross_entropy(*given, np.float32(1 / batch), lanes)
        outputs.requires_grad_()
        loss = functional.cross_entropy(outputs, targets)
        loss.backward()
        assert torch.equal(slopes, outputs.grad)  # type: ignore[arg-type]
        assert losses[0] == pytest.approx(loss.item(), rel=1e-5)


def test_rows_are_added_up_as_torch_does_or_not_at_all() -> None:
    from rumor.sim.batched.compiled import dense_code

    found = {
        (batch, n): dense._sum_lanes(batch, n)
        for batch in (1, 3, 5, 8, 10, 16, 17, 32, 33, 65, 100, 256, 300, 1000, 5000)
        for n in (1, 2, 7, 10, 31, 32, 33, 100)
    }
    fit = {size: lanes for size, lanes in found.items() if lanes}
    assert {(32, 32), (32, 10), (300, 100), (5000, 33)} <= fit.keys()
    assert all(size in fit for size in found if size[1] == 1)
    for (batch, n), lanes in fit.items():
        for slopes in torch.randn(8, batch, n, generator=torch.Generator().manual_seed(batch)):
            sums = torch.empty(n)
            dense_code.sum_rows(slopes.numpy(), sums.numpy(), lanes)
            assert torch.equal(sums, slopes.sum(dim=0)), (batch, n)


def moments(optimizer: Optimizer, x: Tensor) -> Any:
    found = stacked_optimizer(optimizer, optimizer.param_groups[0]["params"], x, in_passes=True)
    assert found is not None
    return found


@pytest.mark.parametrize("make", [OPTIMIZERS["adam"], OPTIMIZERS["adamw"]])
def test_a_worker_that_comes_back_has_the_moments_that_were_kept(
    make: Callable[[Any, float], Optimizer],
) -> None:
    x = torch.ones(2, 48)
    ours = moments(make([nn.Parameter(torch.zeros(48))], 0.1), x)
    gradients = torch.randn(4, 1, 48, generator=torch.Generator().manual_seed(0))
    who, when = np.array([1]), np.array([0])
    ours.update(x, gradients[0].clone(), who, when, np.ones(1))
    kept, values = ours.keep(1), x[1].clone()
    ours.update(x, gradients[1].clone(), who, when + 1, np.ones(1))
    once = x[1].clone()
    x[1] = values
    ours.restore(1, kept)
    ours.update(x, gradients[1].clone(), who, when + 1, np.ones(1))
    assert torch.equal(x[1], once)
    # Without any, the next step is a first one.
    x[1] = 1.0
    ours.restore(1, None)
    ours.update(x, gradients[0].clone(), who, when + 2, np.ones(1))
    assert torch.equal(x[1], values)
    assert torch.equal(x[0], torch.ones(48))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_learning_rate_that_falls_has_the_loops_digest(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_STEPS_COMPUTED_MIN", 1)
    settings = {"workers": 6, "total_steps": 90, "optimizer": optimizer, "slow": ("3:4",)}
    runs = [
        simulate(**settings, lr_schedule="cosine:warmup=0.2", engine=engine)  # type: ignore[arg-type]
        for engine in ("loop", "batched")
    ]
    assert runs[0].summary["digest"] == runs[1].summary["digest"]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_whole_runs_with_crashes_have_the_loops_digest(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_STEPS_COMPUTED_MIN", 1)
    digests = {
        simulate(
            workers=12,
            steps=40,
            optimizer=optimizer,
            p=0.5,
            engine=engine,
            faults=[
                {"at_s": 0.9, "kind": "crash", "peer": 3},
                {"at_s": 1.5, "kind": "restart", "peer": 3},
            ],
            step_s=0.1,
        ).summary["digest"]
        for engine in ("loop", "batched")
    }
    assert len(digests) == 1


@pytest.fixture
def no_library() -> Iterator[None]:
    interface.address.cache_clear()
    yield
    interface.address.cache_clear()


def test_where_no_function_shows_it_says_so(
    no_library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "Path", lambda _: library_nowhere)
    assert interface.address(interface.SGEMM) == 0
    assert why_not([DenseLayer(0, 640, 64, 10)]) == "torch's library shows no sgemm"


class _Nowhere:
    parent = property(lambda self: self)

    def __truediv__(self, name: str) -> "_Nowhere":
        return self

    def glob(self, pattern: str) -> list[str]:
        return ["/nowhere/libtorch_cpu.so"]


library_nowhere = _Nowhere()


def test_one_that_is_made_by_hand_takes_a_step() -> None:
    drawn = torch.Generator().manual_seed(0)
    model = nn.Linear(8, 4)
    inputs = torch.randn(20, 8, generator=drawn)
    targets = torch.randint(0, 4, (20,), generator=drawn)
    x = torch.zeros(1, 48)
    x[0, :32], x[0, 32:36] = model.weight.detach().flatten(), model.bias.detach()
    sgd = SGD(model.parameters(), lr=0.1)
    step = DenseStep([DenseLayer(0, 32, 8, 4)], inputs, targets, 48)
    samples = np.arange(12, dtype=np.int32)[None]
    who, when = np.zeros(1, np.int64), np.zeros(1, np.int64)
    finite, losses = step.take(x, who, moments(sgd, x).of(who, when, np.ones(1)), samples)
    loss = functional.cross_entropy(model(inputs[:12]), targets[:12])
    loss.backward()
    sgd.step()
    assert finite and losses.item() == pytest.approx(loss.item(), rel=1e-6)
    torch.testing.assert_close(x[0, :32], model.weight.detach().flatten())
    assert not x[0, 36:].any()
