"""Up to rounding, every engine computes what the loop computes, however workers are grouped."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.utils._python_dispatch import TorchDispatchMode

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.batches import Batches
from rumor.sim.batched.cores import Threads
from rumor.sim.batched.parameters import ParameterMatrix
from rumor.sim.batched.steppers.engines import Workshop, choose
from rumor.sim.kernel.program import Level
from rumor.train.tasks.data import Sampler
from rumor.train.tasks.partition import split
from rumor.train.tasks.task import Task

from ...faults import fault

DRAWN = torch.Generator().manual_seed(1)
VECTORS = torch.randn(300, 64, generator=DRAWN)
IMAGES = torch.randn(300, 1, 12, 12, generator=DRAWN)
TOKENS = torch.randint(50, (300, 8), generator=DRAWN)
CLASSES = torch.randint(10, (300,), generator=DRAWN)
NUMBERS = torch.randn(300, 3, generator=DRAWN)


def classifier(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*(layers or (nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))))


def task(model: Callable[[], nn.Module] = classifier, **changes: Any) -> Task:
    settings: dict[str, Any] = {
        "name": "small",
        "model": model,
        "train": (VECTORS, CLASSES),
        "loss": functional.cross_entropy,
        "lr": 0.1,
        "batch_size": 32,
        "steps": 10,
    } | changes
    return Task(**{"test": settings["train"]} | settings)


def workshop(small: Task, n: int = 5, partition: str = "shared", threads: int = 1) -> Workshop:
    ids = tuple(f"peer-{index}" for index in range(n))

    def make_rows(count: int) -> ParameterMatrix:
        torch.manual_seed(0)
        return ParameterMatrix(small.model(), count, threads=Threads(threads))

    return Workshop(
        make_rows=make_rows,
        task=small,
        batches=Batches(small, ids, partition, small.batch_size, 0),
        lr=small.lr,
        ids=ids,
        seed=0,
    )


Failed = list[tuple[int, int]]
"""Steps and workers whose values were not finite."""


def steps(
    shop: Workshop, engine: str, count: int = 4, failed: Failed | None = None, groups: int = 2
) -> ParameterMatrix:
    """Let every worker take *count* steps, in groups that change from step to step."""
    rows = shop.make_rows(len(shop.ids))
    stepper = shop.stepper(engine, rows)
    found: Failed = [] if failed is None else failed
    for step in range(count):
        for part in range(groups):
            level = Level()
            level.workers = [w for w in range(rows.n) if (w + step) % groups == part]
            level.steps = [step] * len(level.workers)
            found += [(step, worker) for worker in stepper.take(level)]
    if failed is None:
        assert not found
        stepper.check()
    rows.threads.close()
    return rows


def difference(ours: ParameterMatrix, theirs: ParameterMatrix) -> float:
    """The largest relative difference between a worker of ours and of theirs, with buffers."""
    pairs = [(ours.x[0], theirs.x[0]), *zip(ours.locals, theirs.locals, strict=True)]
    return max(
        float((a.double() - b.double()).norm() / b.double().norm())
        for mine, other in pairs
        for a, b in zip(mine, other, strict=True)
    )


def check_same(ours: ParameterMatrix, theirs: ParameterMatrix) -> None:
    for mine, other in zip((*ours.x, *ours.locals), (*theirs.x, *theirs.locals), strict=True):
        assert torch.equal(mine.view(torch.uint8), other.view(torch.uint8))


class Residual(nn.Module):
    """Layers with a residual connection around them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.through = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = torch.relu(inputs + self.through(inputs))
        return outputs


