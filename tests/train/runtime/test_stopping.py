"""Told to stop, a peer goes at once: while it joins, and while it waits for others at its end."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from rumor.gossip import GoSGD, ProtocolConfig, TransportError, audit
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.weight import ONE
from rumor.train import MergeResult, Peer, PeerConfig, load_task
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run
from rumor.train.storage.ledger_file import read_ledger

pytestmark = pytest.mark.live

QUICK = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.3)


def config(id: str, **changes: Any) -> PeerConfig:
    given: dict[str, Any] = {"protocol": QUICK, "rule": GoSGD(p=1e-9), "linger_s": 0.0}
    return PeerConfig(id=id, **given | {"leave_s": 1e6} | changes)


@pytest.mark.extended
def test_a_finished_peer_that_waits_for_the_others_leaves_at_once() -> None:
    """Who waits ``linger_s`` out here waits for eleven days."""
    with Peer(nn.Linear(2, 1), config("a")) as founder:
        peer = Peer(
            nn.Linear(2, 1),
            config("b", join=(founder.address or "",), linger_s=1e6),
        )
        waiting, over = threading.Event(), threading.Event()

        def take_part() -> None:
            with peer:
                peer.step()
                waiting.set()
            over.set()

        thread = threading.Thread(target=take_part)
        thread.start()
        while not waiting.is_set():
            founder.step()
        for _ in range(20):
            founder.step()
            time.sleep(0.01)
        assert not over.is_set() and not peer.stats().has_left
        peer._stop.set()
        while not over.wait(0.005):
            founder.step()
        thread.join()
        assert peer.stats().has_left and peer.stats().weight_units == 0
        assert founder.weight == 1.0
        founder.leave()


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
        settings = config("b", join=(founder.address or "",), linger_s=1e6, out=tmp_path / "b")
        thread = threading.Thread(
            target=lambda: reports.append(run(RunConfig(steps=2), settings, stop=stop))
        )
        thread.start()
        while thread.is_alive():
            founder.step()
            time.sleep(0.005)
            if merges.is_set():
                stop.set()
        thread.join()
        ended = reports[0].stats
        assert (reports[0].state, ended.steps, ended.weight_units) == ("left", 2, 0)
        assert founder.weight == 1.0
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
    one_by_one = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.3, shards_per_push=1)
    given: dict[str, Any] = {"protocol": one_by_one, "shards": 8}
    with Peer(nn.Linear(32, 32), config("a", out=tmp_path / "a", **given)) as founder:
        join = (founder.address or "",)
        newcomer = Peer(nn.Linear(32, 32), config("b", out=tmp_path / "b", join=join, **given))
        newcomer._stop = stop = OnceItHolds(newcomer)
        errors = list[BaseException]()

        def enter() -> None:
            try:
                newcomer.__enter__()
            except TransportError as error:
                errors.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        while thread.is_alive():
            founder.step()
            time.sleep(0.002)
        thread.join()
        assert 0 < stop.weight < 0.5
        assert "stopped while joining" in str(errors[0])
        assert founder.weight == 1.0
        accounts = [a for id in "ab" for a in read_ledger(tmp_path / id / "ledger.jsonl")]
        assert sum(account.weight for account in accounts if account.id == "b") == 0
        assert audit(accounts).held == 8 * ONE
        founder.leave()
