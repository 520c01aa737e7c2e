"""The clock of live peers goes on while the machine sleeps."""

from pathlib import Path

import pytest
from torch import nn

from rumor.train import Peer, PeerConfig
from rumor.train.storage.environment import uptime_s


def test_it_never_goes_back() -> None:
    told = [uptime_s() for _ in range(1000)]
    assert told == sorted(told)


@pytest.mark.skipif(not Path("/proc/uptime").exists(), reason="Linux says how long it is up")
def test_it_is_how_long_the_machine_is_up_sleep_included() -> None:
    before = uptime_s()
    said_s = float(Path("/proc/uptime").read_text().split()[0])
    # A hundredth of a second is the last digit there.
    assert before - 0.01 <= said_s <= uptime_s()


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
