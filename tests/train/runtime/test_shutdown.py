"""Leaving: a stopped peer leaves at once and hands its weight to another peer, if there is one."""

import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from rumor.gossip import GoSGD, audit
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase
from rumor.train import MergeResult, Peer, PeerConfig, load_task
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run
from rumor.train.runtime import shutdown

from ...waiting import LIMIT_S, turning, until
from ..members import Member, accounts, linear, settings

pytestmark = pytest.mark.live


def config(id: str, **changes: Any) -> PeerConfig:
    """Settings whose ``leave_s`` is eleven days, so that waiting for it to pass fails the test."""
    options: dict[str, Any] = {"rule": GoSGD(p=1e-9), "leave_s": 1e6}
    return settings(id, **options | changes)


def founding_peer(**changes: Any) -> Peer:
    return Peer(linear(), config("a", **changes))


def joined_peer(founder: Peer, **changes: Any) -> Peer:
    """A second peer that runs with a copy of the founder's model."""
    peer = Peer(linear(), config("b", join=(founder.address or "",), **changes))
    with turning(founder.step):
        peer.__enter__()
    return peer


@pytest.mark.extended
def test_a_dead_neighbor_does_not_keep_a_peer_from_leaving(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with founding_peer() as founder:
        joined_peer(founder)._close()  # without leaving, as in a crash
        with caplog.at_level(logging.WARNING, "rumor"):
            founder.leave()
    assert "left although" in caplog.text and "a weight of 0.5" in caplog.text


def test_a_peer_that_hands_on_all_weight_leaves_without_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with founding_peer(out=tmp_path / "a") as founder:
        peer = joined_peer(founder, out=tmp_path / "b")
        with turning(founder.step), caplog.at_level(logging.WARNING, "rumor"):
            peer.leave()
            until(lambda: founder.members == ("a",))
        assert founder.weight == 1.0 and peer.stats().weight_units == 0
        account = audit(accounts(tmp_path / "a", tmp_path / "b"))
        assert account.balanced and account.held == 1 * ONE
        peer._close()
        founder.leave()
    assert "although" not in caplog.text


@pytest.mark.extended
def test_a_finished_peer_leaves_at_once_when_stopped() -> None:
    with founding_peer() as founder:
        ours = config("b", join=founder.address or "", linger_s=1e6)
        with turning(founder.step):
            member = Member(Peer(linear(), ours)).entered()
            member.halt.set()
            running = member.peer._running()
            until(lambda: running.look(lambda protocol: protocol.phase is Phase.FINISHED))
            assert member.thread.is_alive() and not member.peer.stats().has_left
            member.end(at_once=True)
            assert member.peer.stats().has_left and member.peer.stats().weight_units == 0
            until(lambda: founder.weight == 1.0)
        founder.leave()


def test_founders_with_different_models_merge_into_one_after_a_single_step(tmp_path: Path) -> None:
    options: dict[str, Any] = {"founders": 2, "rendezvous": tmp_path, "linger_s": LIMIT_S}
    models = linear(1.0), linear(2.0)
    members = [
        Member(Peer(model, settings(id, rule=GoSGD(p=1.0), **options)))
        for id, model in zip("ab", models, strict=True)
    ]
    for member in members:
        member.halt.set()  # after the step that it is in
    for member in members:
        member.end()
        assert member.error is None and member.peer.merged is not None
        assert member.peer.merged.complete and member.peer.merged.distance is not None
    first, second = (model.weight for model in models)
    assert (first - second).norm() <= 1e-3 * first.norm()


def test_a_merge_without_a_founder_of_another_swarm_is_incomplete_and_says_why() -> None:
    why = shutdown._why(MergeResult(complete=False), 4, ["b"])
    assert why.startswith("b founded another swarm, with another initial model; make the same")


class SetOnFirstWeight(threading.Event):
    """An event that is set once a joining peer holds weight."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer
        self.weight = 0.0

    def is_set(self) -> bool:
        self.weight = self._peer.weight
        return self.weight > 0


def test_a_newcomer_stopped_while_joining_hands_on_its_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy arrives in eight shards, one after the other."""
    shares = RuleContext.shares
    monkeypatch.setattr(RuleContext, "shares", lambda turn: shares(turn)[:1])  # one each turn
    options: dict[str, Any] = {"times": {"shards_per_push": 1}, "shards": 8}
    with Peer(nn.Linear(32, 32), config("a", out=tmp_path / "a", **options)) as founder:
        join = founder.address or ""
        newcomer = Peer(nn.Linear(32, 32), config("b", out=tmp_path / "b", join=join, **options))
        newcomer._stop = stop = SetOnFirstWeight(newcomer)
        with turning(founder.step):
            member = Member(newcomer)
            member.end()
        assert 0 < stop.weight < 0.5 and "stopped while joining" in str(member.error)
        assert founder.weight == 1.0
        assert sum(account.weight for account in accounts(tmp_path / "b")) == 0
        assert audit(accounts(tmp_path / "a", tmp_path / "b")).held == 8 * ONE
        founder.leave()


@pytest.mark.extended
def test_a_leaving_peer_waits_for_a_slow_neighbor() -> None:
    """The neighbor answers only after its own step, much later than usual."""
    with founding_peer() as founder:
        peer = joined_peer(founder)
        timer = threading.Timer(1.0, founder.step)
        timer.start()
        peer.leave()
        timer.join()
        assert founder.weight == 1.0
        peer._close()
        founder.leave()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.extended
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_peer_is_reachable_at_each_of_its_addresses() -> None:
    several = ("tcp://127.0.0.1:*", "tcp://[::1]:*")
    with Peer(linear(), config("a", bind=several)) as founder:
        addresses = founder.stats().addresses
        assert len(addresses) == 2 and founder.address == addresses[0]
        for address in addresses:
            peer = Peer(linear(), config("b", bind="tcp://[::1]:*", join=(address,)))
            with turning(founder.step), peer:
                assert peer.weight == 0.5
                peer.leave()
        founder.leave()


@pytest.mark.extended
def test_a_run_stopped_while_merging_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges, merge = threading.Event(), Peer.merge

    def signal_and_merge(peer: Peer, timeout_s: float = 30.0) -> MergeResult:
        merges.set()
        return merge(peer, timeout_s)

    monkeypatch.setattr(Peer, "merge", signal_and_merge)
    with Peer(load_task("digits", seed=0).model(), config("a")) as founder:
        stop, reports = threading.Event(), list[Any]()
        joining = config("b", join=(founder.address or "",), linger_s=1e6, out=tmp_path / "b")
        thread = threading.Thread(
            target=lambda: reports.append(run(RunConfig(steps=2), joining, stop=stop))
        )
        thread.start()
        while thread.is_alive():
            founder.step()
            time.sleep(0.005)
            if merges.is_set():
                stop.set()
        ended = reports[0].stats
        assert (reports[0].state, ended.steps, ended.weight_units) == ("left", 2, 0)
        assert founder.weight == 1.0
        founder.leave()
