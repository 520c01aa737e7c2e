"""Nested state is flattened and restored without pickle; modules keep their extra state."""

import io
import json
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, TrainingError
from rumor.gossip.wire.formats import Form
from rumor.train.storage.checkpoint import restore_rng, rng_state
from rumor.train.tensors.state import (
    ExtraState,
    flatten_state,
    pack_state,
    restore_state,
    unpack_state,
)
from rumor.train.tensors.vector import Vector


def round_trip(state: object) -> Any:
    """Flatten *state* into JSON and tensors, and restore it."""
    plain, tensors = flatten_state(state, "s")
    return restore_state(json.loads(json.dumps(plain, allow_nan=False)), tensors)


@pytest.mark.parametrize(
    "state",
    [
        None,
        True,
        -7,
        2**70,
        0.1,
        float("inf"),
        "text",
        b"\x00\xff",
        [1, [2, ()]],
        (1, (2, [])),
        {"a": 1, 1: "b", None: 2.5, False: 3},
        OrderedDict(z=1, a=2),
        {"tensor": "a text that looks like a tensor"},
        {1, "a", 2.5},
        frozenset({(1, 2)}),
        bytearray(b"\x01"),
        complex(1.5, float("inf")),
        np.float64(0.1),
    ],
)
def test_plain_values_are_restored_unchanged(state: object) -> None:
    back = round_trip(state)
    assert back == state
    assert repr(back) == repr(dict(state) if isinstance(state, OrderedDict) else state)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor(3, dtype=torch.int64),
        torch.ones(2, dtype=torch.bfloat16),
        torch.zeros(0, 4, dtype=torch.bool),
        torch.tensor([float("nan"), -0.0]),
        nn.Parameter(torch.ones(3)),
        torch.tensor([1 + 2j, 3.0]).conj(),
        torch.tensor(1j),
        torch.ones(3).to(torch.float8_e4m3fn),
        torch.zeros(0, 2, dtype=torch.complex128),
    ],
)
def test_tensors_are_restored_bit_for_bit(tensor: torch.Tensor) -> None:
    back = round_trip([tensor])[0]
    assert (back.dtype, back.shape, back.requires_grad) == (tensor.dtype, tensor.shape, False)
    plain = (each.detach().resolve_conj().contiguous() for each in (tensor, back))
    raw = (each.reshape(-1).view(torch.uint8) for each in plain)
    assert torch.equal(*raw)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">u2").reshape(2, 3),
        np.array(1.5, np.longdouble),
        np.zeros((0, 3), "M8[s]"),
        np.uint32(7),
        np.random.PCG64(3).state["state"]["state"],
    ],
)
def test_arrays_are_restored_with_their_dtype(array: Any) -> None:
    back = round_trip({"a": array})["a"]
    assert np.array_equal(back, array) and type(back) is type(array)
    assert getattr(back, "dtype", None) == getattr(array, "dtype", None)


def test_a_file_in_memory_is_restored_whole_and_rewound() -> None:
    file = io.BytesIO(b"fp8")
    file.seek(2)
    assert round_trip([file])[0].read() == b"fp8"


def test_a_packed_state_is_restored_and_damage_is_an_error() -> None:
    state: dict[str, Any] = {"scale": torch.tensor([1.0, 2.0]), "seen": {1, 2}}
    packed = pack_state(state)
    back = unpack_state(packed)
    assert torch.equal(back["scale"], state["scale"]) and back["seen"] == {1, 2}
    for damaged in (packed[:-1], b"", packed.replace(b'"tree"', b'"free"'), b"x" * 40):
        with pytest.raises(TrainingError):
            unpack_state(damaged)


def test_flattened_tensors_do_not_change_with_their_source() -> None:
    source = torch.zeros(3)
    _, tensors = flatten_state([source, source[:1]], "s")
    source += 1
    assert all(not tensor.any() for tensor in tensors.values()) and len(tensors) == 2


