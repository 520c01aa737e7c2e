"""A copy for readers outside: one at a time, between two steps, and forgotten afterwards."""

import pytest
import torch
from torch import nn

from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import EXCERPT_BYTES, Excerpt, Fetch
from rumor.train.runtime.telling.model_copy import ModelCopy
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Vector

from ..fake_queue import FakeQueue
from ..letters import letter

WIDTH = 800


class Shown:
    """A model in two shards, each of three excerpts, and its copy."""

    def __init__(self, queue: FakeQueue | None = None) -> None:
        self.model = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.vector = Vector(self.model, shards=2, queues=lambda device: queue)
        self.store = TensorStore(self.vector)
        self.now = 0.0
        self.copy = ModelCopy(self.store, lambda: self.now)

    def ask(
        self,
        reader: str,
        snapshot: int = 0,
        at: int = 0,
        *,
        shard: int = 0,
        why: str = "",
        **more: bool,
    ) -> tuple[Excerpt, bytes]:
        fetch = Fetch(snapshot=snapshot, offset_bytes=at, **more)
        told, frame = self.copy.answer(letter(fetch, source=reader, shard=shard), fetch, why)
        return told, bytes(frame)

    def take(self) -> None:
        if self.copy.is_wanted:
            self.copy.take([ONE, ONE // 2], 9)

    @property
    def used_bytes(self) -> int:
        return self.vector.memory.use().snapshots_bytes


@pytest.fixture
def shown() -> Shown:
    torch.manual_seed(0)
    return Shown()


def test_a_copy_is_of_one_step_boundary_however_long_it_is_read(shown: Shown) -> None:
    assert not shown.copy.is_wanted
    assert shown.ask("r") == (Excerpt(), b"") and shown.copy.is_wanted
    before = shown.vector.flats[0].clone().view(torch.uint8)
    shown.take()
    assert not shown.copy.is_wanted
    assert shown.ask("r") == (Excerpt(snapshot=1, held=ONE, step=9), b"")
    found = []
    for shard, held in ((0, ONE), (1, ONE // 2)):
        size = shown.store.schema.shard_bounds(shard)
        for start in range(0, size[1] - size[0], EXCERPT_BYTES):
            told, frame = shown.ask("r", 1, start, shard=shard)
            assert told == Excerpt(snapshot=1, offset_bytes=start, held=held, step=9)
            found.append(frame)
            with torch.no_grad():
                shown.model.weight.add_(1.0)
            shown.take()
    assert b"".join(found) == before.numpy().tobytes()
    assert {len(frame) for frame in found[:2]} == {EXCERPT_BYTES}
    assert shown.ask("r", 1, 1 << 40)[1] == b""
    assert shown.used_bytes == before.numel()
    assert shown.ask("r", 1, done=True) == (Excerpt(), b"") and shown.used_bytes == 0


def test_one_reader_at_a_time_bounds_the_memory_to_one_model(shown: Shown) -> None:
    shown.ask("r")
    shown.take()
    for other in ("s", "t"):
        assert shown.ask(other) == (Excerpt(), b"")
        assert shown.ask(other, 1) == (Excerpt(why="it was not fetched in time"), b"")
    shown.take()
    assert shown.used_bytes == shown.vector.flats[0].nbytes
    shown.ask("r", 1, done=True)
    shown.ask("s")
    shown.take()
    assert shown.ask("s")[0].snapshot == 2


def test_the_copy_of_a_reader_that_has_died_is_released(shown: Shown) -> None:
    shown.ask("r")
    shown.take()
    shown.now = 14.0
    assert shown.ask("r")[0].snapshot == 1
    shown.now = 28.0
    shown.copy.expire()
    assert shown.used_bytes
    shown.now = 30.0
    shown.copy.expire()
    assert not shown.used_bytes and not shown.copy.is_wanted
    # So is a copy that was taken after its reader had gone.
    shown.copy.take([ONE, ONE], 9)
    shown.copy.expire()
    assert not shown.used_bytes
    assert shown.ask("r", 1) == (Excerpt(why="it was not fetched in time"), b"")


def test_a_model_that_is_not_finite_is_not_shown(shown: Shown) -> None:
    with torch.no_grad():
        shown.model.weight[3] = torch.nan
    shown.ask("r")
    shown.take()
    told, frame = shown.ask("r")
    assert "finite" in told.why and not frame and not shown.used_bytes


def test_a_copy_on_a_device_is_shown_once_it_is_in_host_memory() -> None:
    queue = FakeQueue()
    shown = Shown(queue)
    shown.ask("r")
    shown.take()
    assert shown.ask("r") == (Excerpt(), b"") and not queue.waited
    queue.finish()
    assert shown.ask("r")[0].snapshot == 1
    assert len(shown.ask("r", 1)[1]) == EXCERPT_BYTES and not queue.waited
    shown.ask("r", 1, done=True)
    with torch.no_grad():
        shown.model.weight[3] = torch.nan
    shown.ask("s")
    shown.take()
    queue.finish()
    assert shown.ask("s") == (Excerpt(why="its model is not finite"), b"")
    assert shown.store.failure is None


def test_who_takes_part_no_more_begins_no_copy_and_completes_one(shown: Shown) -> None:
    assert shown.ask("r", why="it is leaving")[0].why == "it is leaving"
    assert not shown.copy.is_wanted
    shown.ask("r")
    shown.take()
    assert shown.ask("r", why="it is leaving")[0].snapshot == 1
