"""The network's faults between live transports: real sockets, and a clock that is turned."""

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
"""A way that has taken nothing for so long is full."""
FRAME = bytes(range(256)) * 1024


class Scene:
    """Peers whose transports have faults done to them, and the clock of all."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.now_s = 0.0
        self.path = folder / "network-faults.json"
        self.ends: dict[str, FaultyTransport] = {}
        self._stack = stack

    def plan(self, *faults: dict[str, Any], seed: int = 0, began: bool = True) -> None:
        """Write what goes wrong, from now on unless nobody knows yet since when."""
        began_unix_s = time.time() if began else None
        plan = NetworkPlan(
            ids=IDS, seed=seed, faults=read_faults(faults), began_unix_s=began_unix_s
        )
        plan.write(self.path)

    def open(self, id: str, **more: Any) -> FaultyTransport:
        """A peer that all before it know, and that knows them."""
        end = FaultyTransport(self.path, id, clock=lambda: self.now_s, **more)
        self._stack.callback(end.close)
        for other, known in self.ends.items():
            end.meet(other, known.addresses)
            known.meet(id, end.addresses)
        self.ends[id] = end
        # From its first look at the file on, its time is that of the clock here.
        assert take(end) == []
        return end

    def pair(self, *faults: dict[str, Any], **more: Any) -> tuple[FaultyTransport, FaultyTransport]:
        """Peers a and b, and what goes wrong."""
        self.plan(*faults, **more)
        return self.open("a"), self.open("b")

    def pass_by(
        self, source: str, to: str, *, first: int = 1, count: int = 1, frame: bytes | None = None
    ) -> None:
        """Send numbered messages, all of which are taken, and a last one from a stranger."""
        for number in range(first, first + count):
            until(partial(self.send, letter(source, to, number, frame=frame)))
        # What a stranger says is never lost: after it, all has come that will.
        until(partial(self.send, letter("stranger", to, 1000, frame=frame), source))

    def send(self, message: Letter, by: str | None = None) -> bool:
        """Send a message, by way of another's sockets where it says so; whether it was taken."""
        parts = encode(message.envelope, message.frame)
        end = self.ends[by or message.envelope.source]
        return end.send(message.envelope.destination, parts, bulk=message.bulk)


def take(end: Transport) -> list[Letter]:
    """What lies ready."""
    came = []
    for received in end.poll(0.01):
        frame = bytes(received.frame())
        envelope = decode([received.header, frame] if frame else [received.header])
        came.append(Letter(envelope, frame))
    return came


def taken(end: Transport) -> list[Letter]:
    """All that comes before the stranger's message."""
    came: list[Letter] = []

    def is_over() -> bool:
        came.extend(take(end))
        return any(message.envelope.source == "stranger" for message in came)

    until(is_over)
    return [message for message in came if message.envelope.source != "stranger"]


def numbers(came: list[Letter]) -> list[int]:
    return [message.number for message in came]


def fault(kind: str, **fields: Any) -> dict[str, Any]:
    return {"at_s": 0, "kind": kind} | fields


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


@pytest.mark.parametrize("frame", [None, FRAME])
def test_those_are_lost_that_a_simulation_loses(scene: Scene, frame: bytes | None) -> None:
    lost_half = fault("loss", rate=0.5)
    _, b = scene.pair(lost_half, seed=7)
    count = 300 if frame is None else 40
    found = NetworkFaults(read_faults([lost_half]), IDS, 7)
    kept = [n for n in range(1, count + 1) if found.arrivals(0.1, 0, 1, (0.2,))]
    assert count / 3 < len(kept) < count
    for first in range(0, count, 20):
        # No queue is ever full.
        scene.pass_by("a", "b", first=first + 1, count=20, frame=frame)
        assert numbers(taken(b)) == [number for number in kept if first < number <= first + 20]
    assert b.malformed == 0


def test_what_is_late_comes_when_it_is_due_and_whole(scene: Scene) -> None:
    _, b = scene.pair(fault("delay", by_s=5.0))
    scene.pass_by("a", "b", count=8, frame=FRAME)
    assert taken(b) == []
    scene.now_s = 4.9
    assert take(b) == []
    scene.now_s = 1e6
    came = take(b)
    assert sorted(numbers(came)) == [*range(1, 9)]
    assert {message.frame for message in came} == {FRAME}
    assert take(b) == []


