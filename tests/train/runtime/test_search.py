"""A search for a swarm: seeds behind a DNS name, and the reasons that a peer reports."""

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rumor.gossip import ConfigError, TransportError
from rumor.gossip.config import timing
from rumor.gossip.protocol.leave import STOPPED
from rumor.gossip.transport.addresses import parse_seed
from rumor.gossip.wire.messages import Member as Entry
from rumor.gossip.wire.messages import Phase
from rumor.train import Peer, PeerConfig
from rumor.train.runtime import search

from ...waiting import until
from ..members import Member, linear, settings, swarm

NEW: Any = SimpleNamespace(past=None, seeds=())


def runtime_of(
    *greeted: str,
    live: tuple[str, ...] = (),
    refused: tuple[str, str] = ("", ""),
    **changes: Any,
) -> Any:
    """A fake runtime that has greeted these addresses and knows the members at some of them."""
    members = [
        Entry(id=a, incarnation=1, heartbeat=1, phase=Phase.TRAINING, step=0, addresses=(a,))
        for a in ("me", *live)
    ]
    phase = changes.pop("phase", Phase.SEEKING)
    protocol = SimpleNamespace(phase=phase, table=SimpleNamespace(live=lambda: members))
    options = {
        "queue": SimpleNamespace(greeted=dict.fromkeys(greeted)),
        "transport": SimpleNamespace(
            keyring=None, refusal=lambda address: refused[1] if address == refused[0] else ""
        ),
        "call": lambda method, **arguments: False,
        "step": lambda trained: None,
        "look": lambda glance: glance(protocol),
        "settle_network": lambda: None,
        "wait_for_share": lambda seconds: None,
        "addresses": (),
        "refusal": None,
        "outlived": None,
        "ended_by": "",
    }
    return SimpleNamespace(**options | changes)


MANY = [f"tcp://10.0.0.{number}:7700" for number in range(250)]


@pytest.mark.parametrize(
    ("greeted", "options", "message"),
    [
        ((), {}, "no peer has answered yet"),
        ((), {"ended_by": STOPPED}, "no peer has answered yet"),
        (
            ("tcp://a:1",),
            {"join": "tcp://a:1"},
            "tcp://a:1 does not answer; a peer with addresses to join does not found alone: start "
            "another peer with the same addresses, or one without join" + search._HINT,
        ),
        (
            ("tcp://127.0.0.1:1",),
            {"join": "tcp://127.0.0.1:1"},
            "tcp://127.0.0.1:1 does not answer; start the founder, with this address as bind and "
            "without join" + search._HINT,
        ),
        (
            ("tcp://b:1", "tcp://a:1"),
            {"live": ("tcp://a:1",)},
            "tcp://b:1 does not answer; tcp://a:1 answers; waiting for a first share",
        ),
        (
            ("tcp://b:1", "tcp://a:1"),
            {"refused": ("tcp://b:1", "has no keys")},
            "tcp://b:1 has no keys; tcp://a:1 does not answer",
        ),
        # Only a few of hundreds of addresses are named.
        (
            MANY,
            {"live": (MANY[3], MANY[200])},
            "; ".join(f"{each} does not answer" for each in MANY[:3])
            + f"; {MANY[3]} answers; of 246 others 1 answer; waiting for a first share",
        ),
    ],
)
def test_a_stopped_search_reports_the_state_of_each_address(
    greeted: Sequence[str], options: dict[str, Any], message: str
) -> None:
    options = dict(options)
    config = PeerConfig(join=options.pop("join", ()))
    runtime, stop = runtime_of(*greeted, **options), threading.Event()
    if not options.get("ended_by"):
        stop.set()
    with pytest.raises(TransportError, match=f"^stopped while joining: {re.escape(message)}$"):
        search.Search(runtime, config, "me", NEW).run(stop)
    assert stop.is_set()


