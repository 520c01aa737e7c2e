"""Memory for snapshots is there before the first push."""

import threading

import pytest
import torch
from torch import nn

from rumor.gossip.wire.formats import Form
from rumor.train.tensors.buffers import BufferPool
from rumor.train.tensors.shared_memory import SegmentPool
from rumor.train.tensors.store import Preallocation, TensorStore
from rumor.train.tensors.vector import Vector


@pytest.mark.parametrize("make", [BufferPool, SegmentPool])
def test_a_pool_lends_what_has_come_back_before_it_makes_more(
    make: type[BufferPool] | type[SegmentPool],
) -> None:
    pool = make(pinned=False)
    for buffer in [pool.lend(1 << 16) for _ in range(2)]:
        pool.take_back(buffer)
    made = {buffer.data_ptr() for _, buffer in pool.idle._kept[1 << 16]}
    lent = [pool.lend(1 << 16) for _ in range(3)]
    assert {buffer.data_ptr() for buffer in lent[:2]} == made and len(made) == 2
    assert lent[2].data_ptr() not in made


def store(numbers: int, shards: int = 1, segments: SegmentPool | None = None) -> TensorStore:
    model = nn.Module()
    model.register_parameter("w", nn.Parameter(torch.zeros(numbers)))
    return TensorStore(Vector(model, shards=shards), segments=segments)


def test_a_small_model_is_not_warmed() -> None:
    made = store(1000)
    made.preallocate(Form(), 2, shown=False)
    assert not made._vector.snapshots.idle._kept


def test_of_many_shards_no_more_than_a_push_carries_are_made() -> None:
    made = store(4 << 20, shards=4)
    made.preallocate(Form(), 2, shown=False)
    ((size_bytes, kept),) = made._vector.snapshots.idle._kept.items()
    assert (size_bytes, len(kept)) == (4 << 20, 2)


def test_neighbors_that_read_memory_and_others_are_warmed_for_once_each() -> None:
    segments = SegmentPool(pinned=False)
    made = store(2 << 20, segments=segments)
    preallocation = Preallocation(made, Form(), 1)
    before = threading.active_count()
    for shares in (True, False, True, False):
        preallocation.met(shares_memory=shares)
    preallocation.close()
    assert threading.active_count() == before
    for pool in (segments, made._vector.snapshots):
        assert [len(kept) for kept in pool.idle._kept.values()] == [1]
    made.close()
