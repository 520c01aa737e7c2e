"""What the network thread hands over, in what order, and what it does not wait for."""

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from rumor.gossip.effects.effects import Part, Release, Send, Snapshot
from rumor.gossip.types import PeerId, SnapshotId
from rumor.gossip.wire.codec import Buffer, decode_header
from rumor.gossip.wire.messages import Body, Chunk, Envelope, Grant, Query
from rumor.train.runtime.send_queue import SendQueue
from rumor.train.runtime.telling.counters import Counters
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Vector

from ..fake_queue import FakeQueue


class Sockets:
    """Notes what is sent to whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[PeerId, str]] = []

    def send(self, peer: PeerId, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        body = decode_header(bytes(parts[0]))[0].body
        self.sent.append((peer, type(body).__name__))
        return True

    def part(self, peer: PeerId) -> None:
        self.sent.append((peer, "part"))


def queue_of(store: TensorStore, sockets: Sockets) -> SendQueue:
    return SendQueue(cast(Any, sockets), store, Counters())


def refused(envelope: Envelope) -> None:
    raise AssertionError(envelope)


def send(peer: PeerId, body: Body, snapshot: SnapshotId | None = None, size: int = 0) -> Send:
    envelope = Envelope(
        swarm=bytes(16),
        schema=bytes(16),
        source="a",
        source_incarnation=1,
        destination=peer,
        destination_incarnation=1,
        body=body,
        frame_bytes=size,
    )
    return Send(envelope, snapshot)


def test_a_message_whose_snapshot_a_device_still_copies_holds_up_only_what_must_follow() -> None:
    queue, sockets = FakeQueue(), Sockets()
    vector = Vector(nn.Linear(30, 4), queues=lambda device: queue)
    store = TensorStore(vector)
    jobs = queue_of(store, sockets)
    store.take(Snapshot(1, "x"))
    size = vector.plan(Snapshot(1, "x").form).size_bytes
    jobs.jobs.extend(
        [
            send("b", Chunk(1, 0, 0), 1, size),
            send("b", Query(1)),
            send("b", Grant(5, 64)),
            send("c", Query(2)),
            Release(1),
            Part("b"),
            Part("c"),
        ]
    )
    for _ in range(2):
        jobs.flush(refused)
        assert sockets.sent == [("b", "Grant"), ("c", "Query"), ("c", "part")]
    assert queue.waited == [] and len(jobs.jobs) == 4
    queue.finish()
    jobs.flush(refused)
    assert sockets.sent[3:] == [("b", "Chunk"), ("b", "Query"), ("b", "part")]
    assert queue.waited == [] and not jobs.jobs and not store._snapshots


def test_at_the_end_the_network_thread_waits_for_what_must_still_leave() -> None:
    queue, sockets = FakeQueue(), Sockets()
    vector = Vector(nn.Linear(30, 4), queues=lambda device: queue)
    store = TensorStore(vector)
    jobs = queue_of(store, sockets)
    store.take(Snapshot(1, "x"))
    size = vector.plan(Snapshot(1, "x").form).size_bytes
    jobs.jobs.extend([send("b", Chunk(1, 0, 0), 1, size)])
    jobs.flush(refused, wait=True)
    assert sockets.sent == [("b", "Chunk")] and queue.waited
