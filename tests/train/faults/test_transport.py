"""Network faults between live transports, on real sockets with a simulated clock."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.wire.codec import decode, encode
from rumor.train.faults.network import NetworkFaults
from rumor.train.faults.schedule import read_faults
from rumor.train.faults.transport import FaultyTransport, NetworkPlan

from ...contract.post import Letter, letter
from ...waiting import until

pytestmark = pytest.mark.live

IDS = ("a", "b", "c")
FULL_S = 0.3
"""A connection that accepts no message for this long is full, seconds."""
FRAME = bytes(range(256)) * 1024


class Scene:
    """Peers with faulty transports, and their shared clock."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.now_s = 0.0
        self.path = folder / "network-faults.json"
        self.ends: dict[str, FaultyTransport] = {}
        self._stack = stack

    def plan(self, *faults: dict[str, Any], seed: int = 0, began: bool = True) -> None:
        """Write the plan of faults; the run starts now, or else has no start time yet."""
        began_unix_s = time.time() if began else None
        plan = NetworkPlan(
            ids=IDS, seed=seed, faults=read_faults(faults), began_unix_s=began_unix_s
        )
        plan.write(self.path)

    def open(self, id: str, **more: Any) -> FaultyTransport:
        """Open a peer and connect it with all earlier peers."""
        end = FaultyTransport(self.path, id, clock=lambda: self.now_s, **more)
        self._stack.callback(end.close)
        for other, known in self.ends.items():
            end.meet(other, known.addresses)
            known.meet(id, end.addresses)
        self.ends[id] = end
        # Once the peer has read the file, its time follows the clock of this scene.
        assert receive_ready(end) == []
        return end

    def pair(self, *faults: dict[str, Any], **more: Any) -> tuple[FaultyTransport, FaultyTransport]:
        """Open peers a and b under these faults."""
        self.plan(*faults, **more)
        return self.open("a"), self.open("b")

    def send_batch(
        self, source: str, to: str, *, first: int = 1, count: int = 1, frame: bytes | None = None
    ) -> None:
        """Send numbered messages until all are accepted, then a last one from a stranger."""
        for number in range(first, first + count):
            until(partial(self.send, letter(source, to, number, frame=frame)))
        # Faults spare a stranger's message: no earlier message arrives after it.
        until(partial(self.send, letter("stranger", to, 1000, frame=frame), source))

    def send(self, message: Letter, by: str | None = None) -> bool:
        """Send a message, from the sockets of *by* if given; return whether it was accepted."""
        parts = encode(message.envelope, message.frame)
        end = self.ends[by or message.envelope.source]
        return end.send(message.envelope.destination, parts, bulk=message.bulk)


def receive_ready(end: Transport) -> list[Letter]:
    """Receive the messages that are ready."""
    messages = []
    for received in end.poll(0.01):
        frame = bytes(received.frame())
        envelope = decode([received.header, frame] if frame else [received.header])
        messages.append(Letter(envelope, frame))
    return messages


def receive_batch(end: Transport) -> list[Letter]:
    """Receive all messages up to the one of the stranger."""
    messages: list[Letter] = []

    def is_over() -> bool:
        messages.extend(receive_ready(end))
        return any(message.envelope.source == "stranger" for message in messages)

    until(is_over)
    return [message for message in messages if message.envelope.source != "stranger"]


def numbers(messages: list[Letter]) -> list[int]:
    return [message.number for message in messages]


def fault(kind: str, **fields: Any) -> dict[str, Any]:
    return {"at_s": 0, "kind": kind} | fields


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


@pytest.mark.parametrize("frame", [None, FRAME])
def test_the_transport_loses_the_same_messages_as_a_simulation(
    scene: Scene, frame: bytes | None
) -> None:
    lost_half = fault("loss", rate=0.5)
    _, b = scene.pair(lost_half, seed=7)
    count = 300 if frame is None else 40
    simulated = NetworkFaults(read_faults([lost_half]), IDS, 7)
    kept = [n for n in range(1, count + 1) if simulated.arrivals(0.1, 0, 1, (0.2,))]
    assert count / 3 < len(kept) < count
    for first in range(0, count, 20):
        # Small batches never fill a queue.
        scene.send_batch("a", "b", first=first + 1, count=20, frame=frame)
        assert numbers(receive_batch(b)) == [
            number for number in kept if first < number <= first + 20
        ]
    assert b.malformed == 0


