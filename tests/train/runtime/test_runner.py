"""What the network thread hands over, in what order, and what it does not wait for."""

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from rumor.gossip.effects.effects import Effect, Part, Release, Send, Snapshot, Stage
from rumor.gossip.types import PeerId, ShareId, SnapshotId
from rumor.gossip.wire.codec import Buffer, decode_header
from rumor.gossip.wire.messages import Body, Chunk, Envelope, Grant, Query
from rumor.train.runtime.runner import PeerRuntime
from rumor.train.runtime.telling.counters import Counters
from rumor.train.storage.inputs import Call
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


def runtime_of(store: TensorStore, sockets: Sockets) -> PeerRuntime:
    nobody: Any = None
    return PeerRuntime(
        nobody, cast(Any, sockets), store, None, Counters(), lambda event: None, nobody
    )


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
    runtime = runtime_of(store, sockets)
    store.carry_out(Snapshot(1, "x"))
    size = vector.plan(Snapshot(1, "x").form).size_bytes
    runtime._queue.add(
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
        runtime._queue.flush(runtime._take_back)
        assert sockets.sent == [("b", "Grant"), ("c", "Query"), ("c", "part")]
    assert queue.waited == [] and len(runtime._queue) == 4
    queue.finish()
    runtime._queue.flush(runtime._take_back)
    assert sockets.sent[3:] == [("b", "Chunk"), ("b", "Query"), ("b", "part")]
    assert queue.waited == [] and not runtime._queue and not store._snapshots


def test_at_the_end_the_network_thread_waits_for_what_must_still_leave() -> None:
    queue, sockets = FakeQueue(), Sockets()
    vector = Vector(nn.Linear(30, 4), queues=lambda device: queue)
    store = TensorStore(vector)
    runtime = runtime_of(store, sockets)
    store.carry_out(Snapshot(1, "x"))
    size = vector.plan(Snapshot(1, "x").form).size_bytes
    runtime._queue.add([send("b", Chunk(1, 0, 0), 1, size)])
    runtime._queue.flush(runtime._take_back, wait=True)
    assert sockets.sent == [("b", "Chunk")] and queue.waited


def test_a_share_that_was_looked_at_is_on_its_way_to_the_device_before_the_protocol_hears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, sockets = FakeQueue(), Sockets()
    torch.manual_seed(0)
    model = nn.Linear(30, 4)
    share = Vector(copy.deepcopy(model)).snapshot()
    store = TensorStore(Vector(model, queues=lambda device: queue))
    runtime = runtime_of(store, sockets)
    runtime.protocol = cast(Any, SimpleNamespace(swarm=b""))
    heard: list[bool] = []

    def decide(call: Call) -> list[Effect]:
        heard.append(call.arguments["finite"] and bool(queue.buffers))
        return []

    monkeypatch.setattr(runtime, "_decide", decide)
    id = ShareId("b", 1, 1)
    store.carry_out(Stage(id, 0, share.numel()), share.numpy().data)
    runtime._inspect(id)
    assert heard == [True]
