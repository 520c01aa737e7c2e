"""What the network thread hands over, in what order, and what it does not wait for."""

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from rumor.gossip.effects.effects import Part, Release, Snapshot
from rumor.gossip.types import PeerId
from rumor.gossip.wire.codec import Buffer, decode_header
from rumor.gossip.wire.messages import Body, Envelope, Grant, Query
from rumor.train.runtime.send_queue import SendQueue
from rumor.train.runtime.telling.counters import Counters
from rumor.train.tensors.store import TensorStore
from rumor.train.tensors.vector import Vector

from ..fake_queue import FakeQueue
from ..letters import send


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


def sending(queue: FakeQueue, sockets: Sockets) -> tuple[SendQueue, TensorStore, int]:
    """What the network thread sends, a store whose first snapshot a device copies, its size."""
    vector = Vector(nn.Linear(30, 4), queues=lambda device: queue)
    store = TensorStore(vector)
    store.take(Snapshot(1, "x"))
    size = vector.plan(Snapshot(1, "x").form).size_bytes
    return SendQueue(cast(Any, sockets), store, Counters()), store, size


def refused(envelope: Envelope) -> None:
    raise AssertionError(envelope)


def test_a_message_whose_snapshot_a_device_still_copies_holds_up_only_what_must_follow() -> None:
    queue, sockets = FakeQueue(), Sockets()
    jobs, store, size = sending(queue, sockets)
    said: list[tuple[PeerId, Body]] = [("b", Query(1)), ("b", Grant(5, 64)), ("c", Query(2))]
    controls = [send(None, 0, to=to, body=body) for to, body in said]
    jobs.jobs.extend([send(1, size), *controls, Release(1), Part("b"), Part("c")])
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
    jobs, _, size = sending(queue, sockets)
    jobs.jobs.extend([send(1, size)])
    jobs.flush(refused, wait=True)
    assert sockets.sent == [("b", "Chunk")] and queue.waited