def test_founders_of_a_resumed_run_wait_for_each_other(tmp_path: Path) -> None:
    joined: list[object] = []
    stop = threading.Event()
    runtime = runtime_of(
        phase=Phase.TRAINING,
        call=lambda method, **arguments: joined.append((method, arguments)),
        wait_for_share=lambda seconds: stop.set(),
        addresses=("tcp://a:1",),
    )
    folder: Any = SimpleNamespace(past=SimpleNamespace(returns=True), seeds=())
    config = PeerConfig(rendezvous=tmp_path, founders=2)
    found = search.Search(runtime, config, "me", folder, goes_on=True)
    with pytest.raises(TransportError, match="1 of 2 peers of the resumed run are there"):
        found.run(stop)
    assert not joined
    (tmp_path / "other.addr").write_text("tcp://b:1\n")
    stop.clear()
    found.run(stop)
    assert joined == [("join", {"seeds": ("tcp://b:1",), "founders": 1, "returning": True})]
    assert (tmp_path / "me.addr").read_text() == "tcp://a:1\n"


SWARM = "swarm.test"


class Names:
    """A fake name server whose hosts can be changed."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self._real = socket.getaddrinfo

    def look_up(self, host: str, port: int, **more: Any) -> Any:
        if host != SWARM:
            return self._real(host, port, **more)
        if not self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (each, port)) for each in self.hosts]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.look_up)
    monkeypatch.setattr(search, "_FRESH_S", 0.0)
    yield made


def test_a_seed_is_an_address_or_a_dns_name() -> None:
    assert parse_seed(" dns:swarm.ns.svc:7700") == "dns:swarm.ns.svc:7700"
    assert parse_seed("node-a:7700") == "tcp://node-a:7700"
    assert PeerConfig(join="dns:swarm, node-a").join == ("dns:swarm:7700", "tcp://node-a:7700")
    for wrong in ("dns:", "dns:swarm:*", f"dns:{'k' * 43}@swarm:7700"):
        with pytest.raises(ConfigError):
            PeerConfig(join=wrong)
    with pytest.raises(ConfigError, match="malformed"):
        PeerConfig(advertise="dns:swarm:7700")


def test_a_dns_seed_follows_changing_addresses_and_skips_its_own(names: Names) -> None:
    requested: list[Sequence[str]] = []
    runtime = runtime_of(
        phase=Phase.TRAINING,
        call=lambda method, **arguments: requested.append(arguments["seeds"]),
        addresses=("tcp://10.0.0.1:7700",),
    )
    config = PeerConfig(join=("tcp://node-a:1", f"dns:{SWARM}:7700"))
    named = search.Search(runtime, config, "me", NEW)
    for hosts in ([], ["10.0.0.1", "10.0.0.2", "fd00::3"], []):
        names.hosts = hosts
        named.run(threading.Event())
    some = ("tcp://node-a:1", "tcp://10.0.0.2:7700", "tcp://[fd00::3]:7700")
    assert requested == [some[:1], some, some]


def test_a_peer_with_an_unresolved_dns_seed_does_not_found(names: Names) -> None:
    calls: list[object] = []
    runtime = runtime_of(
        phase=Phase.TRAINING, call=lambda method, **arguments: calls.append(method)
    )
    stop = threading.Event()
    stop.set()
    found = search.Search(runtime, PeerConfig(join=f"dns:{SWARM}:7700"), "me", NEW)
    why = re.escape(f"joining: dns:{SWARM}:7700 does not resolve (Name or service not known); ")
    with pytest.raises(TransportError, match=why):
        found.run(stop)
    names.hosts = ["10.0.0.2"]
    found.run(stop)
    assert calls == ["join"]


@pytest.mark.live
def test_peers_find_each_other_by_dns_name(names: Names) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    names.hosts = ["127.0.0.2", "127.0.0.3"]
    times = timing("local") | {"found_s": 0.5}
    members = []
    for seed, host in enumerate(names.hosts):
        at: Any = {"bind": f"tcp://{host}:{port}", "advertise": f"tcp://{host}:{port}"}
        config = settings(None, join=f"dns:{SWARM}:{port}", seed=seed, times=times, **at)
        members.append(Member(Peer(linear(), config)))
    # A peer that is stopped while it waits for its first share fails.
    with swarm(*members, at_once=True):
        until(lambda: all(len(member.peer.members) == 2 for member in members))
        assert members[0].peer.stats().swarm == members[1].peer.stats().swarm != ""
