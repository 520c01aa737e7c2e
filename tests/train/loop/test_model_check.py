"""Changes to a model after its peer was created are noticed, or harmless."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune, vector_to_parameters
from torch.nn.utils.parametrizations import weight_norm

from rumor.gossip import TrainingError
from rumor.train import Peer
from rumor.train.loop.model_check import ModelCheck
from rumor.train.tensors.vector import Vector


class Net(nn.Module):
    """A layer, normalization, a frozen layer and a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.act: nn.Module = nn.ReLU()
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.scratch: Tensor
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.act(self.norm(self.first(inputs))))
        return outputs


def check_of(model: Any) -> ModelCheck:
    return ModelCheck(Vector(model))


def load_copy(model: Net, *, assign: bool) -> None:
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=assign)


def setter(path: str, value: Any) -> Callable[[Any], object]:
    """A function that sets an attribute, such as ``norm.running_mean``."""
    *owners, name = path.split(".")
    return lambda model: setattr(functools.reduce(getattr, owners, model), name, value)


ANEW = "was assigned anew"
CONVERTED = ".* from torch.float32 on cpu to torch.float64 on cpu"
DETACHING: dict[str, tuple[Callable[[Any], object], str]] = {
    "assign": (lambda m: load_copy(m, assign=True), f"first.weight {ANEW} .* assign=True"),
    "untied": (setter("second.weight", nn.Parameter(torch.ones(4, 4))), "second.weight was"),
    "replaced": (setter("second", nn.Linear(4, 4)), f"second.weight {ANEW}"),
    "removed": (lambda m: delattr(m, "norm"), "norm.weight was taken away"),
    "added": (setter("scale", nn.Parameter(torch.ones(1))), "scale was added or unfrozen"),
    "layer": (setter("third", nn.Linear(4, 4)), "third.weight was added or unfrozen"),
    "unfrozen": (lambda m: m.requires_grad_(), "frozen.weight was added or unfrozen"),
    "buffer": (
        lambda m: m.norm.register_buffer("scale", torch.ones(2)),
        "norm.scale was added .* neither averaged",
    ),
    "buffer of the model": (
        lambda m: m.register_buffer("scale", torch.ones(2)),
        "^scale was added",
    ),
    "anew": (setter("norm.running_mean", torch.ones(4)), "norm.running_mean .* copy_"),
    "counter": (setter("norm.num_batches_tracked", torch.tensor(3)), "tracked was assigned"),
    "converted": (lambda m: m.double(), f"first.weight was moved or converted {CONVERTED}"),
    "data": (
        setter("first.bias.data", torch.ones(4)),
        r"first.bias was given other memory .* \.data = .*copy_",
    ),
    "halved": (lambda m: m.half(), "first.weight was moved or converted"),
    "grown": (lambda m: m.norm.running_mean.resize_(9), r"mean was resized .*\(4,\) to \(9,\)"),
    "shaped": (setter("first.bias.data", torch.ones(5)), "first.bias was resized"),
    "vector": (lambda m: vector_to_parameters(torch.ones(60), m.parameters()), "other memory"),
    "parametrized": (
        lambda m: weight_norm(m.first),
        r"first.weight was .*parametrizations.* before Peer",
    ),
    "pruned": (lambda m: prune.identity(m.first, "weight"), "first.weight was .*pruning"),
}


@pytest.mark.parametrize(("change", "message"), DETACHING.values(), ids=DETACHING)
def test_a_change_that_detaches_a_model_from_its_vector_is_refused(
    change: Any, message: str
) -> None:
    model = Net()
    check = check_of(model)
    check.require_whole()
    change(model)
    for _ in range(2):
        with pytest.raises(TrainingError, match=message):
            check.require_whole()


