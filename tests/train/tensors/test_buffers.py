"""Host buffers that are lent, viewed, and come back."""

import gc
import math
from pathlib import Path

import pytest

from rumor.train.tensors import buffers
from rumor.train.tensors.buffers import BufferPool, Memory, give_pages_back
from rumor.train.tensors.shared_memory import Attachments, SegmentPool

SIZE = 1 << 20


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Three times a model of a MiB."""
    monkeypatch.setattr(buffers, "_BOUND_BYTES_MIN", 0)
    monkeypatch.setattr(buffers, "_BOUNDED_BYTES_MIN", 0)
    return Memory(SIZE, 3.0)


def test_what_is_taken_back_is_lent_again() -> None:
    pool = BufferPool(pinned=False)
    buffer = pool.lend(64)
    place = buffer.data_ptr()
    pool.take_back(buffer)
    assert pool.lend(64).data_ptr() == place
    assert pool.lend(64).data_ptr() != place
    assert pool.lend(32).numel() == 32


def test_no_more_than_a_few_are_kept() -> None:
    pool = BufferPool(pinned=False, kept_max=2)
    lent = [pool.lend(8) for _ in range(5)]
    for buffer in lent:
        pool.take_back(buffer)
    assert len(pool.idle._kept[8]) == 2


@pytest.mark.extended
def test_a_viewed_buffer_comes_back_with_its_last_frame() -> None:
    pool = BufferPool(pinned=False)
    buffer = pool.lend(64)
    buffer.fill_(7)
    place = buffer.data_ptr()
    view = pool.frames(buffer)
    frames = [view[:32], view[32:]]
    del view, buffer
    gc.collect()
    assert bytes(frames[0]) == b"\7" * 32
    frames.pop()
    assert not pool.idle._kept[64]
    frames.pop()
    gc.collect()
    assert pool.lend(64).data_ptr() == place


def test_memory_is_counted_by_kind_from_lending_to_freeing(memory: Memory) -> None:
    staging = BufferPool(pinned=False, memory=memory, kind="staged")
    segments = SegmentPool(pinned=False, memory=memory)
    mapped = Attachments(memory=memory)
    staged, shown = staging.lend(SIZE), segments.lend(SIZE // 2)
    assert mapped.open(segments.name_of(shown), SIZE // 2) is not None
    use = memory.use()
    assert (use.staged_bytes, use.segments_bytes, use.snapshots_bytes) == (SIZE, SIZE // 2, 0)
    assert (use.models, use.attached_bytes) == (1.5, SIZE // 2), "that is another one's memory"
    staging.take_back(staged)
    use = memory.use()
    assert (use.staged_bytes, use.idle_bytes, use.models) == (0, SIZE, 1.5)
    memory.free_idle(0.0)
    assert memory.use().total_bytes == SIZE // 2


def test_a_frame_that_still_leaves_keeps_its_memory_counted(memory: Memory) -> None:
    for pool in (SegmentPool(pinned=False, memory=memory), BufferPool(pinned=False, memory=memory)):
        buffer = pool.lend(SIZE)
        view = pool.frames(buffer)
        if isinstance(pool, SegmentPool):
            pool.abandon(buffer)
        del buffer
        assert memory.use().models == 1.0
        del view
        memory.free_idle(0.0)
        assert memory.use().models == 0.0


def test_idle_buffers_go_before_the_bound_is_passed_the_oldest_first(memory: Memory) -> None:
    first = BufferPool(pinned=False, memory=memory)
    second = BufferPool(pinned=False, memory=memory, kind="snapshots")
    for buffer in [first.lend(SIZE), first.lend(SIZE), first.lend(SIZE // 2)]:
        first.take_back(buffer)
    second.lend(SIZE)
    assert first.idle.size_bytes == SIZE // 2 + SIZE, "the oldest had to go"
    second.lend(SIZE)
    assert memory.use().models == 2.5
    second.lend(SIZE)
    assert (memory.use().models, first.idle.size_bytes) == (3.0, 0)


def test_room_is_what_is_neither_in_use_nor_promised(memory: Memory) -> None:
    pool = BufferPool(pinned=False, memory=memory)
    assert not memory.lacks_room(9 * SIZE), "what is larger than all must come and go, too"
    assert memory.lacks_room(SIZE, promised_bytes=3 * SIZE)
    buffer = pool.lend(2 * SIZE)
    assert not memory.lacks_room(SIZE) and memory.lacks_room(SIZE, promised_bytes=1)
    pool.take_back(buffer)
    assert not memory.lacks_room(3 * SIZE, promised_bytes=0)
    assert memory.is_filled_by(2 * SIZE) and not memory.is_filled_by(SIZE)


@pytest.mark.parametrize("make", [BufferPool, SegmentPool])
def test_a_buffer_made_ahead_gives_way_to_those_in_use(
    make: type[BufferPool] | type[SegmentPool], memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, other = make(pinned=False, memory=memory), BufferPool(pinned=False, memory=memory)
    assert pool.make_ahead(SIZE) and memory.use().idle_bytes == SIZE
    assert not memory.lacks_room(3 * SIZE)
    lent = [other.lend(SIZE) for _ in range(2)]
    assert not pool.make_ahead(SIZE) and pool.idle.size_bytes == SIZE
    lent.append(other.lend(SIZE))
    assert pool.idle.size_bytes == 0
    for buffer in lent:
        other.take_back(buffer)
    memory.free_idle(0.0)
    # While its pages are made, others take all there is.
    monkeypatch.setattr(buffers, "_PIECE_BYTES", SIZE // 2)
    looked = iter([False, False, True])
    monkeypatch.setattr(Memory, "is_filled_by", lambda self, size_bytes: next(looked))
    assert not pool.make_ahead(SIZE)
    assert memory.use().total_bytes == 0


def test_only_what_was_not_used_for_a_while_is_freed(memory: Memory) -> None:
    pool = BufferPool(pinned=False, memory=memory)
    pool.take_back(pool.lend(SIZE))
    memory.free_idle(3600.0)
    assert memory.use().idle_bytes == SIZE
    memory.free_idle(0.0)
    assert memory.use().idle_bytes == 0


@pytest.mark.parametrize(
    ("model_bytes", "models_max", "bound_bytes"),
    [
        (1 << 20, 3.0, math.inf),
        (8 << 20, 3.0, 64 << 20),
        (100 << 20, 2.5, 250 << 20),
        (100 << 20, math.inf, math.inf),
    ],
)
def test_small_models_and_rules_that_wait_have_no_bound(
    model_bytes: int, models_max: float, bound_bytes: float
) -> None:
    memory = Memory(model_bytes, models_max)
    assert memory.bound_bytes == bound_bytes
    assert memory.is_bounded is (bound_bytes < math.inf)
    assert memory.is_bounded or not memory.lacks_room(1 << 60, 1 << 60)


def test_pages_are_given_back_where_the_system_can() -> None:
    assert give_pages_back() in (True, False)
    assert Path("/proc/self").exists() or not give_pages_back()


def test_what_nobody_asks_for_is_added_up_all_the_same() -> None:
    memory = Memory(1 << 10)
    pool = BufferPool(pinned=False, memory=memory)
    for _ in range(1000):
        pool.take_back(pool.lend(64))
    assert len(memory._changes) < 600 and memory.use().staged_bytes == 0
