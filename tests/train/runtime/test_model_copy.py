"""Copies for outside readers: one at a time, taken between two steps, released afterwards."""

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


class Harness:
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
        reply, frame = self.copy.answer(letter(fetch, source=reader, shard=shard), fetch, why)
        return reply, bytes(frame)

    def take(self) -> None:
        if self.copy.is_wanted:
            self.copy.take([ONE, ONE // 2], 9)

    @property
    def used_bytes(self) -> int:
        return self.vector.memory.used_bytes


@pytest.fixture
def harness() -> Harness:
    torch.manual_seed(0)
    return Harness()


def test_a_copy_does_not_change_while_it_is_read(harness: Harness) -> None:
    assert not harness.copy.is_wanted
    assert harness.ask("r") == (Excerpt(), b"") and harness.copy.is_wanted
    before = harness.vector.flats[0].clone().view(torch.uint8)
    harness.take()
    assert not harness.copy.is_wanted
    assert harness.ask("r") == (Excerpt(snapshot=1, held=ONE, step=9), b"")
    found = []
    for shard, held in ((0, ONE), (1, ONE // 2)):
        size = harness.store.schema.shard_bounds(shard)
        for start in range(0, size[1] - size[0], EXCERPT_BYTES):
            reply, frame = harness.ask("r", 1, start, shard=shard)
            assert reply == Excerpt(snapshot=1, offset_bytes=start, held=held, step=9)
            found.append(frame)
            with torch.no_grad():
                harness.model.weight.add_(1.0)
            harness.take()
    assert b"".join(found) == before.numpy().tobytes()
    assert {len(frame) for frame in found[:2]} == {EXCERPT_BYTES}
    assert harness.ask("r", 1, 1 << 40)[1] == b""
    assert harness.used_bytes == before.numel()
    assert harness.ask("r", 1, done=True) == (Excerpt(), b"") and harness.used_bytes == 0


def test_one_reader_at_a_time_bounds_the_memory_to_one_model(harness: Harness) -> None:
    harness.ask("r")
    harness.take()
    for other in ("s", "t"):
        assert harness.ask(other) == (Excerpt(), b"")
        assert harness.ask(other, 1) == (Excerpt(why="it was not fetched in time"), b"")
    harness.take()
    assert harness.used_bytes == harness.vector.flats[0].nbytes
    harness.ask("r", 1, done=True)
    harness.ask("s")
    harness.take()
    assert harness.ask("s")[0].snapshot == 2


def test_the_copy_of_a_dead_reader_is_released(harness: Harness) -> None:
    harness.ask("r")
    harness.take()
    harness.now = 14.0
    assert harness.ask("r")[0].snapshot == 1
    harness.now = 28.0
    harness.copy.expire()
    assert harness.used_bytes
    harness.now = 30.0
    harness.copy.expire()
    assert not harness.used_bytes and not harness.copy.is_wanted
    # A copy that is taken after its reader has gone is released, too.
    harness.copy.take([ONE, ONE], 9)
    harness.copy.expire()
    assert not harness.used_bytes
    assert harness.ask("r", 1) == (Excerpt(why="it was not fetched in time"), b"")


def test_a_non_finite_model_is_not_copied_to_readers(harness: Harness) -> None:
    with torch.no_grad():
        harness.model.weight[3] = torch.nan
    harness.ask("r")
    harness.take()
    reply, frame = harness.ask("r")
    assert "finite" in reply.why and not frame and not harness.used_bytes


def test_a_device_copy_is_readable_once_it_is_in_host_memory() -> None:
    queue = FakeQueue()
    harness = Harness(queue)
    harness.ask("r")
    harness.take()
    assert harness.ask("r") == (Excerpt(), b"") and not queue.waited
    queue.finish()
    assert harness.ask("r")[0].snapshot == 1
    assert len(harness.ask("r", 1)[1]) == EXCERPT_BYTES and not queue.waited
    harness.ask("r", 1, done=True)
    with torch.no_grad():
        harness.model.weight[3] = torch.nan
    harness.ask("s")
    harness.take()
    queue.finish()
    assert harness.ask("s") == (Excerpt(why="its model is not finite"), b"")
    assert harness.store.failure is None


def test_a_leaving_peer_completes_its_copy_but_starts_none(harness: Harness) -> None:
    assert harness.ask("r", why="it is leaving")[0].why == "it is leaving"
    assert not harness.copy.is_wanted
    harness.ask("r")
    harness.take()
    assert harness.ask("r", why="it is leaving")[0].snapshot == 1
