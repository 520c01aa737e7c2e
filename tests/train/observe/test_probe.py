"""Questions to real peers over the loopback interface: answered, and forgotten."""

import json
import socket as sockets
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from rumor.gossip import TransportError
from rumor.train import Peer, PeerConfig
from rumor.train.observe.probe import Probe

from ...waiting import LIMIT_S
from .members import Member

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    folder = tmp_path_factory.mktemp("swarm")
    members = [Member(folder, f"p{number}", founders=2) for number in range(2)]
    for member in members:
        assert member.inside.wait(LIMIT_S)
    yield members
    for member in members:
        member.halt.set()
    for member in members:
        member.thread.join(LIMIT_S)
        assert not member.thread.is_alive()


def test_a_link_is_measured_and_the_model_behind_it_named(pair: list[Member]) -> None:
    with Probe(timeout_s=LIMIT_S) as sounder:
        found = sounder.sound(pair[0].address, bytes_max=1 << 20)
    assert 0 < found.roundtrip_s <= found.roundtrip_s_mean
    assert found.bytes_s > 0
    assert found.share_bytes == pair[0].peer._vector.schema.share_bytes


@pytest.mark.parametrize("held_up", [[0], [1], [0, 3], [4, 5]])
def test_a_message_that_is_held_up_by_others_makes_no_link_slow(
    held_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 GB/s: what counts is the quickest of several messages that are long enough."""
    sent: list[int] = []

    def trip(self: Probe, place: str, sizes: tuple[int, ...]) -> float:
        sent.append(sum(sizes))
        return 0.001 + sum(sizes) / 1e9 + 0.5 * (len(sent) - 1 in held_up)

    monkeypatch.setattr(Probe, "_trip", trip)
    probe = Probe.__new__(Probe)
    assert probe._bytes_s("a:1", 0.001, 1 << 30) == pytest.approx(1e9, rel=1e-3)
    assert sent == sorted(sent)


def test_nobody_takes_the_asker_for_a_peer(pair: list[Member]) -> None:
    with Probe(timeout_s=LIMIT_S) as sounder:
        sounder.sound(pair[0].address, bytes_max=1 << 20)
        sounder.hello(pair[0].address)
        # Answered later than all that was asked before.
        sounder.hello(pair[1].address)
    for member in pair:
        assert member.peer.members == ("p0", "p1")
        events = (member.peer.config.out or Path()) / "events.jsonl"
        told = [json.loads(line) for line in events.read_text().splitlines()]
        assert {row["peer"] for row in told} <= {None, "p0", "p1"}
    assert sum(member.peer.stats().counters.errors for member in pair) == 0


def test_what_peers_say_of_members_is_counted_apart(pair: list[Member]) -> None:
    counters = pair[0].peer.stats().counters
    with Probe(timeout_s=LIMIT_S) as sounder:
        # It is answered with the model's schema.
        sounder.sound(pair[0].address, bytes_max=1 << 20)
    assert 0 < counters.membership_bytes < counters.bytes_sent


def test_where_nobody_listens_it_says_so() -> None:
    with (
        Probe(timeout_s=0.2) as sounder,
        pytest.raises(TransportError, match=r"127\.0\.0\.1:1 does not answer: is a peer"),
    ):
        sounder.sound("127.0.0.1:1")


def test_a_name_that_does_not_resolve_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise sockets.gaierror(sockets.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(sockets, "getaddrinfo", look_up)
    with (
        Probe(timeout_s=1.0) as sounder,
        pytest.raises(TransportError, match=r"the name does not resolve \(Name or service"),
    ):
        sounder.sound("no-such-host.invalid:7700")


def test_the_model_is_as_it_was(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    before = model.weight.detach().clone()
    with Peer(model, PeerConfig(id="solo", linger_s=0.0)) as peer:
        units = peer.stats().weight_units
        assert peer.address is not None
        with Probe(timeout_s=LIMIT_S) as sounder:
            sounder.sound(peer.address, bytes_max=1 << 20)
            peer.step()
            sounder.hello(peer.address)
        peer.step()
        assert peer.stats().weight_units == units
        assert torch.equal(model.weight, before)
