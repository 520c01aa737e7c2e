"""Gradients of many workers at once: recorded from one step of any model, with the loop's bits."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer
from torch.utils.checkpoint import checkpoint

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.compiled.row_passes import alike
from rumor.sim.batched.parameters import ParameterMatrix
from rumor.sim.batched.steppers import gradients
from rumor.sim.batched.steppers.engines import choose
from rumor.sim.batched.steppers.gradients import Gradient
from rumor.sim.batched.steppers.operations import RULES
from rumor.sim.batched.steppers.stacking import beside, one_by_one
from rumor.sim.batched.steppers.stepper import Failure, Failures

from .test_engines import steps, task, workshop

DRAWN = torch.Generator().manual_seed(1)
VECTORS = torch.randn(300, 64, generator=DRAWN)
IMAGES = torch.randn(300, 1, 12, 12, generator=DRAWN)
TOKENS = torch.randint(50, (300, 8), generator=DRAWN)
CLASSES = torch.randint(10, (300,), generator=DRAWN)
NUMBERS = torch.randn(300, 3, generator=DRAWN)


class Residual(nn.Module):
    """Layers, and a way around them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.through = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = torch.relu(inputs + self.through(inputs))
        return outputs


class Scaled(nn.Module):
    """A parameter of another rank than what it meets, a table that is fixed, and a buffer that
    is written."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.shift = nn.Parameter(torch.zeros(8, 1))
        self.fixed = nn.Parameter(torch.linspace(0, 1, 16), requires_grad=False)
        self.register_buffer("mean", torch.zeros(16))
        self.mean: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(inputs.detach().mean((0, 1)), alpha=0.1)
        return inputs * self.scale + self.shift + self.fixed - self.mean


@dataclass(frozen=True)
class Case:
    """A model, and what it learns."""

    layers: Callable[[], list[nn.Module]]
    inputs: Tensor
    targets: Tensor = CLASSES
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy


CASES = {
    "no bias": Case(
        lambda: [nn.Linear(64, 33, bias=False), nn.ReLU(inplace=True), nn.Linear(33, 10)], VECTORS
    ),
    "layer norm, gelu": Case(
        lambda: [nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 10)], VECTORS
    ),
    "gelu, no whole registers": Case(
        lambda: [nn.Linear(64, 7), nn.GELU(approximate="tanh"), nn.Linear(7, 10)], VECTORS
    ),
    "squared error": Case(
        lambda: [nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 3)],
        VECTORS,
        NUMBERS,
        functional.mse_loss,
    ),
    "smoothed labels": Case(
        lambda: [nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 10)],
        VECTORS,
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
    ),
    "ignored labels": Case(
        lambda: [nn.Linear(64, 10)], VECTORS, loss=nn.CrossEntropyLoss(ignore_index=3)
    ),
    "batch norm": Case(
        lambda: [nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)], VECTORS
    ),
    "batch norm without means": Case(
        lambda: [
            *(nn.Linear(64, 32), nn.BatchNorm1d(32, affine=False, track_running_stats=False)),
            *(nn.ReLU(), nn.Linear(32, 10)),
        ],
        VECTORS,
    ),
    "convolutions": Case(
        lambda: [
            *(nn.Conv2d(1, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
            *(Residual(nn.Conv2d(6, 6, 3, padding=1), nn.GroupNorm(2, 6)), nn.AvgPool2d(2)),
            *(nn.Flatten(), nn.Linear(24, 10)),
        ],
        IMAGES,
    ),
    "tokens": Case(
        lambda: [
            *(nn.Embedding(50, 16), nn.Linear(16, 32), nn.SiLU(), nn.Flatten()),
            *(nn.LayerNorm(256), nn.Linear(256, 10)),
        ],
        TOKENS,
    ),
    "attention": Case(
        lambda: [
            nn.Embedding(50, 16),
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
            *(nn.Flatten(), nn.Linear(128, 10)),
        ],
        TOKENS,
    ),
    "ranks and buffers": Case(
        lambda: [nn.Embedding(50, 16), Scaled(), nn.Flatten(), nn.Linear(128, 10)], TOKENS
    ),
}

OPTIMIZERS: dict[str, Callable[[Any, float], Optimizer]] = {
    "decay": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters, lr: Adam(parameters, lr=lr),
}


def of_case(case: Case, **changes: Any) -> Any:
    settings = {"train": (case.inputs, case.targets), "test": (case.inputs, case.targets)}
    model = lambda: nn.Sequential(*case.layers())  # noqa: E731
    return task(model, loss=case.loss, lr=0.05, **settings | changes)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", CASES)
def test_steps_of_any_model_are_the_loops_to_the_last_bit(name: str, optimizer: str) -> None:
    shop = workshop(of_case(CASES[name], optimizer=OPTIMIZERS[optimizer]), n=7)
    check_same(steps(shop, shop.loop), steps(shop, shop.batched))


@pytest.mark.parametrize("way", ["batched", "apart"])
@pytest.mark.parametrize(
    ("width", "batch"), [(5, 5), (5, 6), (5, 10), (9, 3), (9, 15), (17, 7), (33, 1), (12, 20)]
)
def test_layers_that_end_within_a_line_of_memory_have_the_loops_bits(
    width: int, batch: int, way: str
) -> None:
    """Products of matrices round by the address at which they begin."""
    case = Case(
        lambda: [nn.Linear(64, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 10)],
        VECTORS,
    )
    shop = workshop(of_case(case, batch_size=batch), n=6)
    check_same(steps(shop, shop.loop), steps(shop, getattr(shop, way)))


def test_layers_that_begin_as_zeros_are_not_told_by_zeros() -> None:
    def layers() -> list[nn.Module]:
        made = [nn.Linear(64, 7), nn.LayerNorm(7), nn.Linear(7, 130), nn.Tanh(), nn.Linear(130, 10)]
        for layer in made[2::2]:
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)
        return made

    shop = workshop(of_case(Case(layers, VECTORS)), n=6)
    check_same(steps(shop, shop.loop, 8), steps(shop, shop.batched, 8))


def test_a_step_that_is_computed_again_on_its_way_back_uses_the_workers_own() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 32)
            self.last = nn.Linear(32, 10)

        def forward(self, inputs: Tensor) -> Tensor:
            hidden = checkpoint(lambda x: self.first(x).tanh(), inputs, use_reentrant=False)
            outputs: Tensor = self.last(hidden)
            return outputs

    shop = workshop(task(Again), n=5)
    check_same(steps(shop, shop.loop), steps(shop, shop.batched))


def test_hooks_of_an_optimizer_are_called() -> None:
    def clipped(parameters: Any, lr: float) -> Optimizer:
        made = SGD(parameters, lr=lr, momentum=0.9)

        def clip(*given: Any) -> None:
            for parameter in made.param_groups[0]["params"]:
                parameter.data.clamp_(-0.05, 0.05)

        made.register_step_post_hook(clip)
        return made

    shop = workshop(task(optimizer=clipped), n=5)
    looped = steps(shop, shop.loop)
    assert looped.x[0].max() <= 0.05
    check_same(looped, steps(shop, shop.batched))


def test_hooks_of_parameters_are_refused_and_called_by_the_loop() -> None:
    def hooked() -> nn.Module:
        model = nn.Linear(64, 10)
        model.weight.register_hook(lambda slope: slope / 2)
        return model

    with pytest.raises(ConfigError, match="its parameters have hooks"):
        choose("batched", workshop(task(hooked)))
    # The loop calls them, however many threads it has.
    ones, more = (workshop(task(hooked, lr=5.0), threads=threads) for threads in (1, 2))
    plain = workshop(task(lambda: nn.Linear(64, 10), lr=5.0))
    check_same(steps(ones, ones.loop), steps(more, more.loop))
    assert not torch.equal(steps(ones, ones.loop).x[0], steps(plain, plain.loop).x[0])


def test_a_loss_that_counts_is_refused() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = {"batches": 0}

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            self.seen["batches"] += 1
            return functional.cross_entropy(outputs, targets)

    with pytest.raises(ConfigError, match="attributes of the model or of its loss"):
        choose("batched", workshop(task(loss=Counted())))


def test_inputs_in_another_memory_format_are_refused() -> None:
    images = IMAGES.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
    case = Case(lambda: [nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(400, 10)], images)
    with pytest.raises(ConfigError, match="memory format"):
        choose("batched", workshop(of_case(case)))


def check_same(ours: ParameterMatrix, theirs: ParameterMatrix) -> None:
    for mine, other in zip((*ours.x, *ours.locals), (*theirs.x, *theirs.locals), strict=True):
        assert torch.equal(mine.view(torch.uint8), other.view(torch.uint8))


def test_how_many_are_computed_at_once_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = workshop(of_case(CASES["convolutions"]), n=7, threads=2)
    expected = steps(shop, shop.batched)
    monkeypatch.setattr(gradients, "_NUMBERS_AT_ONCE", 1)
    check_same(expected, steps(shop, shop.batched))


@pytest.mark.parametrize("name", ["batch norm", "tokens"])
def test_auto_batches_such_models_with_the_loops_digest(name: str) -> None:
    settings: dict[str, Any] = {"task": of_case(CASES[name]), "workers": 6, "steps": 5, "p": 0.5}
    looped, batched = (simulate(**settings, engine=name) for name in ("loop", "batched"))
    assert looped.summary["digest"] == batched.summary["digest"]
    choice = choose("auto", workshop(of_case(CASES[name]), n=64))
    assert (choice.name, "the same bits" in choice.why) == ("batched", True)


class Counting(nn.Module):
    """It counts its calls in a buffer, which is each worker's own."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.calls: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        outputs: Tensor = self.last(inputs) * self.calls
        return outputs


