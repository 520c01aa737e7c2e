"""What lies where in a payload, whichever devices the model is spread over."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rumor.gossip import TrainingError
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.train.tensors.layout import Placed, Segment, plan, segment_of
from rumor.train.tensors.vector import Vector

WIRES = ["float32", "bfloat16", "int8", "topk:0.1"]


def spread(*parts: tuple[str, int, str]) -> tuple[Schema, tuple[Segment, ...]]:
    """A model of one tensor per part: its dtype, how many numbers, and on which device."""
    specs = [TensorSpec(f"t{i}", (n,), dtype) for i, (dtype, n, _) in enumerate(parts)]
    segments, offset = [], 0
    for spec, (dtype, n, device) in zip(specs, parts, strict=True):
        tensor = torch.empty(n, dtype=getattr(torch, dtype), device=device)
        segments.append(segment_of((Placed(spec, tensor, offset),)))
        offset += spec.room_bytes
    return Schema(tuple(specs)), tuple(segments)


def test_one_dtype_on_two_devices_travels_as_it_is() -> None:
    schema, segments = spread(("float32", 32, "cpu"), ("float32", 16, "meta"))
    layout = plan(schema, segments, Form(), 0)
    assert [(p.flat, p.low, p.high, p.slot) for p in layout.numbers] == [
        (0, 0, 32, slice(0, 128)),
        (1, 0, 16, slice(128, 192)),
    ]


def test_one_dtype_on_two_devices_cannot_be_converted() -> None:
    schema, segments = spread(("float32", 32, "cpu"), ("float32", 16, "meta"))
    with pytest.raises(TrainingError, match="float32 tensors lie on several devices"):
        plan(schema, segments, Form("bfloat16"), 0)


def test_what_is_not_converted_may_lie_on_several_devices_in_any_format() -> None:
    schema, segments = spread(
        ("float64", 64, "cpu"), ("bfloat16", 64, "cpu"), ("bfloat16", 32, "meta")
    )
    layout = plan(schema, segments, Form("float16"), 0)
    assert [(p.slot, p.converts) for p in layout.numbers] == [
        (slice(0, 128), True),
        (slice(128, 256), False),
        (slice(256, 320), False),
    ]


@given(st.sampled_from(WIRES), st.integers(1, 9), st.booleans(), st.booleans(), st.integers(1, 3))
def test_parts_fill_a_payload_from_end_to_end_and_the_vector_likewise(
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
        assert len({tuple((p.flat, p.low, p.high) for p in parts) for parts in each}) == 1
        for part in (part for parts in each for part in parts):
            assert part.slot.start == at
            at = part.slot.stop
            for number in range(part.low, part.high):
                covered[part.flat][number] += 1
        local = vector.schema.copy_bytes - vector.schema.share_bytes
        assert layout.local == slice(at, at + (local if copy and shard == 0 else 0))
        at = layout.local.stop
        for part in layout.anchor:
            assert part.slot.start == at
            assert part.slot.stop - at == (part.high - part.low) * part.dtype.itemsize
            at = part.slot.stop
        assert at == layout.size_bytes == form.size_bytes(vector.schema, shard)
    assert all(count == registers for flat in covered for count in flat)
