"""Seeds behind a name: all of its addresses, and never the own one."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from rumor.gossip import ConfigError, ProtocolConfig
from rumor.gossip.config import timing
from rumor.gossip.transport.addresses import parse_seed
from rumor.train import Peer, PeerConfig
from rumor.train.runtime import search

from ...waiting import LIMIT_S, until

SWARM = "swarm.test"


class Names:
    """A name server that can be changed."""

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


def test_a_seed_is_an_address_or_a_name_of_many() -> None:
    assert parse_seed(" dns:swarm.ns.svc:7700") == "dns:swarm.ns.svc:7700"
    assert parse_seed("node-a:7700") == "tcp://node-a:7700"
    assert PeerConfig(join="dns:swarm:7700").join == ("dns:swarm:7700",)
    for wrong in ("dns:", "dns:swarm", "dns:swarm:*", f"dns:{'k' * 43}@swarm:7700"):
        with pytest.raises(ConfigError):
            PeerConfig(join=wrong)
    with pytest.raises(ConfigError, match="malformed"):
        PeerConfig(advertise="dns:swarm:7700")


def test_all_addresses_of_a_name_but_the_own_one_are_found_as_they_change(names: Names) -> None:
    runtime: Any = SimpleNamespace(
        transport=SimpleNamespace(keyring=None), addresses=("tcp://10.0.0.1:7700",)
    )
    folder: Any = SimpleNamespace(past=None, seeds=())
    config = PeerConfig(join=("tcp://node-a:1", f"dns:{SWARM}:7700"))
    named = search.Search(runtime, config, "me", folder)
    assert named._look_up() == []
    assert "Name or service not known" in named._why[f"dns:{SWARM}:7700"]
    for hosts in (["10.0.0.1", "10.0.0.2", "fd00::3"], []):
        names.hosts = hosts
        assert named._look_up() == ["tcp://10.0.0.2:7700", "tcp://[fd00::3]:7700"]
        assert bool(named._why) is not bool(hosts)


@pytest.mark.live
def test_peers_find_one_another_by_a_name(names: Names) -> None:
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
            joined.release()
            while not over.is_set():
                each.step()
                each._running().wait_for_share(0.01)

    over, joined = threading.Event(), threading.Semaphore(0)
    names.hosts = ["127.0.0.2", "127.0.0.3"]
    peers = [peer(2), peer(3)]
    threads = [threading.Thread(target=enter, args=(each,)) for each in peers]
    try:
        for thread in threads:
            thread.start()
        # A peer that is stopped while it waits for its first share fails.
        assert all(joined.acquire(timeout=LIMIT_S) for _ in peers)
        until(lambda: all(len(each.members) == 2 for each in peers))
        assert peers[0].stats().swarm == peers[1].stats().swarm != ""
    finally:
        over.set()
        for each in peers:
            each._stop.set()
        for thread in threads:
            thread.join(LIMIT_S)