def test_buffers_that_do_not_travel_are_each_workers_own() -> None:
    shop = workshop(task(Counting), n=5)
    batched = steps(shop, shop.batched, 3)
    assert batched.locals[0].tolist() == [3] * 5
    check_same(steps(shop, shop.loop, 3), batched)


class Outside(nn.Module):
    """Its forward pass does something that is no operation of tensors."""

    def __init__(self, what: Callable[["Outside", Tensor], Any]) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.register_buffer("hidden", torch.zeros(1), persistent=False)
        self.hidden: Tensor
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


def of_weights(model: Outside, outputs: Tensor) -> float:
    return float(np.linalg.norm(model.last.weight.detach().numpy()))


def clamped(model: Outside, outputs: Tensor) -> float:
    with torch.no_grad():
        model.last.weight.clamp_(-1, 1)
    return 0.0


def through_a_view(model: Outside, outputs: Tensor) -> Tensor:
    doubled = outputs.detach() * 2
    doubled[:, 0] += 1
    return doubled


def strided(model: Outside, outputs: Tensor) -> Tensor:
    return outputs.detach().as_strided((outputs.shape[0], 1), (10, 1), 0)


def constant_written(model: Outside, outputs: Tensor) -> Tensor:
    return torch.tensor([2.0]).mul_(1.5) + model.kept.mul_(1.5)