class Plain(nn.Module):
    """A multilayer perceptron that calls torch functions and methods between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(144, 20), nn.Linear(20, 12), nn.Linear(12, 10)])

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.gelu(self.layers[0](torch.flatten(inputs, 1)), approximate="tanh")
        outputs: Tensor = self.layers[2](self.layers[1](hidden).relu())
        return outputs


class Attention(nn.Module):
    """One block of a transformer over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.last = nn.Embedding(50, 16), nn.Linear(16, 10)
        self.project, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        q, k, v = self.project(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        outputs: Tensor = self.last((x + self.out(mixed.transpose(1, 2).flatten(2))).mean(1))
        return outputs


class Scaled(nn.Module):
    """A model with a scalar parameter, a frozen parameter, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.ones(())), nn.Linear(64, 10)
        self.fixed = nn.Parameter(torch.linspace(0, 1, 64), requires_grad=False)
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.mean: Tensor
        self.calls: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(inputs.detach().mean(0), alpha=0.1)
            self.calls += 1
        outputs: Tensor = self.last(inputs * self.scale + self.fixed - self.mean)
        return outputs / (1 + 0.01 * self.calls)


@dataclass(frozen=True)
class Case:
    """A model, its training data, and the engine expected for it."""

    model: Callable[[], nn.Module]
    inputs: Tensor = VECTORS
    targets: Tensor = CLASSES
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    engine: str = "vmap"
    batch: int = 32

    def task(self, dtype: torch.dtype = torch.float32, **changes: Any) -> Task:
        inputs, targets = (
            side.to(dtype) if side.is_floating_point() else side
            for side in (self.inputs, self.targets)
        )
        return task(
            lambda: self.model().to(dtype),
            **{"train": (inputs, targets), "loss": self.loss, "batch_size": self.batch} | changes,
        )


CASES = {
    "relu": Case(classifier, engine="dense"),
    "one layer": Case(lambda: nn.Linear(64, 10), engine="dense", batch=5),
    "tanh, no bias": Case(
        lambda: classifier(
            nn.Linear(64, 33, bias=False), nn.Tanh(), nn.Identity(), nn.Linear(33, 10)
        ),
        engine="dense",
        batch=7,
    ),
    "gelu": Case(
        lambda: classifier(nn.Linear(64, 7), nn.GELU(), nn.Linear(7, 10)), engine="dense", batch=3
    ),
    "images": Case(Plain, IMAGES, engine="dense"),
    "flattened": Case(
        lambda: classifier(
            nn.Flatten(), nn.Linear(144, 9), nn.ReLU(inplace=True), nn.Linear(9, 10)
        ),
        IMAGES,
        CLASSES,
        nn.CrossEntropyLoss(),
        "dense",
    ),
    "squared error": Case(
        lambda: classifier(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 3), nn.Tanh()),
        VECTORS,
        NUMBERS,
        functional.mse_loss,
        "dense",
    ),
    "smoothed labels": Case(
        lambda: classifier(nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 10)),
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
    ),
    "layer norm": Case(
        lambda: classifier(nn.Linear(64, 30), nn.LayerNorm(30), nn.GELU(), nn.Linear(30, 10)),
        batch=5,
    ),
    "batch norm": Case(
        lambda: classifier(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    ),
    "buffers": Case(Scaled),
    "attention": Case(Attention, TOKENS),
    "convolutions": Case(
        lambda: classifier(
            nn.Conv2d(1, 6, 5),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.MaxPool2d(2),
            Residual(nn.Conv2d(6, 6, 3, padding=1), nn.GroupNorm(2, 6)),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 10),
        ),
        IMAGES,
        CLASSES,
        functional.cross_entropy,
        "loop",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_auto_picks_the_engine_for_each_kind_of_model(name: str) -> None:
    assert choose("auto", workshop(CASES[name].task())).name == CASES[name].engine


def stacked(case: Case) -> str:
    return "vmap" if case.engine == "loop" else case.engine


@pytest.mark.extended
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
def test_after_a_hundred_steps_parameters_match_the_loop_up_to_rounding(
    name: str, dtype: torch.dtype, most: float
) -> None:
    # Rounding grows with the learning rate, and 100 steps at 0.1 are a long time.
    shop = workshop(CASES[name].task(dtype, lr=0.02), n=3)
    ours = steps(shop, stacked(CASES[name]), 100)
    assert difference(ours, steps(shop, "loop", 100)) < most
    assert len(set(ours.x[0][:, 0].tolist())) == 3


@pytest.mark.extended
@pytest.mark.parametrize("name", [*CASES, "dropout"])
def test_groups_and_number_of_threads_change_no_bit(name: str) -> None:
    case = CASES.get(name, Case(dropped))
    small = case.task(optimizer=lambda p, lr: Adam(p, lr=lr / 10))
    plain = workshop(small, n=39)
    way = stacked(case)
    expected = steps(plain, way, 3, groups=1)
    for groups, threads in ((1, 3), (2, 1), (13, 2), (39, 1)):
        shop = workshop(small, n=39, threads=threads)
        check_same(steps(shop, way, 3, groups=groups), expected)


class Products(TorchDispatchMode):
    """Records the offset of each matrix in a batched product, in bytes, within a cache line."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.offsets: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.bmm.default:
            for stack in (made, *args):
                self.offsets |= {matrix.data_ptr() % 64 - stack.data_ptr() % 64 for matrix in stack}
        return made


@pytest.mark.parametrize("name", ["layer norm", "relu"])
def test_matrices_of_all_workers_have_the_same_offset_in_a_cache_line(name: str) -> None:
    # On some processors the offset affects rounding, so results would depend on the group.
    shop = workshop(CASES[name].task(), n=5)
    with Products() as products:
        steps(shop, "vmap", 1)
    assert products.offsets == {0}


def dropped() -> nn.Module:
    return classifier(
        nn.Linear(64, 8), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(1.0), nn.Linear(8, 10)
    )


OPTIMIZERS: dict[str, Callable[[Any, float], Optimizer]] = {
    "plain": lambda parameters, lr: SGD(parameters, lr=lr),
    "momentum": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9),
    "nesterov": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9, nesterov=True),
    "decay": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters, lr: Adam(parameters, lr=lr / 10),
    "adam with decay": lambda p, lr: Adam(p, lr=lr / 10, weight_decay=0.1),
    "adamw": lambda p, lr: AdamW(p, lr=lr / 10, betas=(0.3, 0.95), weight_decay=0.1),
}


