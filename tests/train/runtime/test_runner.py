"""The send queue of the network thread: the order of messages, and waits for snapshots."""

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from rumor.gossip.effects.effects import Part, Release, Snapshot
from rumor.gossip.types import PeerId
from rumor.gossip.wire.codec import Buffer, decode_header
from rumor.gossip.wire.messages import Body, Envelope, Grant, Query
from rumor.train.runtime.send_queue import SendQueue
from rumor.train.runtime.telling.stats import Counters
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Vector

from ..fake_queue import FakeQueue
from ..letters import send


class Sockets:
    """Fake sockets that record each message and its receiver."""

    def __init__(self) -> None:
        self.sent: list[tuple[PeerId, str]] = []

    def send(self, peer: PeerId, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        body = decode_header(bytes(parts[0]))[0].body
        self.sent.append((peer, type(body).__name__))
        return True

    def part(self, peer: PeerId) -> None:
        self.sent.append((peer, "part"))


def make_queue(queue: FakeQueue, sockets: Sockets) -> tuple[SendQueue, TensorStore, int]:
    """A send queue, a store whose first snapshot a device still copies, and its size in bytes."""
    vector = Vector(nn.Linear(30, 4), queues=lambda device: queue)
    store = TensorStore(vector)
    store.take(Snapshot(1, "x"))
    size = vector.plan(Snapshot(1, "x").form).size_bytes
    return SendQueue(cast(Any, sockets), store, Counters()), store, size


def on_refused(envelope: Envelope) -> None:
    raise AssertionError(envelope)


def test_a_pending_snapshot_delays_only_messages_that_must_follow_it() -> None:
    queue, sockets = FakeQueue(), Sockets()
    jobs, store, size = make_queue(queue, sockets)
    messages: list[tuple[PeerId, Body]] = [("b", Query(1)), ("b", Grant(5, 64)), ("c", Query(2))]
    controls = [send(None, 0, to=to, body=body) for to, body in messages]
    jobs.jobs.extend([send(1, size), *controls, Release(1), Part("b"), Part("c")])
    for _ in range(2):
        jobs.flush(on_refused)
        assert sockets.sent == [("b", "Grant"), ("c", "Query"), ("c", "part")]
    assert queue.waited == [] and len(jobs.jobs) == 4
    queue.finish()
    jobs.flush(on_refused)
    assert sockets.sent[3:] == [("b", "Chunk"), ("b", "Query"), ("b", "part")]
    assert queue.waited == [] and not jobs.jobs and not store._snapshots


def test_the_final_flush_waits_for_pending_snapshots() -> None:
    queue, sockets = FakeQueue(), Sockets()
    jobs, _, size = make_queue(queue, sockets)
    jobs.jobs.extend([send(1, size)])
    jobs.flush(on_refused, wait=True)
    assert sockets.sent == [("b", "Chunk")] and queue.waited
