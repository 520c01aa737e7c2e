"""Tensors in flat memory and payloads: their strides, ties and devices."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_model
from torch import nn

from rumor.gossip import TrainingError
from rumor.gossip.types import stream
from rumor.gossip.wire.formats import Form
from rumor.train.tensors.layout import Layout
from rumor.train.tensors.vector import Vector


def convolutions(seed: int, memory_format: torch.memory_format = torch.channels_last) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 1))
    model[2].bias = nn.Parameter(torch.randn(12)[::2])
    return model.to(memory_format=memory_format)  # type: ignore[call-overload,no-any-return]


def test_tensors_without_gaps_keep_their_strides() -> None:
    model: Any = convolutions(0)
    before = {name: p.stride() for name, p in model.named_parameters()}
    vector = Vector(model)
    after = {name: p.stride() for name, p in model.named_parameters()}
    assert after == before | {"2.bias": (1,)}
    orders = {tensor.name: tensor.order for tensor in vector.schema.tensors if tensor.order}
    # A 1x1 kernel has its channels last in any case, but cuDNN looks at the strides.
    assert orders == {"0.weight": (0, 2, 3, 1)} and before["2.weight"] == (4, 1, 4, 4)
    for name, laid in vector.layout.tensors(vector.flats).items():
        own = model.state_dict()[name]
        assert torch.equal(laid, own) and laid.data_ptr() == own.data_ptr()


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("wire", ["float32", "bfloat16", "float16"])
def test_channels_last_and_contiguous_models_mix_to_equal_numbers(wire: str, shards: int) -> None:
    form, found = Form(wire), []
    for memory_format in (torch.channels_last, torch.contiguous_format):
        ours, theirs = (convolutions(seed, memory_format) for seed in (0, 1))
        receiver, sender = (
            Vector(each, shards=shards, keeps_anchor=True) for each in (ours, theirs)
        )
        receiver.anchor_flats = tuple(flat.clone() for flat in sender.flats)
        for flat in sender.flats:
            flat.add_(0.25)
        for shard in range(shards):
            share = sender.snapshot("x", form, shard, stream(0, "a", "rounding"))
            receiver.mix(share, 0.5, form, shard)
        found.append(ours.state_dict())
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())


def test_tensors_tied_by_data_stay_tied_and_in_the_state_dict() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight.data = model[0].weight.data
    model[2].weight.requires_grad_(False).data = model[0].weight.data
    vector = Vector(model)
    assert [spec.name for spec in vector.schema.tensors].count("0.weight") == 1
    assert len({layer.weight.data_ptr() for layer in model}) == 1
    assert len({id(layer.weight) for layer in model}) == 3
    twice = vector.layout.state_dict(tuple(2 * flat for flat in vector.flats))
    for index in range(3):
        assert torch.equal(twice[f"{index}.weight"], 2 * model[0].weight)
    vector.flats[0].zero_()
    assert not any(layer.weight.any() for layer in model)
    model[1].weight.data = torch.ones(4, 4)
    with pytest.raises(TrainingError, match=r"1\.weight was given other memory"):
        vector.layout.require_in_place()


@pytest.mark.extended
def test_parting_gives_tensors_their_own_storages_in_place(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), convolutions(0))
    model[2].weight.data = model[0].weight.data
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    vector = Vector(model)
    model[0](torch.ones(2, 4)).sum().backward()
    optimizer.step()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    places = [(p.data_ptr(), p.stride()) for p in model.parameters()]
    vector.layout.part()
    assert [(p.data_ptr(), p.stride()) for p in model.parameters()] == places
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
    assert model[2].weight.untyped_storage().data_ptr() == model[0].weight.data_ptr()
    vector.layout.require_in_place()
    del vector
    gc.collect()
    optimizer.step()
    assert torch.equal(model[2].weight, model[0].weight)
    assert not torch.equal(model[0].weight, before["0.weight"])
    save_model(model, str(tmp_path / "model.safetensors"))
    moved = nn.Linear(2, 2)
    layout = Vector(moved).layout
    moved.weight.data = torch.ones(2, 2)
    layout.part()
    assert moved.weight.eq(1).all()


def test_share_memory_moves_model_and_vector_together() -> None:
    model = nn.Linear(4, 3)
    vector = Vector(model)
    place = model.weight.data_ptr()
    model.share_memory()
    assert model.weight.data_ptr() != place
    for _ in range(2):
        vector.layout.require_in_place()
    with torch.no_grad():
        model.weight.fill_(7.0)
    assert vector.layout.tensors(vector.flats)["weight"].eq(7.0).all()
    model.weight.data = model.weight.data.clone()
    with pytest.raises(TrainingError, match="weight was given other memory"):
        vector.layout.require_in_place()


def test_changes_to_a_model_do_not_move_tensors_in_the_vector() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    vector = Vector(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.half()
    model[0].bias.data = torch.ones(7)
    for name, tensor in vector.layout.tensors(vector.flats).items():
        assert torch.equal(tensor, before[name])
    vector.layout.part()


def test_sending_a_resized_local_buffer_names_it_in_the_error() -> None:
    model = nn.BatchNorm1d(4)
    vector = Vector(model)
    model.num_batches_tracked.resize_(3)  # type: ignore[union-attr]
    with pytest.raises(TrainingError, match=r"tracked was resized .* from \(\) to \(3,\)"):
        vector.snapshot("x", Form("float32", copy=True), 0, stream(0, "a", "rounding"))


WIRES = ["float32", "bfloat16", "int8", "topk:0.1"]


def test_a_model_on_two_devices_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rumor.train.model._is_empty", lambda _: False)
        with pytest.raises(TrainingError, match="the model lies on cpu and meta: move all of it"):
            Layout(model)


@given(st.sampled_from(WIRES), st.integers(1, 9), st.booleans(), st.booleans(), st.integers(1, 3))
def test_parts_cover_payload_and_vector_without_gaps(
    wire: str, shards: int, copy: bool, anchor: bool, registers: int
) -> None:
    module = nn.Sequential(nn.Linear(9, 7), nn.BatchNorm1d(7), nn.Linear(7, 30).double())
    vector = Vector(module, shards=shards)
    covered = [[0] * flat.numel() for flat in vector.flats]
    for shard in range(shards):
        form = Form(wire, copy, anchor, registers)
        layout, at = vector.plan(form, shard), 0
        each = layout.registers
        assert len(each) == registers
        assert (
            len({tuple((p.span.flat, p.span.low, p.span.high) for p in parts) for parts in each})
            == 1
        )
        for part in (part for parts in each for part in parts):
            assert part.slot.start == at
            at = part.slot.stop
            for number in range(part.span.low, part.span.high):
                covered[part.span.flat][number] += 1
        local = vector.schema.copy_bytes - vector.schema.share_bytes
        assert layout.local == slice(at, at + (local if copy and shard == 0 else 0))
        at = layout.local.stop
        for part in layout.anchor:
            assert part.slot.start == at
            assert part.slot.stop - at == (part.span.high - part.span.low) * part.dtype.itemsize
            at = part.slot.stop
        assert at == layout.size_bytes == form.size_bytes(vector.schema, shard)
    assert all(count == registers for flat in covered for count in flat)