@pytest.mark.extended
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_of_each_optimizer_match_the_loop_up_to_rounding(optimizer: str) -> None:
    shop = workshop(CASES["batch norm"].task(torch.float64, optimizer=OPTIMIZERS[optimizer]))
    assert difference(steps(shop, "vmap", 20), steps(shop, "loop", 20)) < 1e-9


@pytest.mark.extended
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_decaying_learning_rate_and_crashes_match_the_loop(optimizer: str) -> None:
    settings: dict[str, Any] = {
        "workers": 6,
        "total_steps": 120,
        "optimizer": optimizer,
        "slow": ("3:4",),
        "lr_schedule": "cosine:warmup=0.2",
        "p": 0.5,
        "step_s": 0.1,
        "faults": [fault(0.9, "crash", 3), fault(1.5, "restart", 3)],
    }
    loop, dense = (simulate(**settings, engine=engine) for engine in ("loop", "dense"))
    assert loop.model is not None and dense.model is not None
    for name, tensor in loop.model.items():
        torch.testing.assert_close(dense.model[name], tensor, rtol=1e-4, atol=1e-5)


def test_a_run_has_the_same_digest_for_any_window_and_number_of_threads() -> None:
    case = CASES["relu"]
    settings: dict[str, Any] = {"task": case.task(), "workers": 11, "steps": 6, "p": 0.5}
    changes: Any = ({}, {"window": 7}, {"threads": 1}, {"threads": 2, "window": 40})
    runs = [simulate(**settings | change) for change in changes]
    assert len({run.summary["model_digest"] for run in runs}) == 1
    assert {run.summary["engine"] for run in runs} == {case.engine}


def test_batches_of_many_workers_match_their_samplers() -> None:
    work, ids = task(batch_size=7), tuple(f"w{index}" for index in range(5))
    batches = Batches(work, ids, "dirichlet:0.5", 7, 0)
    parts = split("dirichlet:0.5", work.train[1], len(ids), 0)
    samplers = [Sampler(part, 7, seed=0, peer=id) for part, id in zip(parts, ids, strict=True)]
    n_steps = 3 * max(map(len, parts)) // 7
    rng = np.random.default_rng(0)
    # Steps in order first, then in any order.
    for steps in (*np.arange(n_steps)[:, None].repeat(5, 1), *rng.integers(n_steps, size=(20, 5))):
        for size in np.unique(batches.sizes(np.arange(5))):
            workers = np.flatnonzero(batches.sizes(np.arange(5)) == size)
            found = batches.indices(workers, steps[workers])
            expected = [samplers[w].batch(int(steps[w])) for w in workers]
            assert np.array_equal(found, np.stack(expected))


def test_batches_of_different_sizes_are_computed_separately() -> None:
    shop = workshop(task(batch_size=80), n=7, partition="iid")
    assert len(set(shop.batches.sizes(np.arange(7)).tolist())) == 2
    assert difference(steps(shop, "dense"), steps(shop, "loop")) < 1e-5


def test_dropout_keeps_half_of_the_values_and_doubles_them() -> None:
    """The model averages what dropout leaves of ones, so its bias has that mean as gradient."""

    class Left(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(1))

        def forward(self, inputs: Tensor) -> Tensor:
            return functional.dropout(torch.ones(4000) + self.bias, inplace=True).mean()

    small = task(Left, loss=lambda outputs, targets: outputs, lr=1.0, batch_size=1)
    shop = workshop(small, n=6)
    found = steps(shop, "vmap", 1).x[0][:, 0]
    assert (found + 1).abs().max() < 0.1
    assert len(set(found.tolist())) == 6


