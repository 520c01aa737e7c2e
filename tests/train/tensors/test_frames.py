"""Shares that are held as the messages in which they came do what shares in buffers do."""

import math

import pytest
import torch
from torch import Tensor, nn

from rumor.gossip.effects.effects import Combine, Drop, Mix, Stage
from rumor.gossip.errors import DecodeError
from rumor.gossip.types import SharePart
from rumor.gossip.wire.codec import checksum
from rumor.gossip.wire.formats import Form
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Vector

from .test_store import SHARE, WHOLE, kept_buffers, land, model


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that keeps the pages of messages, which would change all tests after it."""
    monkeypatch.setattr("rumor.train.tensors.vector.messages_keep_pages", lambda: True)


class Mixed(nn.Module):
    """Two dtypes, each longer than a frame, and buffers that only a copy brings."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(70, 50)
        self.wide = nn.Linear(40, 30, dtype=torch.float64)
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("mask", torch.full((2000,), -math.inf))


def mixed(seed: int) -> Mixed:
    torch.manual_seed(seed)
    return Mixed()


def hold(store: TensorStore, payload: Tensor, form: Form = WHOLE, frame_bytes: int = 4096) -> None:
    """Let a share arrive in messages that are kept, the last of them first."""
    size = payload.numel()
    for start in reversed(range(0, size, frame_bytes)):
        frame = bytearray(payload[start : start + frame_bytes].numpy())
        stage = Stage(SHARE, start, size, form)
        assert store.staging.holds(stage, len(frame))
        store.staging.hold(stage, frame, checksum(frame))
        store.carry_out(stage)


TWO = Form(registers=2)


@pytest.mark.parametrize("fraction", [0.25, 1.0])
@pytest.mark.parametrize("form", [WHOLE, TWO, Form(copy=True, anchor=True)], ids=str)
def test_a_share_is_mixed_from_its_messages_as_from_a_buffer(form: Form, fraction: float) -> None:
    registers = ("x", "y")[: form.registers]
    sender = Vector(mixed(1), ("y",), keeps_anchor=True)
    payload = sender.snapshot(registers, form)
    results = []
    for arrive in (hold, land):
        vector = Vector(mixed(0), ("y",), keeps_anchor=True)
        store = TensorStore(
            vector,
        )
        arrive(store, payload, form)
        assert store.is_sound(SHARE, sender.kept_anchor())
        store.carry_out(Mix(SHARE, fraction, form))
        assert arrive is land or not kept_buffers(vector)
        results.append((vector.snapshot(form=Form(copy=True)), vector.kept_anchor()))
    assert torch.equal(results[0][0], results[1][0]) and results[0][1] == results[1][1]


def test_messages_that_are_held_are_combined_and_read_as_a_buffer_is() -> None:
    payload = Vector(mixed(1), ("y",)).snapshot(("x", "y"), TWO)
    results = []
    for arrive in (hold, land):
        vector = Vector(mixed(0), ("y",))
        store = TensorStore(vector)
        arrive(store, payload, TWO)
        staged = store.staging.find(SHARE)
        read = torch.cat(
            [values.clone() for values, _, _ in vector.numbers_in(staged.payload, TWO, 0)]
        )
        store.carry_out(Combine("y", ((0.5, "x"), (2.0, SharePart(SHARE, 1)))))
        results.append((read, *vector.flats_of("y")))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_message_is_held_only_in_pages_that_are_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staging, stage = TensorStore(Vector(model())).staging, Stage(SHARE, 0, 8192)
    assert staging.holds(stage, 4096)
    monkeypatch.setattr("rumor.train.tensors.vector.messages_keep_pages", lambda: False)
    assert not staging.holds(stage, 4096)


def test_a_message_is_held_only_where_nothing_has_to_be_converted() -> None:
    here = TensorStore(Vector(model(), keeps_anchor=True)).staging
    assert here.holds(Stage(SHARE, 0, 8192), 4096) and here.holds(Stage(SHARE, 4096, 4100), 4)
    assert not here.holds(Stage(SHARE, 0, 8192), 100)
    assert not here.holds(Stage(SHARE, 32, 8192), 64)
    assert not here.holds(Stage(SHARE, 0, 8192, Form("int8")), 4096)


def test_a_damaged_message_and_one_of_no_number_are_found_out() -> None:
    vector = Vector(model())
    store, payload = TensorStore(vector), vector.snapshot().clone()
    stage, frame = Stage(SHARE, 0, payload.numel()), bytearray(payload.numpy())
    check = checksum(frame)
    frame[3 << 10] ^= 1
    with pytest.raises(DecodeError, match="damaged"):
        store.staging.hold(stage, frame, check)
    assert store.staging.look(SHARE) is None
    payload.view(torch.float32)[7] = math.inf
    frame = bytearray(payload.numpy())
    store.staging.hold(stage, frame, checksum(frame))
    assert not store.staging.is_finite(SHARE)


def test_a_frame_between_two_cache_lines_is_no_part_of_a_share_that_is_held() -> None:
    vector = Vector(model())
    store, payload = TensorStore(vector), vector.snapshot()
    stage, frame = Stage(SHARE, 0, payload.numel()), bytearray(payload[:64].numpy())
    store.staging.hold(stage, frame, checksum(frame))
    odd = Stage(SHARE, 64, payload.numel())
    assert not store.staging.holds(odd, 10)
    with pytest.raises(DecodeError, match="whole cache lines"):
        store.staging.take_in(odd, bytes(10))


def test_a_message_for_a_share_that_was_dropped_is_let_go() -> None:
    vector = Vector(model())
    store, payload = TensorStore(vector), vector.snapshot()
    store.carry_out(Drop(SHARE))
    frame = bytearray(payload.numpy())
    store.staging.hold(Stage(SHARE, 0, payload.numel()), frame, checksum(frame))
    assert store.staging.look(SHARE) is None and not kept_buffers(vector)
