"""The clock of live peers goes on while the machine sleeps."""

import pytest
from torch import nn

from rumor.train import Peer, PeerConfig
from rumor.train.storage.environment import uptime_s


@pytest.mark.live
def test_what_a_peer_is_told_is_that_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    def slept() -> float:
        told.append(uptime_s() + 100_000.0 * len(told))
        return told[-1]

    with Peer(nn.Linear(2, 1), PeerConfig(bind=("tcp://127.0.0.1:*",))) as peer:
        monkeypatch.setattr("rumor.train.runtime.runner.uptime_s", slept)
        peer.step()
        assert told
