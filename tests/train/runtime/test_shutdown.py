"""Leaving: told to stop, a peer goes at once, and its weight finds an heir, if there is one."""

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

from ...waiting import turning, until
from ..members import Member, accounts, linear, settings

pytestmark = pytest.mark.live


def config(id: str, **changes: Any) -> PeerConfig:
    """Whoever waits ``leave_s`` or a ``linger_s`` like that out waits for eleven days."""
    given: dict[str, Any] = {"rule": GoSGD(p=1e-9), "leave_s": 1e6}
    return settings(id, **given | changes)


def founded(**changes: Any) -> Peer:
    return Peer(linear(), config("a", **changes))


def joined(founder: Peer, **changes: Any) -> Peer:
    """A second peer that has become a copy of the founder, and runs."""
    peer = Peer(linear(), config("b", join=(founder.address or "",), **changes))
    with turning(founder.step):
        peer.__enter__()
    return peer


@pytest.mark.extended
def test_a_dead_neighbor_keeps_nobody_from_leaving(caplog: pytest.LogCaptureFixture) -> None:
    with founded() as founder:
        joined(founder)._close()  # without a word, as a crash
        with caplog.at_level(logging.WARNING, "rumor"):
            founder.leave()
    assert "left although" in caplog.text and "a weight of 0.5" in caplog.text


def test_who_has_handed_all_on_is_gone_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with founded(out=tmp_path / "a") as founder:
        peer = joined(founder, out=tmp_path / "b")
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
def test_a_finished_peer_that_waits_for_the_others_leaves_at_once() -> None:
    with founded() as founder:
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


class OnceItHolds(threading.Event):
    """Is set as soon as a peer that joins holds any weight."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer
        self.weight = 0.0

    def is_set(self) -> bool:
        self.weight = self._peer.weight
        return self.weight > 0


def test_a_newcomer_that_stops_while_it_joins_hands_on_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy comes in eight shards, one after the other."""
    shares = RuleContext.shares
    monkeypatch.setattr(RuleContext, "shares", lambda turn: shares(turn)[:1])  # one each turn
    given: dict[str, Any] = {"times": {"shards_per_push": 1}, "shards": 8}
    with Peer(nn.Linear(32, 32), config("a", out=tmp_path / "a", **given)) as founder:
        join = founder.address or ""
        newcomer = Peer(nn.Linear(32, 32), config("b", out=tmp_path / "b", join=join, **given))
        newcomer._stop = stop = OnceItHolds(newcomer)
        with turning(founder.step):
            member = Member(newcomer)
            member.end()
        assert 0 < stop.weight < 0.5 and "stopped while joining" in str(member.error)
        assert founder.weight == 1.0
        assert sum(account.weight for account in accounts(tmp_path / "b")) == 0
        assert audit(accounts(tmp_path / "a", tmp_path / "b")).held == 8 * ONE
        founder.leave()


@pytest.mark.extended
def test_a_neighbor_that_takes_long_steps_is_waited_for() -> None:
    """It answers after its own step, long after the leaver's neighbors usually do."""
    with founded() as founder:
        peer = joined(founder)
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
def test_a_peer_listens_at_several_addresses_and_is_found_at_each() -> None:
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
def test_a_run_that_is_told_to_stop_while_it_merges_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges, merge = threading.Event(), Peer.merge

    def merging(peer: Peer, timeout_s: float = 30.0) -> MergeResult:
        merges.set()
        return merge(peer, timeout_s)

    monkeypatch.setattr(Peer, "merge", merging)
    with Peer(load_task("digits", seed=0).model(), config("a")) as founder:
        stop, reports = threading.Event(), list[Any]()
        given = config("b", join=(founder.address or "",), linger_s=1e6, out=tmp_path / "b")
        thread = threading.Thread(
            target=lambda: reports.append(run(RunConfig(steps=2), given, stop=stop))
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
