"""Shares on their way take no more memory than is allowed, and no weight is lost by it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from rumor.gossip import DPSGD, ConfigError, GoSGD, ProtocolConfig, audit
from rumor.gossip.weight import ONE
from rumor.train import Peer, PeerConfig
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledger
from rumor.train.tensors import buffers
from rumor.train.tensors.buffers import Memory
from rumor.train.tensors.vector import Vector

from ...waiting import LIMIT_S, until

pytestmark = pytest.mark.live

# 1.2 MB: offered, and not sent in one message.
ROWS = 3000


class Peaks:
    """The most that peers have held, in models, looked at all the time."""

    def __init__(self) -> None:
        self.models: dict[Peer, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def watched(self, peer: Peer) -> Peer:
        self.models[peer] = 0.0
        return peer

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.001):
            for peer, most in [*self.models.items()]:
                # What comes or goes just now may be counted twice, and not for longer than that.
                found = min(self._seen(peer) for _ in range(3))
                self.models[peer] = max(most, found)

    def _seen(self, peer: Peer) -> float:
        time.sleep(0.0005)
        return peer.stats().memory.models


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peaks]:
    monkeypatch.setattr(buffers, "_BOUND_BYTES_MIN", 0)
    monkeypatch.setattr(buffers, "_BOUNDED_BYTES_MIN", 0)
    found = Peaks()
    yield found
    found.close()


class Trained:
    """Peers that take steps, each on a thread of its own, until the block ends."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def enter(self, peer: Peer) -> Peer:
        inside = threading.Event()
        self._threads.append(threading.Thread(target=self._train, args=(peer, inside)))
        self._threads[-1].start()
        assert inside.wait(LIMIT_S) and not self._errors, self._errors
        return peer

    def _train(self, peer: Peer, inside: threading.Event) -> None:
        try:
            with peer:
                inside.set()
                while not self._stop.wait(0.002):
                    peer.step()
        except BaseException as error:
            self._errors.append(error)
            inside.set()

    def __enter__(self) -> "Trained":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        assert self._errors == []


def member(id: str, out: Path, join: str | None = None, **changes: Any) -> Peer:
    protocol = ProtocolConfig(
        gossip_s=0.1, seek_s=0.05, shared_memory=changes.pop("shared_memory", True)
    )
    config = PeerConfig(
        id=id,
        protocol=protocol,
        rule=GoSGD(p=1.0),
        topology="complete",
        linger_s=5.0,
        leave_s=LIMIT_S,
        **changes,
    )
    return Peer(nn.Linear(100, ROWS), config, out=out / id, join=join or ())


@pytest.mark.extended
def test_the_bound_holds_while_peers_join_exchange_and_leave(tmp_path: Path, peaks: Peaks) -> None:
    with Trained() as swarm:
        founder = swarm.enter(peaks.watched(member("a", tmp_path)))
        # One of them reads no memory of others, and all else is for sockets.
        others = [
            swarm.enter(
                peaks.watched(member(id, tmp_path, founder.address, shared_memory=id != "b"))
            )
            for id in "bcd"
        ]
        peers = [founder, *others]
        until(lambda: all(peer.stats().counters.mixed > 10 for peer in peers))
        until(lambda: any(peer.stats().counters.no_memory for peer in peers))
    assert all(0 < most <= 3.0 for most in peaks.models.values()), peaks.models
    accounts = [each for id in "abcd" for each in read_ledger(tmp_path / id / "ledger.jsonl")]
    account = audit(accounts)
    assert account.balanced and account.held == account.founded == ONE
    assert [peer.stats().memory.total_bytes for peer in peers] == [0] * 4
    rows = [row for id in "abcd" for row in read_metrics(tmp_path / id / "metrics.jsonl")]
    assert 0 < max(row["memory_bytes"] / row["model_bytes"] for row in rows) <= 3.0
    assert max(row["no_memory"] for row in rows) > 0


@pytest.mark.extended
def test_a_newcomer_hashes_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Vector] = []
    anchor = Vector.anchor

    def noted(vector: Vector) -> bytes:
        hashed.append(vector)
        return anchor(vector)

    monkeypatch.setattr(Vector, "anchor", noted)
    with Trained() as swarm:
        founder = swarm.enter(member("a", tmp_path))
        newcomer = swarm.enter(member("b", tmp_path, founder.address))
        assert founder.stats().swarm == newcomer.stats().swarm
    assert len(hashed) == 1 and hashed[0] is founder._vector


@pytest.mark.extended
def test_memory_that_was_not_used_for_a_while_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[None] = []
    monkeypatch.setattr(buffers, "_BOUNDED_BYTES_MIN", 0)
    monkeypatch.setattr(Memory.free_idle, "__defaults__", (0.2,))
    monkeypatch.setattr(buffers, "give_pages_back", lambda: given_back.append(None))
    with Peer(nn.Linear(100, ROWS), PeerConfig(linger_s=0)) as peer:
        peer._vector.memory.lend(1 << 20, "snapshots")
        assert peer.stats().memory.idle_bytes == 1 << 20
        until(lambda: peer.stats().memory.idle_bytes == 0)
        until(lambda: given_back)


def test_a_rule_that_waits_has_all_the_memory_it_needs() -> None:
    assert not Peer(nn.Linear(2000, 2000), rule=DPSGD())._vector.memory.is_bounded
    assert Peer(nn.Linear(2000, 2000))._vector.memory.is_bounded
    with pytest.raises(ConfigError, match=r"memory_models is 1: it must be at least 2"):
        PeerConfig(memory_models=1)
