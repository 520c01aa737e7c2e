"""Shares in flight stay within the memory bound, and no weight is lost."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from rumor.gossip import DPSGD, ConfigError, GoSGD, audit
from rumor.gossip.weight import ONE
from rumor.train import Peer
from rumor.train.storage.jsonl import read_metrics
from rumor.train.tensors import buffers
from rumor.train.tensors.buffers import Memory
from rumor.train.tensors.vector import Vector

from ...waiting import until
from ..members import Member, accounts, settings, swarm

pytestmark = pytest.mark.live

# 1.2 MB: too large for one message, so a share is offered first.
ROWS = 3000


@pytest.fixture
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_BOUND_BYTES_MIN", 0)
    monkeypatch.setattr(buffers, "_BOUNDED_BYTES_MIN", 0)


def peer(id: str, out: Path, join: str | None = None, *, shared_memory: bool = True) -> Peer:
    options: dict[str, Any] = {"rule": GoSGD(p=1.0), "topology": "complete", "linger_s": 5.0}
    options["log_every"] = 1
    times = {"shared_memory": shared_memory}
    config = settings(id, times=times, out=out / id, join=join or (), **options)
    return Peer(nn.Linear(100, ROWS), config)


@pytest.mark.extended
@pytest.mark.usefixtures("_bounded")
def test_the_bound_holds_while_peers_join_exchange_and_leave(tmp_path: Path) -> None:
    members = [Member(peer("a", tmp_path)).entered()]
    for id in "bcd":
        # Peer b does not use shared memory, so its shares travel over sockets.
        late = peer(id, tmp_path, members[0].address, shared_memory=id != "b")
        members.append(Member(late).entered())
    with swarm(*members):
        until(lambda: all(member.mixed() > 10 for member in members))
        until(lambda: any(member.peer.stats().counters.no_memory for member in members))
    assert [member.error for member in members] == [None] * 4
    account = audit(accounts(*(tmp_path / id for id in "abcd")))
    assert account.balanced and account.held == account.founded == ONE
    assert [member.peer.stats().memory_bytes for member in members] == [0] * 4
    tables = [read_metrics(tmp_path / id / "metrics.jsonl") for id in "abcd"]
    for rows in tables:
        assert 0 < max(row["memory_bytes"] / row["model_bytes"] for row in rows) <= 3.0
    assert max(row["no_memory"] for rows in tables for row in rows) > 0


@pytest.mark.extended
def test_a_newcomer_hashes_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Vector] = []
    anchor = Vector.anchor

    def record(vector: Vector) -> bytes:
        hashed.append(vector)
        return anchor(vector)

    monkeypatch.setattr(Vector, "anchor", record)
    founder = Member(peer("a", tmp_path)).entered()
    with swarm(founder, Member(peer("b", tmp_path, founder.address))) as members:
        assert len({member.peer.stats().swarm for member in members}) == 1
    assert len(hashed) == 1 and hashed[0] is founder.peer._vector


@pytest.mark.extended
def test_idle_memory_is_freed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[None] = []
    monkeypatch.setattr(buffers, "_BOUNDED_BYTES_MIN", 0)
    monkeypatch.setattr(Memory.free_idle, "__defaults__", (0.2,))
    monkeypatch.setattr(buffers, "give_pages_back", lambda: returned.append(None))
    with Peer(nn.Linear(100, ROWS), settings("a")) as peer:
        peer._vector.memory.lend(1 << 20)
        assert peer.stats().memory_bytes == 1 << 20
        until(lambda: peer.stats().memory_bytes == 0)
        until(lambda: returned)


def test_a_synchronous_rule_has_no_memory_bound() -> None:
    assert not Peer(nn.Linear(2000, 2000), rule=DPSGD())._vector.memory.is_bounded
    assert Peer(nn.Linear(2000, 2000))._vector.memory.is_bounded
    with pytest.raises(ConfigError, match=r"memory_models is 1: it must be at least 2"):
        settings("a", memory_models=1)