def hidden(model: Outside, outputs: Tensor) -> Tensor:
    with torch.no_grad():
        model.hidden.add_(1)
    return model.hidden


def of_all(model: Outside, outputs: Tensor) -> Tensor:
    """It writes what is each worker's own into a tensor that it makes for all."""
    made = torch.zeros(10)
    made[:] = outputs.detach().mean(0)
    return made


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (lambda m, x: 0.0 if x.sum() > 0 else 1.0, "looks at values"),
        (lambda m, x: x.detach()[x > 0].sum(), "how many there are"),
        (lambda m, x: sum(x.detach().sum(0).tolist()), "values outside of tensors"),
        (lambda m, x: torch.from_numpy(x.detach().numpy() * 2), "values outside of tensors"),
        (lambda m, x: functional.dropout(x), "draws random numbers"),
        (lambda m, x: np.random.random(), "draws random numbers"),
        (counted, "changes attributes of the model"),
        (hidden, "no buffer of its state"),
        (of_all, "a worker's own into what all have"),
        (of_weights, "values outside of tensors"),
        (clamped, "no buffer of its state"),
        (through_a_view, "of which there are views"),
        (strided, "memory by strides"),
        (constant_written, "no buffer of its state"),
    ],
    ids=[
        "a look",
        "a mask",
        "a list",
        "numpy",
        "dropout",
        "numpy's chance",
        "a count",
        "hidden",
        *("made for all", "weights", "a clamp", "a view", "strides", "a constant"),
    ],
)
def test_what_is_no_operation_of_tensors_is_looped_and_refused(
    what: Callable[[Outside, Tensor], Any], why: str
) -> None:
    shop = workshop(task(lambda: Outside(what)))
    choice = choose("auto", shop)
    assert choice.make == shop.loop
    assert why in choice.why
    with pytest.raises(ConfigError, match="engine batched cannot take the task small"):
        choose("batched", shop)


