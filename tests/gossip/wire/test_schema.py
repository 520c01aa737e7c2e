"""Peers compare the schemas of their models first."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.gossip.wire.schema import (
    ALIGNMENT_BYTES,
    ITEMSIZES,
    FrozenTensor,
    Piece,
    Schema,
    TensorSpec,
)

WEIGHT = TensorSpec("weight", (3, 5), "float32")
COUNT = TensorSpec("count", (), "int64", shared=False)


def test_a_share_has_the_shared_tensors_and_a_copy_has_all_tensors() -> None:
    schema = Schema((WEIGHT, COUNT))
    assert (schema.share_bytes, schema.copy_bytes) == (64, 128)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (Schema((WEIGHT, COUNT)), None),
        (
            Schema((WEIGHT,)),
            "tensor 1 is count () int64 (local) here and absent there",
        ),
        (
            Schema((TensorSpec("weight", (3, 5), "float16"), COUNT)),
            "tensor 0 is weight (3, 5) float32 here and weight (3, 5) float16 there",
        ),
    ],
)
def test_the_first_difference_is_named(other: Schema, difference: str | None) -> None:
    mine = Schema((WEIGHT, COUNT))
    assert mine.difference(other) == difference
    assert (mine.hash == other.hash) == (difference is None)


TENSORS = st.lists(
    st.builds(
        TensorSpec,
        st.just("t"),
        st.tuples(st.integers(0, 100)),
        st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
        st.booleans(),
    ),
    max_size=8,
).map(tuple)


@given(data=st.data(), tensors=TENSORS)
def test_shards_tile_the_vector_and_pieces_tile_shards(
    data: st.DataObject, tensors: tuple[TensorSpec, ...]
) -> None:
    lines = Schema(tensors).share_bytes // ALIGNMENT_BYTES
    schema = Schema(tensors, data.draw(st.integers(1, max(1, lines))))
    bounds = [schema.shard_bounds(shard) for shard in range(schema.shards)]
    assert (bounds[0][0], bounds[-1][1]) == (0, schema.share_bytes)
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    sizes = [(stop - start) // ALIGNMENT_BYTES for start, stop in bounds]
    assert sum(sizes) == lines and max(sizes) - min(sizes) <= 1
    for shard, (start, stop) in enumerate(bounds):
        pieces = schema.pieces(shard)
        places = [start, *(piece.stop_bytes for piece in pieces)]
        assert [piece.start_bytes for piece in pieces] == places[:-1] and places[-1] == stop
        for piece in pieces:
            assert piece.start_bytes % ALIGNMENT_BYTES == piece.stop_bytes % ALIGNMENT_BYTES == 0
            size = ITEMSIZES[piece.dtype] * piece.n_numbers
            assert 0 < piece.n_numbers and size == piece.stop_bytes - piece.start_bytes


def _lines(piece: Piece) -> list[int]:
    return [] if piece.lines is None else piece.lines.tolist()


@given(data=st.data(), tensors=TENSORS)
def test_scattered_shards_cover_each_cache_line_once_with_one_dtype_per_piece(
    data: st.DataObject, tensors: tuple[TensorSpec, ...]
) -> None:
    n_lines = Schema(tensors).share_bytes // ALIGNMENT_BYTES
    shards = data.draw(st.integers(1, max(1, n_lines)))
    schema, whole = Schema(tensors, shards, scattered=True), Schema(tensors)
    lines = [schema.lines(shard).tolist() for shard in range(shards)]
    assert sorted(line for each in lines for line in each) == list(range(n_lines))
    assert max(map(len, lines)) - min(map(len, lines)) <= 1
    for shard, own in enumerate(lines):
        assert own == sorted(own)
        pieces = schema.pieces(shard)
        low, high = schema.shard_bounds(shard)
        assert sum(piece.size_bytes for piece in pieces) == high - low
        if shards == 1:
            assert pieces == whole.pieces()
            continue
        found = [line for piece in pieces for line in _lines(piece)]
        assert found == own
        for piece in pieces:
            assert piece.n_numbers * ITEMSIZES[piece.dtype] == piece.size_bytes > 0
            for line in _lines(piece):
                (run,) = (
                    run
                    for run in whole.pieces()
                    if run.start_bytes <= line * ALIGNMENT_BYTES < run.stop_bytes
                )
                assert run.dtype == piece.dtype


def test_scattered_shards_are_deterministic_and_cover_the_whole_vector() -> None:
    tensors = (TensorSpec("w", (16 * 1000,), "float32"),)
    lines = Schema(tensors, 10, scattered=True).lines(3)
    assert lines.tolist() == Schema(tensors, 10, scattered=True).lines(3).tolist()
    assert len(lines) == 100 and lines.min() < 50 and lines.max() > 950
    # Each shard has about a tenth of every stretch of 100 lines.
    assert all(2 <= count <= 25 for count in np.bincount(lines // 100, minlength=10))


@given(tensors=TENSORS)
def test_every_number_is_in_a_piece_of_its_dtype(tensors: tuple[TensorSpec, ...]) -> None:
    start = 0
    for tensor in [tensor for tensor in tensors if tensor.shared]:
        for piece in Schema(tensors).pieces():
            if piece.start_bytes <= start < piece.stop_bytes and tensor.room_bytes:
                assert piece.dtype == tensor.dtype
                assert start + tensor.room_bytes <= piece.stop_bytes
        start += tensor.room_bytes


@pytest.mark.parametrize(
    ("n", "shards", "shards_max"), [(32, 0, 2), (32, -1, 2), (32, 3, 2), (0, 2, 1)]
)
def test_a_vector_has_at_most_one_shard_per_cache_line(
    n: int, shards: int, shards_max: int
) -> None:
    with pytest.raises(ConfigError, match=f"shards is {shards}: it must be from 1 to {shards_max}"):
        Schema((TensorSpec("w", (n,), "float32"), COUNT), shards)
    empty = Schema((COUNT,))
    assert empty.shard_bounds(0) == (0, 0) and empty.pieces() == ()


def test_different_shards_make_schemas_incompatible() -> None:
    tensors = (TensorSpec("w", (64,), "float32"),)
    one, two, four = (Schema(tensors, shards) for shards in (1, 2, 4))
    assert len({one.hash, two.hash, four.hash}) == 3
    assert two.difference(four) == "it is cut into 2 shards here and 4 there"
    assert two.difference(Schema(tensors, 2)) is None
    scattered = Schema(tensors, 2, scattered=True)
    assert scattered.hash != two.hash
    assert two.difference(scattered) == "its shards are whole here and scattered there"


def test_a_different_memory_order_is_named_with_advice() -> None:
    plain = TensorSpec("kernel", (4, 3, 2, 2), "float32")
    last = TensorSpec("kernel", (4, 3, 2, 2), "float32", order=(0, 2, 3, 1))
    assert plain.axes == (0, 1, 2, 3) and last.axes == (0, 2, 3, 1)
    assert Schema((plain,)).hash != Schema((last,)).hash
    assert Schema((plain,)).difference(Schema((last,))) == (
        "tensor 0 is kernel (4, 3, 2, 2) float32 here and kernel (4, 3, 2, 2) float32 in memory "
        "order (0, 2, 3, 1) there; give all peers' models one memory format"
    )
    assert TensorSpec("row", (1, 4, 3), "float32", order=(2, 1)).axes == (2, 1, 0)
    assert Schema((WEIGHT, COUNT)).hash.hex() == "29f909fa9167e1f16d9a3cd71333a4e3", "as usual"
    # If the shapes differ as well, that advice would not help.
    other = Schema((TensorSpec("kernel", (4, 3, 2, 3), "float32", order=(0, 2, 3, 1)),))
    assert "memory format" not in (Schema((plain,)).difference(other) or "")


def test_different_frozen_parameters_make_schemas_incompatible() -> None:
    backbone, other = (FrozenTensor("base", (2, 2), "float32", each) for each in (1, 255))
    plain, one, two = (Schema((WEIGHT,), frozen=f) for f in ((), (backbone,), (other,)))
    assert len({plain.hash, one.hash, two.hash}) == 3
    assert one.difference(one) is None
    assert one.difference(two) == (
        "a frozen parameter is base (2, 2) float32 of checksum 00000001 here and base (2, 2) "
        "float32 of checksum 000000ff there: load the same one at all peers, or give "
        "frozen_may_differ to all"
    )
    longer = Schema((WEIGHT,), frozen=(backbone, other))
    assert "a frozen parameter is absent here and base" in (one.difference(longer) or "")
    assert plain.difference(one) == (
        "frozen parameters are not compared here and compared there: give frozen_may_differ to all "
        "peers or to none"
    )


@pytest.mark.parametrize("scattered", [False, True])
def test_a_tensor_is_in_the_shards_that_hold_its_cache_lines(*, scattered: bool) -> None:
    tensors = (TensorSpec("w", (40,), "float32"), TensorSpec("b", (3,), "float32"), COUNT)
    found = Schema(tensors, 2, scattered=scattered).shards_of
    assert found == {"w": (0, 1), "b": (0, 1) if scattered else (1,)}
    assert Schema(tensors, scattered=scattered).shards_of == {"w": (0,), "b": (0,)}


def test_a_tensor_that_is_local_at_one_peer_is_named_with_advice() -> None:
    averaged = Schema((WEIGHT, TensorSpec("min", (), "float32")))
    local = Schema((WEIGHT, TensorSpec("min", (), "float32", shared=False)))
    message = averaged.difference(local) or ""
    assert message.startswith("min is averaged here and local there: give all peers the same local")
    assert "run one batch through the model before Peer(model)" in message
    assert (local.difference(averaged) or "").startswith("min is local here and averaged there")
