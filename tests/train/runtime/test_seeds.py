"""Seeds behind a name: all of its addresses, again when somebody is lost, and never the own one."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from rumor.gossip import ConfigError, ProtocolConfig
from rumor.gossip.config import timing
from rumor.gossip.transport.addresses import parse_seed
from rumor.train import Peer, PeerConfig
from rumor.train.runtime import seeds
from rumor.train.runtime.seeds import NamedSeeds

from ...waiting import LIMIT_S, until

SWARM = "swarm.test"


class Names:
    """A name server that can be changed."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.asked = 0
        self.changed = threading.Condition()
        self._real = socket.getaddrinfo

    def look_up(self, host: str, port: int, **more: Any) -> Any:
        if host != SWARM:
            return self._real(host, port, **more)
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
            if not self.hosts:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return [(0, 0, 0, "", (each, port)) for each in self.hosts]

    def wait_for(self, asked: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.asked >= asked, LIMIT_S)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.look_up)
    monkeypatch.setattr(seeds, "_FRESH_S", 0.0)
    monkeypatch.setattr(seeds, "_AGAIN_S", (0.0, 0.1))
    yield made


def test_a_seed_is_an_address_or_a_name_of_many() -> None:
    assert parse_seed(" dns:swarm.ns.svc:7700") == "dns:swarm.ns.svc:7700"
    assert parse_seed("node-a:7700") == "tcp://node-a:7700"
    assert PeerConfig(join="dns:swarm:7700").join == ("dns:swarm:7700",)
    for wrong in ("dns:", "dns:swarm", "dns:swarm:*", f"dns:{'k' * 43}@swarm:7700"):
        with pytest.raises(ConfigError):
            PeerConfig(join=wrong)
    with pytest.raises(ConfigError, match="malformed"):
        PeerConfig(advertise="dns:swarm:7700")


def eventually(named: NamedSeeds, wanted: tuple[str, ...]) -> None:
    until(lambda: named.addresses() == wanted, named.addresses)


def test_all_addresses_of_a_name_but_the_own_one_are_found_as_they_change(names: Names) -> None:
    named = NamedSeeds(["tcp://node-a:1", f"dns:{SWARM}:7700"], ["tcp://10.0.0.1:7700"])
    assert named.pending and named.addresses() == ()
    until(lambda: named.addresses() or named.silence())
    assert named.addresses() == ()
    assert "Name or service not known" in named.silence()[0]
    names.hosts = ["10.0.0.1", "10.0.0.2", "fd00::3"]
    eventually(named, ("tcp://10.0.0.2:7700", "tcp://[fd00::3]:7700"))
    names.hosts = []
    until(lambda: named.addresses() and named.silence())
    assert named.addresses() == ("tcp://10.0.0.2:7700", "tcp://[fd00::3]:7700")
    named.close()


def test_a_loss_has_the_name_looked_up_again_and_again(names: Names) -> None:
    named, told = NamedSeeds([f"dns:{SWARM}:7700"]), []
    heard = threading.Semaphore(0)

    def tell(found: tuple[str, ...]) -> None:
        told.append(found)
        heard.release()

    names.hosts = ["10.0.0.2"]
    for _ in range(2):
        named.lost(tell)
        for _ in range(2):
            assert heard.acquire(timeout=LIMIT_S)
    named.close()
    named.lost(tell)
    assert {*told} == {("tcp://10.0.0.2:7700",)}
    without = NamedSeeds(["tcp://node-a:1"])
    without.lost(tell)
    assert not without.pending and without.addresses() == ()
    without.close()


@pytest.mark.live
def test_peers_find_one_another_by_a_name_and_whoever_comes_for_one_that_was_lost(
    names: Names,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quick = timing("local") | {"found_s": 0.5}
    config = PeerConfig(
        join=f"dns:{SWARM}:{port}",
        linger_s=0,
        protocol=ProtocolConfig(**quick),
    )

    def peer(index: int) -> Peer:
        address = f"tcp://127.0.0.{index}:{port}"
        own = replace(config, bind=address, advertise=address, seed=index)
        return Peer(nn.Linear(2, 1), own)

    def enter(each: Peer) -> None:
        with each:
            while not over.is_set():
                each.step()
                each._running().wait_for_share(0.01)

    over = threading.Event()
    names.hosts = ["127.0.0.2", "127.0.0.3"]
    peers = [peer(2), peer(3)]
    threads = [threading.Thread(target=enter, args=(each,)) for each in peers]
    try:
        for thread in threads:
            thread.start()
        until(lambda: all(each.stats().swarm and len(each.members) == 2 for each in peers))
        assert peers[0].stats().swarm == peers[1].stats().swarm != ""
        # One that nobody knows, and who knows nobody, is greeted once somebody is lost.
        asked = names.asked
        names.hosts.append("127.0.0.4")
        assert peers[0]._session is not None
        peers[0]._session.search._named.lost(peers[0]._session.search._meet)
        names.wait_for(asked + 1)
        runtime = peers[0]._session.runtime
        assert runtime.is_sound
        until(lambda: f"tcp://127.0.0.4:{port}" in runtime.greeted)
    finally:
        over.set()
        for each in peers:
            each._stop.set()
        for thread in threads:
            thread.join(LIMIT_S)