def test_auto_gives_a_reason_for_the_loop() -> None:
    large = task(lambda: classifier(nn.Linear(64, 20_000), nn.Linear(20_000, 10)))
    whys = {
        "one worker": workshop(task(), n=1),
        "keep a core busy": workshop(large, n=3),
        "convolutions": workshop(CASES["convolutions"].task()),
        "RMSprop": workshop(task(optimizer=lambda p, lr: RMSprop(p, lr=lr))),
    }
    for why, shop in whys.items():
        choice = choose("auto", shop)
        assert choice.name == "loop" and why in choice.why


def repeated() -> nn.Module:
    first, second = nn.Linear(64, 10), nn.Linear(10, 10)
    return classifier(first, nn.ReLU(), second, nn.ReLU(), second)


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 10))
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": repeated}, "not a chain"),
        ({"model": frozen}, "not a chain"),
        ({"model": lambda: classifier(nn.Linear(64, 10), nn.Sigmoid())}, "not a chain"),
        ({"model": lambda: Residual(nn.Linear(64, 64))}, "not a chain"),
        ({"model": lambda: classifier(nn.Linear(64, 10), nn.LayerNorm(10))}, "not a chain"),
        ({"loss": lambda o, t: functional.cross_entropy(o, t) * 2}, "neither"),
        ({"loss": nn.CrossEntropyLoss(ignore_index=3)}, "neither"),
        ({"train": (VECTORS, CLASSES % 2 - 1)}, "not classes"),
        ({"train": (VECTORS, torch.ones(300, 10))}, "fails"),
        ({"model": lambda: nn.Linear(64, 9)}, "not classes"),
        ({"model": lambda: nn.Linear(32, 10)}, "fails"),
        ({"train": (VECTORS[:, None], CLASSES)}, "fails"),
        ({"train": (VECTORS, NUMBERS), "loss": functional.mse_loss}, "fails"),
    ],
    ids=[
        "a layer twice",
        "a frozen layer",
        "sigmoid",
        "a residual",
        "layer norm",
        "another loss",
        "a class that is ignored",
        "a class below 0",
        "numbers for classes",
        "too few outputs",
        "another width",
        "images",
        "a single number",
    ],
)
def test_tasks_without_a_closed_form_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"engine dense cannot take the task small: .*{why}"):
        choose("dense", workshop(task(**changes)))


class Outside(nn.Module):
    """A model whose forward pass also runs something that is not a plain tensor operation."""

    def __init__(self, what: Callable[["Outside", Tensor], Any]) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.register_buffer("hidden", torch.zeros(1), persistent=False)
        self.register_buffer("saved", torch.zeros(1))
        self.hidden: Tensor
        self.saved: Tensor
        self.calls = 0
        self.kept = torch.ones(1)
        self.what = what

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(inputs)
        outputs = outputs + self.what(self, outputs)
        return outputs


def counted(model: Outside, outputs: Tensor) -> int:
    model.calls += 1
    return 0


def replaced(model: Outside, outputs: Tensor) -> float:
    model.saved = model.saved + 1
    return 0.0


def more_when_lent(model: Outside, outputs: Tensor) -> Tensor:
    return outputs * (0.0 if isinstance(model.last.weight, nn.Parameter) else 0.1)


def hooked(on: str) -> nn.Module:
    model = nn.Linear(64, 10)
    if on == "parameter":
        model.weight.register_hook(lambda slope: slope / 2)
    else:
        model.register_forward_hook(lambda module, given, made: made / 2)
    return model


def unused() -> nn.Module:
    model = Outside(lambda m, x: 0.0)
    model.spare = nn.Parameter(torch.zeros(3))
    return model


