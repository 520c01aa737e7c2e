"""Host buffers are lent, viewed and returned."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from rumor.train.tensors import buffers
from rumor.train.tensors.buffers import Memory

SIZE = 1 << 20


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Memory bounded to three models of one MiB."""
    monkeypatch.setattr(buffers, "_BOUND_BYTES_MIN", 0)
    monkeypatch.setattr(buffers, "_BOUNDED_BYTES_MIN", 0)
    return Memory(SIZE, 3.0)


@pytest.mark.parametrize("is_segment", [False, True])
def test_a_buffer_is_lent_again_after_its_last_view_is_gone(is_segment: bool) -> None:
    memory = Memory(0)
    buffer = memory.lend(64, is_segment=is_segment)
    buffer.fill_(7)
    place, array = buffer.data_ptr(), buffer.numpy()
    frames = [array.data[:32], array.data[32:]]
    del array, buffer
    assert memory.lend(64, is_segment=is_segment).data_ptr() != place
    assert bytes(frames.pop()) == b"\7" * 32
    assert memory.idle_bytes == 64
    frames.pop()
    buffer = memory.lend(64, is_segment=is_segment)
    assert buffer.data_ptr() == place and memory.lend(32, is_segment=is_segment).numel() == 32


def test_memory_is_counted_from_lending_to_freeing(memory: Memory) -> None:
    staged, shown = memory.lend(SIZE), memory.lend(SIZE // 2, is_segment=True)
    assert (memory.used_bytes, memory.idle_bytes) == (SIZE + SIZE // 2, 0)
    del staged
    assert (memory.used_bytes, memory.idle_bytes) == (SIZE // 2, SIZE)
    memory.free_idle(3600.0)
    assert memory.idle_bytes == SIZE
    memory.free_idle(0.0)
    assert (memory.used_bytes, memory.idle_bytes) == (SIZE // 2, 0)
    memory.segments.abandon(shown)
    del shown
    assert (memory.used_bytes, memory.idle_bytes) == (0, 0)


def test_the_oldest_idle_buffers_are_freed_at_the_bound(memory: Memory) -> None:
    lent = [memory.lend(size) for size in (SIZE, SIZE, SIZE // 2)]
    while lent:
        del lent[0]
    others = [memory.lend(SIZE, is_segment=True)]
    assert memory.idle_bytes == SIZE // 2 + SIZE, "the oldest buffer had to be freed"
    others.append(memory.lend(SIZE, is_segment=True))
    assert memory.used_bytes + memory.idle_bytes == 2.5 * SIZE
    others.append(memory.lend(SIZE, is_segment=True))
    assert (memory.used_bytes, memory.idle_bytes) == (3 * SIZE, 0)


def test_used_and_promised_bytes_reduce_the_room(memory: Memory) -> None:
    assert not memory.lacks_room(9 * SIZE), "a buffer above the bound must be possible, too"
    assert memory.lacks_room(SIZE, promised_bytes=3 * SIZE)
    buffer = memory.lend(2 * SIZE)
    assert not memory.lacks_room(SIZE) and memory.lacks_room(SIZE, promised_bytes=1)
    del buffer
    assert not memory.lacks_room(3 * SIZE, promised_bytes=0)


@pytest.mark.parametrize(
    ("model_bytes", "models_max", "bound_bytes"),
    [
        (1 << 20, 3.0, math.inf),
        (8 << 20, 3.0, 64 << 20),
        (100 << 20, 2.5, 250 << 20),
        (100 << 20, math.inf, math.inf),
    ],
)
def test_small_models_and_synchronous_rules_have_no_bound(
    model_bytes: int, models_max: float, bound_bytes: float
) -> None:
    memory = Memory(model_bytes, models_max)
    assert memory.bound_bytes == bound_bytes
    assert memory.is_bounded is (bound_bytes < math.inf)
    assert memory.is_bounded or not memory.lacks_room(1 << 60, 1 << 60)


@pytest.mark.parametrize("is_segment", [False, True])
def test_threads_never_share_a_buffer(is_segment: bool) -> None:
    memory, torn = Memory(0), list[int]()

    def use(number: int) -> None:
        for _ in range(200):
            buffer = memory.lend(64, is_segment=is_segment)
            buffer.fill_(number)
            if not bool((buffer == number).all()):
                torn.append(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, range(4)))
    assert not torn and memory.used_bytes == 0