def test_what_is_computed_from_constants_alone_is_traced() -> None:
    def fixed(model: Outside, outputs: Tensor) -> Tensor:
        chosen = outputs.detach()[:, torch.arange(9, -1, -1)]
        return torch.arange(10) / 10 + torch.tensor([2.0]) + chosen

    shop = workshop(task(lambda: Outside(fixed)))
    check_same(steps(shop, shop.loop), steps(shop, shop.batched))


def test_a_parameter_without_a_gradient_is_refused() -> None:
    def unused() -> nn.Module:
        model = Outside(lambda m, x: 0.0)
        model.spare = nn.Parameter(torch.zeros(3))
        return model

    with pytest.raises(ConfigError, match="cannot be traced"):
        choose("batched", workshop(task(unused)))


def test_a_running_mean_that_is_not_finite_any_more_is_found() -> None:
    """The loss is finite all the while: a variance of infinity makes zeros."""
    vast = VECTORS.clone()
    vast[17] *= 1e30
    case = Case(lambda: [nn.BatchNorm1d(64), nn.Linear(64, 10)], vast)
    shop = workshop(of_case(case, batch_size=8), n=4)
    stops = []
    for way in (shop.loop, shop.batched):
        failures = Failures()
        steps(shop, way, 50, failures)
        with pytest.raises(Failure) as caught:
            failures.check()
        stops.append(caught.value.stop)
    assert stops[0] == stops[1]


def test_a_gradient_lies_where_its_parameter_does_and_padding_is_zero() -> None:
    case = CASES["batch norm"]
    small = of_case(case)
    rows = ParameterMatrix(small.model(), 3)
    inputs, targets = (side[:12].view(3, 4, *side.shape[1:]) for side in small.train)
    found, losses = Gradient(rows, small)(
        rows.x[0].clone(), [part.clone() for part in rows.locals], inputs, targets
    )
    for worker in range(3):
        model = small.model()
        model.load_state_dict(rows.state(rows.tensors(worker)))
        loss = case.loss(model(inputs[worker]), targets[worker])
        loss.backward()
        assert losses[worker].item() == pytest.approx(loss.item(), rel=1e-6)
        expected = torch.zeros(rows.x[0].shape[1])
        named = dict(model.named_parameters())
        for placed in rows.segments[0].tensors:
            if (parameter := named.get(placed.spec.name)) is not None:
                start = (placed.offset_bytes - rows.segments[0].start_bytes) // 4
                assert parameter.grad is not None
                expected[start : start + parameter.numel()] = parameter.grad.flatten()
        assert torch.equal(found[worker], expected)


aten = torch.ops.aten
A, B = torch.randn(3, 4, 5, generator=DRAWN), torch.randn(3, 5, 6, generator=DRAWN)
FOUR = torch.randn(3, 2, 4, 5, generator=DRAWN)
PICTURES = torch.randn(3, 2, 2, 6, 6, generator=DRAWN)
POOLED = aten.max_pool2d_with_indices(PICTURES.flatten(0, 1), [2, 2], [2, 2])
LOGS = functional.log_softmax(A, 2)
AT = torch.tensor([[0, 1, 4, 2], [3, 3, 0, 1], [2, 4, 4, 0]])
OWN_AT = AT % 4

