"""Two that can both only dial out exchange through a third, which both dial."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import Envelope, ProtocolConfig
from rumor.gossip.config import timing
from rumor.gossip.effects.ledger import audit
from rumor.gossip.weight import ONE
from rumor.gossip.wire.codec import decode_header, encode
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Ask, Chunk, Member, Offer, Phase, Query
from rumor.train import Peer, PeerConfig
from rumor.train.runtime.reception import Relay
from rumor.train.runtime.telling.counters import Counters
from rumor.train.storage.ledger_file import read_ledgers

from ...waiting import LIMIT_S, until


def member(id: str, *addresses: str) -> Member:
    return Member(
        id=id, incarnation=1, heartbeat=1, phase=Phase.TRAINING, step=0, addresses=addresses
    )


class FakeTransport:
    def __init__(self) -> None:
        self.sent: list[tuple[str, list[bytes], bool]] = []
        self.works = True

    def send(self, peer: str, parts: Any, *, bulk: bool) -> bool:
        if self.works:
            self.sent.append((peer, [bytes(part) for part in parts], bulk))
        return self.works


class FakeReceived:
    def __init__(self, envelope: Envelope, frame: bytes = b"") -> None:
        parts = encode(envelope, frame)
        self.header = bytes(parts[0])
        self.route, self.key, self.place = b"way", b"", ""
        self._frame, self.more = frame, bool(frame)

    def frame(self) -> bytes:
        self.more = False
        return self._frame


class Case:
    """A relay between *a* and *b*, who only dial out, in a swarm with another that listens."""

    def __init__(self, bytes_s: float = 1000.0, me: str = "z") -> None:
        self.transport, self.counters, self.now = FakeTransport(), Counters(), 0.0
        self.members = [
            member("a"),
            member("b"),
            member("c", "tcp://c:1"),
            member("z", "tcp://z:1"),
        ]
        self.relay = Relay(
            self.transport,  # type: ignore[arg-type]
            me,
            lambda: self.members,
            self.counters,
            bytes_s,
            lambda: self.now,
        )

    def passes_on(self, body: Any, source: str = "a", to: str = "b", frame: bytes = b"") -> bool:
        envelope = Envelope(
            swarm=bytes(16),
            schema=bytes(16),
            source=source,
            source_incarnation=1,
            destination=to,
            destination_incarnation=1,
            body=body,
            frame_bytes=len(frame),
        )
        return self.relay.passes_on(envelope, FakeReceived(envelope, frame))  # type: ignore[arg-type]


OFFER = Offer(
    seq=1,
    escrow=ONE,
    size_bytes=4000,
    frame_bytes=1000,
    eager_bytes=0,
    form=Form(),
    epoch=0,
    round=0,
    note=0,
    step=1,
)


def test_a_message_is_passed_on_as_it_is() -> None:
    case = Case()
    assert case.passes_on(Chunk(1, 0, 0), frame=b"numbers")
    ((to, parts, bulk),) = case.transport.sent
    envelope, _ = decode_header(parts[0])
    assert (to, bulk, envelope.source, parts[1]) == ("b", True, "a", b"numbers")
    assert case.counters.relayed == 1
    assert case.counters.relayed_bytes == len(parts[0]) + len(b"numbers")


def test_only_what_two_say_who_cannot_reach_each_other_is_passed_on() -> None:
    case = Case()
    ack = Ack(1, 0)
    assert not case.passes_on(ack, to="z")  # for this peer
    assert not case.passes_on(ack, to="c")  # who can be dialled
    assert not case.passes_on(ack, source="c")
    assert not case.passes_on(ack, source="stranger")
    assert not case.passes_on(ack, to="")  # for whoever listens here
    assert not case.passes_on(Ask())
    assert not Case(bytes_s=0).passes_on(ack)
    assert not Case(me="a").passes_on(ack, source="b", to="c")
    assert case.transport.sent == [] and case.counters.relay_dropped == 0


def test_beyond_its_bound_a_relay_begins_nothing_and_goes_on_with_what_has_begun() -> None:
    case = Case(bytes_s=1000.0)  # 2,000 bytes at once
    assert case.passes_on(OFFER)
    for index in range(4):
        case.passes_on(Chunk(1, index, 1000 * index), frame=bytes(1000))
    assert len(case.transport.sent) == 4 + 1 and case.counters.relay_dropped == 0
    case.passes_on(OFFER)
    assert case.counters.relay_dropped == 1
    # Whoever sends on without end is stopped, too, and answers then wait likewise.
    case.passes_on(Chunk(1, 5, 0), frame=bytes(1000))
    case.passes_on(Query(1))
    assert case.counters.relay_dropped == 3
    case.now = 3.0
    assert case.passes_on(Query(1)) and case.counters.relay_dropped == 3
    case.passes_on(OFFER)
    assert case.counters.relay_dropped == 3
    case.transport.works = False
    case.passes_on(Ack(1, 0))
    assert case.counters.relay_dropped == 4


def test_whom_to_ask_follows_from_the_view_and_is_the_same_at_both_ends() -> None:
    one, other = Case(me="a").relay, Case(me="b").relay
    assert one.via("b") == other.via("a") and one.via("b") in ("c", "z")
    assert one.via("c") is None  # who can be dialled
    assert Case(me="z").relay.via("a") is None  # who dials this one
    assert Case(me="a", bytes_s=0).relay.via("b") is None
    alone = Case(me="a")
    alone.members = [member("a"), member("b")]
    assert alone.relay.via("b") is None


QUICK = ProtocolConfig(**timing("local"))


class Swarm:
    """Peers with loops of their own, until they are told to stop."""

    def __init__(self, folder: Path, size: int = 8) -> None:
        self._folder, self._size = folder, size
        self.peers: dict[str, Peer] = {}
        self._threads: dict[str, threading.Thread] = {}
        self.over = threading.Event()
        self._ready = threading.Barrier(1)

    def start(self, id: str, **settings: Any) -> Peer:
        torch.manual_seed(0)
        given: dict[str, Any] = {
            "protocol": QUICK,
            "linger_s": 20.0,
            "leave_s": LIMIT_S,
            "rule": "gosgd:p=1",
        }
        config = PeerConfig(id=id, out=self._folder / id, signals=False, **given | settings)
        peer = self.peers[id] = Peer(nn.Linear(self._size, 1), config)
        thread = self._threads[id] = threading.Thread(target=self._train, args=(peer,), name=id)
        thread.start()
        return peer

    def _train(self, peer: Peer) -> None:
        with peer:
            while not (self.over.is_set() or peer.stop.is_set() or peer.has_left):
                peer.step()
                time.sleep(0.005)

    def end(self) -> None:
        self.over.set()
        for thread in self._threads.values():
            thread.join(LIMIT_S)

    def balance(self) -> tuple[int, int]:
        accounts = [a for id in self.peers for a in read_ledgers(self._folder / id)]
        found = audit(accounts, set())
        return found.held + found.in_flight + found.stranded + found.burned, found.founded


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    with ExitStack() as closing:
        made = Swarm(tmp_path)
        closing.callback(made.end)
        yield made


def founded(swarm: Swarm, **settings: Any) -> Peer:
    listener = swarm.start("z", **settings)
    until(lambda: listener.address is not None)
    return listener


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("inline_bytes_max", [1 << 18, 16], ids=["whole", "frames"])
def test_two_behind_nat_exchange_through_the_third(swarm: Swarm, inline_bytes_max: int) -> None:
    protocol = replace(QUICK, inline_bytes_max=inline_bytes_max, shared_memory=False)
    listener = founded(swarm, topology="ring", protocol=protocol)
    out: dict[str, Any] = {
        "bind": None,
        "join": listener.address,
        "topology": "ring",
        "protocol": protocol,
    }
    ann, bob = swarm.start("a", **out), swarm.start("b", **out)
    until(lambda: bob.counters.link("a").mixed > 3 and ann.counters.link("b").mixed > 3)
    assert listener.counters.relayed > 10 and listener.counters.relayed_bytes > 1000
    swarm.end()
    held, founders = swarm.balance()
    assert held == founders == ONE
    assert not any(peer.counters.errors for peer in swarm.peers.values())


@pytest.mark.extended
@pytest.mark.live
def test_where_nobody_passes_on_they_exchange_with_the_third(swarm: Swarm) -> None:
    listener = founded(swarm, relay_bytes_s=0.0)
    out: dict[str, Any] = {"bind": None, "join": listener.address}
    ann, bob = swarm.start("a", **out), swarm.start("b", **out)
    until(lambda: min(p.counters.link("z").mixed for p in (ann, bob)) > 3)
    until(lambda: "b" in ann.live and "a" in bob.live)
    assert listener.counters.relayed == listener.counters.relay_dropped == 0
    assert ann.counters.link("b").pushes == bob.counters.link("a").pushes == 0
    swarm.end()
    assert swarm.balance() == (ONE, ONE)


@pytest.mark.extended
@pytest.mark.live
def test_another_relays_once_the_first_is_gone(
    swarm: Swarm, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    first = founded(swarm, topology="complete")
    second = swarm.start("y", join=first.address, topology="complete")
    until(lambda: second.address is not None)
    join = (first.address, second.address)
    given: dict[str, Any] = {"bind": None, "join": join, "topology": "complete"}
    ann, bob = (swarm.start(id, **given) for id in ("a", "b"))
    until(lambda: ann.counters.link("b").mixed > 3)
    relay, other = (first, second) if first.counters.relayed else (second, first)
    before = ann.counters.link("b").mixed
    relay.stop.set()
    until(lambda: other.counters.relayed > 10)
    until(lambda: ann.counters.link("b").mixed > before + 3)
    assert bob.counters.link("a").mixed > 0


def test_with_keys_nothing_is_passed_on(tmp_path: Path) -> None:
    keyed = PeerConfig(key=tmp_path / "key", roster=tmp_path / "roster")
    assert not keyed.protocol.relays and PeerConfig().protocol.relays
    assert not PeerConfig(relay_bytes_s=0).protocol.relays