@pytest.mark.extended
def test_what_is_late_is_answered_like_what_is_not(scene: Scene) -> None:
    a, b = scene.pair(fault("delay", by_s=5.0))
    scene.pass_by("a", "b")
    taken(b)
    scene.now_s = 1e6
    (route,) = [received.route for received in b.poll(0.01)]
    b.part("a")
    b.learn("a", route, bulk=False)
    assert b.send("a", encode(letter("stranger", "a", 3).envelope), bulk=False)
    until(lambda: any(message.number == 3 for message in take(a)))


@pytest.mark.extended
def test_each_message_comes_twice(scene: Scene) -> None:
    _, b = scene.pair(fault("duplicate", rate=1.0))
    scene.pass_by("a", "b", count=5, frame=FRAME)
    came = taken(b) + [m for m in take(b) if m.envelope.source != "stranger"]
    assert sorted(numbers(came)) == sorted([*range(1, 6)] * 2)
    assert {message.frame for message in came} == {FRAME}


@pytest.mark.extended
def test_a_reset_loses_what_is_queued_and_then_messages_pass_again(scene: Scene) -> None:
    a, b = scene.pair(fault("reset", peer="b") | {"at_s": 10})
    scene.pass_by("a", "b", frame=FRAME)
    assert numbers(taken(b)) == [1]
    sent, full_s = 0, time.monotonic() + FULL_S
    # As nobody reads them, they fill all queues.
    while time.monotonic() < full_s:
        if scene.send(letter("a", "b", 2 + sent, frame=FRAME)):
            sent, full_s = sent + 1, time.monotonic() + FULL_S
    scene.now_s = 10.5
    take(a)
    scene.pass_by("a", "b", first=5000, frame=FRAME)
    came = taken(b)
    assert 5000 in numbers(came) and len(came) < sent, "nothing was lost"
    assert {message.frame for message in came} == {FRAME}


@pytest.mark.extended
def test_what_cannot_be_read_is_no_matter_of_the_network(scene: Scene) -> None:
    a, b = scene.pair(fault("loss", rate=1.0))
    until(lambda: a.send("b", [b"nonsense", b"more"], bulk=False))
    headers: list[bytes] = []
    while not headers:
        headers = [received.header for received in b.poll(0.01)]
    assert headers == [b"nonsense"]


@pytest.mark.extended
def test_a_message_of_too_many_parts_is_malformed_when_it_is_late(scene: Scene) -> None:
    a, b = scene.pair(fault("delay", by_s=5.0))
    header = encode(letter("a", "b", 1).envelope)
    until(lambda: a.send("b", [*header, b"frame", b"more"], bulk=False))
    scene.pass_by("a", "b", count=0)
    assert taken(b) == [] and b.malformed == 0
    scene.now_s = 1e6
    frames = [(bytes(r.frame()), r.more) for r in b.poll(0.01)]
    assert frames == [(b"frame", True)] and b.malformed == 1


@pytest.mark.extended
def test_faults_begin_when_the_file_says_that_the_run_did(scene: Scene) -> None:
    loss = fault("loss", rate=1.0)
    _, b = scene.pair(loss, began=False)
    scene.pass_by("a", "b")
    assert numbers(taken(b)) == [1]
    scene.plan(loss)
    scene.now_s = 0.02
    # It is not looked at all the time.
    scene.pass_by("a", "b")
    assert numbers(taken(b)) == [1]
    scene.now_s = 0.1
    scene.pass_by("a", "b")
    assert taken(b) == []
    # Nor does anything depend on it any more.
    scene.path.unlink()
    scene.now_s = 0.2
    scene.pass_by("a", "b")
    assert taken(b) == []


@pytest.mark.parametrize(
    "content",
    [None, "", "[]", "{}", '{"ids": ["a"], "seed": 0, "faults": [{}], "began_unix_s": null}'],
)
def test_a_file_that_makes_no_sense_is_a_mistake_of_the_user(
    scene: Scene, content: str | None
) -> None:
    if content is not None:
        scene.path.write_text(content)
    with pytest.raises(ConfigError, match="does not say what happens to the network"):
        scene.open("a")
    scene.plan()
    with pytest.raises(ConfigError, match="of a run without a peer 'd'"):
        scene.open("d")