FORMS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "t": (aten.t.default, (A,), {}),
    "t of a vector": (aten.t.default, (A[:, 0],), {}),
    "transpose": (aten.transpose.int, (FOUR, -2, 0), {}),
    "permute": (aten.permute.default, (FOUR, [2, 0, -2]), {}),
    "view": (aten.view.default, (FOUR, [8, -1]), {}),
    "unsqueeze": (aten.unsqueeze.default, (A, 1), {}),
    "unsqueeze from the end": (aten.unsqueeze.default, (A, -1), {}),
    "expand": (aten.expand.default, (A[:, :1], [2, 4, 5]), {}),
    "mm": (aten.mm.default, (A, B), {}),
    "addmm": (aten.addmm.default, (torch.ones(3, 6), A, B), {}),
    "addmm of a matrix": (aten.addmm.default, (torch.ones(3, 4, 6), A, B), {}),
    "bmm": (aten.bmm.default, (FOUR, FOUR.transpose(2, 3)), {}),
    "sum": (aten.sum.dim_IntList, (FOUR, [0, -1], True), {}),
    "mean": (aten.mean.dim, (FOUR, [-2]), {}),
    "log_softmax": (aten._log_softmax.default, (A, 1, False), {}),
    "softmax": (aten._softmax.default, (A, -1, False), {}),
    "embedding": (aten.embedding.default, (A, OWN_AT), {}),
    "embedding backward": (aten.embedding_dense_backward.default, (A, OWN_AT, 7, -1, False), {}),
    "max_pool2d": (aten.max_pool2d_with_indices.default, (PICTURES, [2, 2], [2, 2]), {}),
    "mse": (aten.mse_loss.default, (A, A + 1), {}),
    "nll": (aten.nll_loss_forward.default, (LOGS, AT, None, 1, 4), {}),
    "nll backward": (
        aten.nll_loss_backward.default,
        (torch.ones(3), LOGS, AT, None, 1, 4, torch.tensor([3.0, 4.0, 2.0])),
        {},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_for_all_at_once_is_that_of_one_by_one(name: str) -> None:
    operation, given, settings = FORMS[name]
    own = [isinstance(part, Tensor) for part in given]
    expected = beside(one_by_one(operation, own, *given, **settings))
    for form in RULES[operation]:
        found = form(*given, **settings)
        if isinstance(expected, Tensor):
            found = (found,)
        each = (expected,) if isinstance(expected, Tensor) else expected
        for ours, theirs in zip(found, each, strict=True):
            assert ours.shape == theirs.shape
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("batch", [1, 7, 32])
@pytest.mark.parametrize("n_classes", [2, 3, 5, 7])
def test_a_softmax_over_few_classes_has_its_bits_however_many_workers_there_are(
    n_classes: int, batch: int
) -> None:
    spread = torch.tensor([0.1, 2.0, 10.0, 100.0]).repeat(5)[:19].view(-1, 1, 1)
    x = torch.randn(19, batch, n_classes, generator=DRAWN) * spread
    slope = torch.randn(x.shape, generator=DRAWN)
    logs = torch.stack([part.log_softmax(1) for part in x])
    forward, backward = (
        RULES[operation][0]
        for operation in (aten._log_softmax.default, aten._log_softmax_backward_data.default)
    )
    try:
        found = forward(x, 1, False), backward(slope, logs, 1, x.dtype)
    except ValueError:
        pytest.skip("this machine adds up otherwise")
    each = zip(slope, logs, strict=True)
    slopes = [torch._log_softmax_backward_data(*given, 1, x.dtype) for given in each]
    assert alike(found[0], logs) and alike(found[1], torch.stack(slopes))
    assert all(part.is_contiguous() for part in found)


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        (aten.nll_loss_forward.default, (LOGS, AT, torch.ones(5), 1, -100)),
        (aten.mse_loss.default, (A, A[:, :1], 1)),
        (aten.mse_loss.default, (A, A, 2)),
        (aten.embedding_dense_backward.default, (A, OWN_AT, 7, 0, False)),
        (aten.max_pool2d_with_indices.default, (FOUR, [2, 2])),
        (aten._log_softmax.default, (torch.zeros(3, 4, 16), 1, False)),
        (aten._log_softmax.default, (torch.zeros(3, 4, 5), 0, False)),
        (aten._log_softmax.default, (torch.zeros(3, 4, 5).double(), 1, False)),
        (aten.sum.dim_IntList, (A, [])),
        (aten.mean.dim, (A, [])),
    ],
    ids=[
        *("weights", "of other shapes", "sums", "padding", "one picture"),
        *("many classes", "another axis", "float64", "all axes", "all again"),
    ],
)
def test_a_form_refuses_what_it_is_not_for(operation: Any, given: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):
        RULES[operation][0](*given)


def test_lists_of_tensors_are_each_workers_own_or_shared() -> None:
    shared = torch.randn(4, 2, generator=DRAWN)
    found = beside(one_by_one(aten.cat.default, [(True, False), False], [A, shared], 1))
    assert torch.equal(found, torch.cat([A, shared.expand(3, 4, 2)], 2))
    assert operator.eq(tuple(found.shape), (3, 4, 7))