def test_delayed_messages_arrive_complete_when_due(scene: Scene) -> None:
    _, b = scene.pair(fault("delay", by_s=5.0))
    scene.send_batch("a", "b", count=8, frame=FRAME)
    assert receive_batch(b) == []
    scene.now_s = 4.9
    assert receive_ready(b) == []
    scene.now_s = 1e6
    messages = receive_ready(b)
    assert sorted(numbers(messages)) == [*range(1, 9)]
    assert {message.frame for message in messages} == {FRAME}
    assert receive_ready(b) == []


@pytest.mark.extended
def test_a_delayed_message_can_be_answered(scene: Scene) -> None:
    a, b = scene.pair(fault("delay", by_s=5.0))
    scene.send_batch("a", "b")
    receive_batch(b)
    scene.now_s = 1e6
    (route,) = [received.route for received in b.poll(0.01)]
    b.part("a")
    b.learn("a", route, bulk=False)
    assert b.send("a", encode(letter("stranger", "a", 3).envelope), bulk=False)
    until(lambda: any(message.number == 3 for message in receive_ready(a)))


@pytest.mark.extended
def test_a_duplicate_fault_delivers_each_message_twice(scene: Scene) -> None:
    _, b = scene.pair(fault("duplicate", rate=1.0))
    scene.send_batch("a", "b", count=5, frame=FRAME)
    messages = receive_batch(b) + [m for m in receive_ready(b) if m.envelope.source != "stranger"]
    assert sorted(numbers(messages)) == sorted([*range(1, 6)] * 2)
    assert {message.frame for message in messages} == {FRAME}


@pytest.mark.extended
def test_a_reset_loses_queued_messages_and_delivers_later_ones(scene: Scene) -> None:
    a, b = scene.pair(fault("reset", peer="b") | {"at_s": 10})
    scene.send_batch("a", "b", frame=FRAME)
    assert numbers(receive_batch(b)) == [1]
    sent, full_s = 0, time.monotonic() + FULL_S
    # Unread messages fill all queues.
    while time.monotonic() < full_s:
        if scene.send(letter("a", "b", 2 + sent, frame=FRAME)):
            sent, full_s = sent + 1, time.monotonic() + FULL_S
    scene.now_s = 10.5
    receive_ready(a)
    scene.send_batch("a", "b", first=5000, frame=FRAME)
    messages = receive_batch(b)
    assert 5000 in numbers(messages) and len(messages) < sent, "nothing was lost"
    assert {message.frame for message in messages} == {FRAME}


@pytest.mark.extended
def test_undecodable_messages_are_not_subject_to_faults(scene: Scene) -> None:
    a, b = scene.pair(fault("loss", rate=1.0))
    until(lambda: a.send("b", [b"nonsense", b"more"], bulk=False))
    headers: list[bytes] = []
    while not headers:
        headers = [received.header for received in b.poll(0.01)]
    assert headers == [b"nonsense"]


@pytest.mark.extended
def test_a_delayed_message_with_too_many_parts_is_malformed(scene: Scene) -> None:
    a, b = scene.pair(fault("delay", by_s=5.0))
    header = encode(letter("a", "b", 1).envelope)
    until(lambda: a.send("b", [*header, b"frame", b"more"], bulk=False))
    scene.send_batch("a", "b", count=0)
    assert receive_batch(b) == [] and b.malformed == 0
    scene.now_s = 1e6
    frames = [(bytes(r.frame()), r.more) for r in b.poll(0.01)]
    assert frames == [(b"frame", True)] and b.malformed == 1


@pytest.mark.extended
def test_faults_begin_at_the_start_time_in_the_file(scene: Scene) -> None:
    loss = fault("loss", rate=1.0)
    _, b = scene.pair(loss, began=False)
    scene.send_batch("a", "b")
    assert numbers(receive_batch(b)) == [1]
    scene.plan(loss)
    scene.now_s = 0.02
    # The file is read at intervals only.
    scene.send_batch("a", "b")
    assert numbers(receive_batch(b)) == [1]
    scene.now_s = 0.1
    scene.send_batch("a", "b")
    assert receive_batch(b) == []
    # After the start time is known, the file is no longer needed.
    scene.path.unlink()
    scene.now_s = 0.2
    scene.send_batch("a", "b")
    assert receive_batch(b) == []


@pytest.mark.parametrize(
    "content",
    [None, "", "[]", "{}", '{"ids": ["a"], "seed": 0, "faults": [{}], "began_unix_s": null}'],
)
def test_an_invalid_plan_file_raises_config_error(scene: Scene, content: str | None) -> None:
    if content is not None:
        scene.path.write_text(content)
    with pytest.raises(ConfigError, match="does not say what happens to the network"):
        scene.open("a")
    scene.plan()
    with pytest.raises(ConfigError, match="of a run without a peer 'd'"):
        scene.open("d")