class Counted(nn.Module):
    """A loss that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = {"batches": 0}

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.seen["batches"] += 1
        return functional.cross_entropy(outputs, targets)


def clipped(parameters: Any, lr: float) -> Optimizer:
    made = SGD(parameters, lr=lr, momentum=0.9)
    made.register_step_post_hook(lambda *given: None)
    return made


def outside(what: Callable[[Outside, Tensor], Any]) -> dict[str, Any]:
    return {"model": lambda: Outside(what)}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (outside(lambda m, x: 0.0 if x.sum() > 0 else 1.0), "data-dependent"),
        (outside(lambda m, x: x.detach()[x > 0].sum()), "fails"),
        (outside(lambda m, x: torch.from_numpy(x.detach().numpy() * 2)), "fails"),
        (outside(lambda m, x: torch.rand_like(x)), "random"),
        (outside(lambda m, x: np.random.random()), "random"),
        (outside(lambda m, x: random.random()), "random"),
        (outside(counted), "changes attributes"),
        (outside(lambda m, x: m.hidden.data.add_(1)), "fails"),
        (outside(replaced), "not those of one step after another"),
        (outside(more_when_lent), "not those of one step after another"),
        ({"model": lambda: hooked("parameter")}, "hooks"),
        ({"model": lambda: hooked("module")}, "hooks"),
        ({"model": unused}, "spare has no gradient"),
        (
            {"model": lambda: classifier(nn.Linear(64, 9), nn.Linear(9, 9).double())},
            "several dtypes",
        ),
        ({"model": lambda: nn.Linear(64, 10).bfloat16()}, "bfloat16"),
        ({"loss": Counted()}, "changes attributes"),
        ({"optimizer": clipped}, "its optimizer"),
        ({"optimizer": lambda p, lr: SGD(p, lr=lr, maximize=True)}, "its optimizer"),
        ({"optimizer": lambda p, lr: SGD([*p][-1:], lr=lr)}, "its optimizer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tasks_that_cannot_be_batched_use_the_loop_and_vmap_refuses_them(
    changes: dict[str, Any], why: str
) -> None:
    shop = workshop(task(**changes))
    choice = choose("auto", shop)
    assert choice.name == "loop"
    assert why in choice.why
    with pytest.raises(ConfigError, match=r"engine vmap cannot take the task small: .*"):
        choose("vmap", shop)


def test_the_loop_calls_parameter_hooks_with_any_number_of_threads() -> None:
    model = lambda: hooked("parameter")  # noqa: E731
    ones, more = (workshop(task(model, lr=5.0), threads=threads) for threads in (1, 2))
    plain = workshop(task(lambda: nn.Linear(64, 10), lr=5.0))
    check_same(steps(ones, "loop"), steps(more, "loop"))
    assert difference(steps(ones, "loop"), steps(plain, "loop")) > 1e-3


def test_changing_an_attribute_in_a_later_step_is_an_error() -> None:
    late: list[int] = []

    class Late(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            late.append(1)
            if len(late) > 9:
                self.calls = len(late)
            return super().forward(inputs)

    shop = workshop(task(lambda: Late(64, 10)))
    assert choose("auto", shop).name == "vmap"
    with pytest.raises(ConfigError, match="take engine loop"):
        steps(shop, "vmap", 9)


def first_failed(shop: Workshop, engine: str, count: int) -> tuple[int, int]:
    """Return the first step of *count* whose values are not finite, and its worker."""
    failed: Failed = []
    steps(shop, engine, count, failed)
    return min(failed)


@pytest.mark.extended
@pytest.mark.parametrize("name", ["loop", "dense", "vmap"])
def test_a_step_with_non_finite_results_is_found(name: str) -> None:
    spoilt = VECTORS.clone()
    spoilt[17] = float("inf")
    shop = workshop(task(train=(spoilt, CLASSES), batch_size=1), n=4)
    hit = min(
        (step, worker)
        for worker in range(4)
        for step in range(50)
        if 17 in shop.batches.indices(np.array([worker]), np.array([step]))[0]
    )
    assert first_failed(shop, name, 50) == hit


@pytest.mark.extended
def test_a_running_mean_that_becomes_infinite_is_found() -> None:
    """The loss stays finite all along: dividing by an infinite variance gives zeros."""
    vast = VECTORS.clone()
    vast[17] *= 1e30
    case = Case(lambda: classifier(nn.BatchNorm1d(64), nn.Linear(64, 10)), vast, batch=8)
    shop = workshop(case.task(), n=4)
    assert first_failed(shop, "vmap", 50) == first_failed(shop, "loop", 50)


@pytest.mark.parametrize(
    ("optimizer", "scale"),
    [
        (lambda p, lr: SGD(p, lr=1e6, momentum=0.9), 1e3),
        (lambda p, lr: AdamW(p, lr=30.0, weight_decay=0.5), 1e36),
        (lambda p, lr: AdamW(p, lr=1e3, weight_decay=0.5), 1e19),
    ],
)
def test_a_diverging_worker_stops_where_the_loop_stops_it(
    optimizer: Callable[[Any, float], Optimizer], scale: float
) -> None:
    shop = workshop(task(train=(VECTORS * scale, CLASSES), optimizer=optimizer))
    assert first_failed(shop, "loop", 4) == first_failed(shop, "dense", 4)
