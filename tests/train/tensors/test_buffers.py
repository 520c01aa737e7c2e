"""Host buffers that are lent, viewed, and come back."""

import gc

from rumor.train.tensors.buffers import BufferPool


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
    assert len(pool._kept[8]) == 2


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
    assert not pool._kept[64]
    frames.pop()
    gc.collect()
    assert pool.lend(64).data_ptr() == place
