"""The size of a share depends only on schema, shard and form."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.gossip.wire.formats import INT8_BLOCK, Form, parse_wire
from rumor.gossip.wire.schema import ITEMSIZES, Schema, TensorSpec

DTYPES = ["float64", "float32", "float16", "bfloat16"]
TEXTS = ["float32", "bfloat16", "float16", "int8", "topk:0.01", "topk:0.5", "topk:1"]


def lines(size_bytes: float) -> int:
    """Round up to whole cache lines."""
    return 64 * ceil(size_bytes / 64)


def expected_bytes(wire: str, dtype: str, n: int, itemsize: int) -> int:
    """Return the documented size of *n* numbers."""
    if wire == "float32" or dtype not in ("float32", "float64"):
        return lines(n * itemsize)
    name, _, fraction = wire.partition(":")
    if name == "int8":
        return lines(n) + lines(4 * ceil(n / INT8_BLOCK))
    if name == "topk":
        kept = min(n, max(1, ceil(float(fraction) * n)))
        return lines(4 * kept) + lines(4 * kept)
    return lines(2 * n)


@pytest.mark.parametrize("text", TEXTS)
@given(n=st.integers(1, 5000), dtype=st.sampled_from(DTYPES))
def test_sizes_match_the_documented_formula(text: str, n: int, dtype: str) -> None:
    size = ITEMSIZES[dtype]
    found = parse_wire(text).room_bytes(dtype, n)
    assert str(parse_wire(text)) == text
    assert found == expected_bytes(text, dtype, n, size)
    assert found % 64 == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Valid names: float32, bfloat16, float16, int8, topk:FRACTION, topk2bit:FRACTION"),
        ("float64", "unknown wire 'float64', did you mean 'float16'"),
        ("topk2bit:2", r"wire 'topk2bit:2': fraction=2: it must be in \(0, 1\]"),
        ("topk:", "fraction=: it must"),
        ("topk:half", "fraction=half: it must"),
        ("topk:0", "fraction=0: it must"),
        ("topk:nan", "fraction=nan: it must"),
    ],
)
def test_an_invalid_format_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_wire(text)


def test_topk_sends_at_least_one_number_and_at_most_all() -> None:
    assert [parse_wire("topk:0.001").kept(n) for n in (1, 999, 1000, 1001)] == [1, 1, 1, 2]
    chunked = parse_wire("topk2bit:0.0156")
    assert [chunked.kept(n) for n in (1, 4096, 4097, 8192)] == [1, 64, 65, 128]
    # 64 positions of 12 bits, 2-bit codes and two scales, each padded, instead of 16,384 bytes.
    assert chunked.room_bytes("float32", 4096) == 128 + 64 + 64
    assert chunked.room_bytes("float32", 64 * 4096) == 64 * 96 + 64 * 16 + 64 * 8
    assert parse_wire("topk:1").kept(7) == parse_wire("int8").kept(7) == 7


MIXED = Schema(
    (
        TensorSpec("a", (100,), "float32"),
        TensorSpec("b", (100,), "float16"),
        TensorSpec("c", (100,), "float64"),
        TensorSpec("d", (7,), "int64", shared=False),
    ),
    shards=3,
)


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("anchor", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_a_share_has_its_pieces_then_local_buffers_then_the_anchor(
    text: str, copy: bool, anchor: bool
) -> None:
    form = Form(text, copy, anchor)
    for shard in range(3):
        low, high = MIXED.shard_bounds(shard)
        pieces = [
            (p.dtype, p.n_numbers, (p.stop_bytes - p.start_bytes) // p.n_numbers)
            for p in MIXED.pieces(shard)
        ]
        expected = sum(expected_bytes(text, *piece) for piece in pieces)
        expected += (MIXED.copy_bytes - MIXED.share_bytes) * (copy and shard == 0)
        expected += (high - low) * anchor
        assert form.size_bytes(MIXED, shard) == expected
        assert form.size_bytes(MIXED, shard) == expected  # cached


@pytest.mark.parametrize("text", TEXTS)
def test_each_of_several_registers_has_the_same_size(text: str) -> None:
    plain = [Form().size_bytes(MIXED, shard) for shard in range(3)]
    assert sum(plain) == MIXED.share_bytes
    for shard in range(3):
        one = Form(text).size_bytes(MIXED, shard)
        assert Form(text, registers=3).size_bytes(MIXED, shard) == 3 * one
        extra = Form(text, copy=True, anchor=True).size_bytes(MIXED, shard) - one
        together = Form(text, copy=True, anchor=True, registers=3).size_bytes(MIXED, shard)
        assert together == 3 * one + extra


def test_the_cache_of_sizes_is_bounded_for_any_requests() -> None:
    schema = Schema((TensorSpec("w", (1000,), "float32"),))
    for index in range(1, 5_000):
        form = Form(f"topk:{index / 10_000}")
        assert form.size_bytes(schema, 0) == form.size_bytes(schema, 0)
    assert len(schema.sizes) <= 4096