HARMLESS: dict[str, Callable[[Any], object]] = {
    "loaded": lambda m: load_copy(m, assign=False),
    "activation": setter("act", nn.GELU()),
    "scratch": setter("scratch", torch.ones(5)),
    "teacher": setter("teacher", nn.Linear(4, 4).requires_grad_(False)),
    "teacher with statistics": setter("teacher", nn.BatchNorm1d(4).requires_grad_(False)),
    "cache": lambda m: m.register_buffer("cache", torch.ones(2), persistent=False),
    "backbone": setter("frozen", nn.Linear(4, 2).requires_grad_(False)),
    "compiled": lambda m: m.compile(backend="eager"),
    "gradients": lambda m: m(torch.ones(2, 4)).sum().backward(),
    "to be shared among processes": lambda m: m.share_memory(),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_harmless_changes_are_accepted(change: Any) -> None:
    model = Net()
    check = check_of(model)
    change(model)
    check.require_whole()


def test_a_frozen_tensor_tied_to_a_trained_one_may_be_unfrozen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Net()
    model.frozen.weight.data = model.first.weight.data
    check = check_of(model)
    model.frozen.weight.requires_grad_()
    check.require_whole()
    assert not caplog.records


@torch.no_grad()
def replace_frozen(model: Net) -> None:
    model.frozen = copy.deepcopy(model.frozen)
    model.frozen.weight.neg_()


def load_frozen(model: Net) -> None:
    model.frozen.load_state_dict({"weight": torch.ones(4, 4), "bias": torch.ones(4)})


CHANGING_FROZEN: dict[str, Callable[[Any], object]] = {
    "in place": lambda m: m.frozen.weight.lerp_(m.first.weight.detach(), 0.1),
    "data in place": lambda m: m.frozen.weight.data.mul_(0.5),
    "one number": lambda m: m.frozen.weight.data[2, 1:2].add_(1),
    "data": lambda m: setattr(m.frozen.weight, "data", m.frozen.weight.data * 0.9),
    "order": lambda m: setattr(m.frozen.weight, "data", m.frozen.weight.data.flip(0)),
    "loaded": load_frozen,
    "replaced": replace_frozen,
}


@pytest.mark.parametrize("change", CHANGING_FROZEN.values(), ids=CHANGING_FROZEN)
def test_a_frozen_parameter_that_changes_is_named_after_the_first_step(change: Any) -> None:
    model = Net()
    check = check_of(model)
    check.begin()
    load_copy(model, assign=False)  # the same values
    check.after_step(1)
    check.require_constant()
    model = Net()
    check = check_of(model)
    check.begin()
    change(model)
    with pytest.raises(TrainingError, match=r"frozen\.weight is frozen.*local=\('frozen\.w"):
        check.after_step(1)


def test_local_tensors_and_frozen_tensors_that_may_differ_may_change() -> None:
    for given in ({"local": ("frozen",)}, {}):
        model = Net()
        check = ModelCheck(Vector(model, **given), frozen_may_differ=not given)  # type: ignore[arg-type]
        check.begin()
        model.frozen.weight.data.mul_(0.5)
        check.after_step(1)
        check.require_sound()
        assert not check._vector.schema.frozen


def test_a_model_is_checked_after_the_first_and_every_tenth_step() -> None:
    model = Net()
    check = check_of(model)
    check.begin()
    check.after_step(1)
    model.second = nn.Linear(4, 4)
    for step in range(2, 10):
        check.after_step(step)
    with pytest.raises(TrainingError, match=r"second\.weight"):
        check.after_step(10)


@pytest.mark.live
def test_a_peer_checks_its_model_on_entering_and_leaving_the_block() -> None:
    before, end = nn.Linear(2, 2), nn.Linear(2, 2)
    peer = Peer(before)
    load_copy(before, assign=True)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=r"weight was assigned anew"), peer:
        raise AssertionError("the block must not begin")
    with pytest.raises(TrainingError, match=r"weight was assigned anew"), Peer(end) as peer:
        peer.step()
        load_copy(end, assign=True)  # type: ignore[arg-type]