@pytest.mark.parametrize("first", ["0.0", "0"])
def test_keys_with_the_same_path_are_kept_apart(first: str) -> None:
    one, two = torch.tensor(1), torch.tensor(2)
    state = {"0": [one], 0: [two], "0.0": two}
    ordered = {first: state[first]} | state
    back = round_trip(ordered)
    assert (int(back["0"][0]), int(back[0][0]), int(back["0.0"])) == (1, 2, 2)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [object()]}, r"s\.a\.0 is a builtins\.object"),
        ({"path": Path("x")}, r"s\.path is a pathlib"),
        ({(1, 2): 3}, r"a key in s is a builtins\.tuple"),
        ([np.array([None])], r"s\.0 is a numpy\.ndarray"),
        ({"loss": len}, r"s\.loss is a builtins\.builtin_function"),
        ({"momentum": torch.zeros(2, 2).to_sparse()}, r"s\.momentum is a Tensor of"),
        ({"momentum": torch.zeros(2, device="meta")}, r"s\.momentum is a Tensor of"),
    ],
)
def test_an_unsupported_value_is_named_by_its_path(state: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        flatten_state(state, "s")


@pytest.mark.parametrize("plain", [{"what": 1}, {"tensor": "gone"}, {"dict": 3}, {"float": "x"}])
def test_an_invalid_state_is_refused(plain: object) -> None:
    with pytest.raises(TrainingError, match="cannot be put together"):
        restore_state(plain, {})


def test_all_random_generators_are_restored() -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(()).item(), np.random.random(), random.random()

    before = rng_state()
    state = round_trip(before)
    expected = draw()
    draw()
    restore_rng(state)
    assert draw() == expected
    restore_rng(before)


class Scaled(nn.Linear):
    """A layer with extra state of any kind."""

    def __init__(self, extra: object = None) -> None:
        super().__init__(3, 2)
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


def test_a_copy_includes_the_extra_state_of_every_module() -> None:
    donor: Any
    newcomer: Any
    donor, newcomer = (nn.Sequential(Scaled(x), nn.ReLU(), Scaled({x})) for x in ("old", "new"))
    donor[0].extra = {"amax": torch.tensor([1.0, 2.0]), "steps": 3}
    one, two = (Vector(each, carries_extra_state=True) for each in (donor, newcomer))
    assert one.schema == two.schema
    two.mix(one.snapshot(form=Form(copy=True)), 1.0, Form(copy=True))
    assert two.extra_state is not None
    two.extra_state.unpack()
    two.extra_state.unpack()  # nothing has arrived since
    assert newcomer[0].extra["steps"] == 3 and newcomer[2].extra == {"old"}
    assert torch.equal(newcomer[0].extra["amax"], donor[0].extra["amax"])


def test_oversized_or_unsupported_extra_state_is_refused() -> None:
    model = Scaled(b"")
    extra = ExtraState(model)
    model.extra = bytes(1 << 17)
    extra.pack()
    with pytest.raises(TrainingError, match=r"extra state has .* room for 65528: let get_extra"):
        extra.unpack()
    assert ExtraState(model).room.numel() > 1 << 18
    odd = nn.Sequential(nn.Linear(2, 2), Scaled({"a": [object()]}))
    with pytest.raises(ConfigError, match=r"1\._extra_state\.a\.0 is a .*let get_extra_state"):
        Vector(odd, carries_extra_state=True)
    plain = Vector(nn.Linear(3, 2), carries_extra_state=True)
    assert plain.extra_state is None and plain.schema == Vector(nn.Linear(3, 2)).schema


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, amsgrad=True),
        lambda p: torch.optim.Adagrad(p),
        lambda p: torch.optim.LBFGS(p, max_iter=3),
        lambda p: torch.optim.Rprop(p),
        lambda p: torch.optim.SGD([{"params": [p[0]], "lr": 0.1}, {"params": p[1:]}], lr=0.2),
    ],
)
def test_a_restored_optimizer_continues_identically(make: Any) -> None:
    def train(steps: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        inputs = torch.arange(8.0).reshape(4, 2)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(inputs).square().mean()
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)  # type: ignore[arg-type]

    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = make(list(model.parameters()))
    train(3, model, optimizer)
    state = round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(3, model, optimizer)
    again = nn.Linear(2, 1)
    restored = make(list(again.parameters()))
    again.load_state_dict(state["model"])
    restored.load_state_dict(state["optimizer"])
    train(3, again, restored)
    assert torch.equal(model.weight, again.weight)
