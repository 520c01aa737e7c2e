"""Learning rates that follow the clock of the swarm are the same ones in a replay."""

from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ProtocolConfig
from rumor.sim.replay.replay import replay
from rumor.sim.replay.result import Verdict
from rumor.train import PeerConfig, load_task
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run
from rumor.train.storage.jsonl import read_metrics
from rumor.train.tasks.lr_schedule import parse_lr_schedule

from ...forked import PROCESSES
from ...waiting import LIMIT_S

pytestmark = pytest.mark.live

TOTAL = 120
SCHEDULE = "cosine:warmup=0.1,floor=0.05"


def configs(folder: Path, index: int) -> tuple[RunConfig, PeerConfig]:
    """Of a peer."""
    own: Any = {"id": f"p{index}", "out": folder / f"p{index}", "rendezvous": folder / "r"}
    protocol = ProtocolConfig(gossip_s=0.05, seek_s=0.05)
    run_config = RunConfig(
        total_steps=TOTAL, lr_schedule=SCHEDULE, journal=True, step_s_min=0.004 * (1 + index)
    )
    return run_config, PeerConfig(**own, log_every=1, founders=2, protocol=protocol)


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two peers of unequal speed, who stop together by the clock of the swarm."""
    folder = tmp_path_factory.mktemp("swarm")
    # A process each: two models that are made at once from one process's random numbers are others.
    peers = [PROCESSES.Process(target=run, args=configs(folder, index)) for index in range(2)]
    for peer in peers:
        peer.start()
    try:
        for peer in peers:
            peer.join(LIMIT_S)
        assert [peer.exitcode for peer in peers] == [0, 0]
    finally:
        for peer in peers:
            peer.kill()
            peer.join()
    return folder


@pytest.mark.extended
def test_all_peers_follow_the_steps_of_the_swarm(swarm: Path) -> None:
    rows = [read_metrics(swarm / f"p{index}" / "metrics.jsonl") for index in range(2)]
    assert sum(peer[-1]["step"] for peer in rows) >= TOTAL
    for peer in rows:
        assert [row["swarm_steps"] >= TOTAL for row in peer] == [False] * (len(peer) - 1) + [True]
    assert any(row["swarm_steps"] > row["step"] for peer in rows for row in peer)
    schedule, full = parse_lr_schedule(SCHEDULE), load_task("digits", seed=0).lr
    rates = [full * schedule.after(steps, TOTAL) for steps in range(TOTAL)]
    for peer in rows:
        known = [row["swarm_steps"] for row in peer]
        assert [row["lr"] for row in peer[1:]] == pytest.approx([rates[n] for n in known[:-1]])
        # Before its first step, the other may have taken some.
        assert any(peer[0]["lr"] == pytest.approx(rate) for rate in rates[: known[0]])


def test_a_replay_trains_at_the_same_rates(swarm: Path) -> None:
    found = replay(swarm / "p0", swarm / "p1")
    assert [peer.verdict for peer in found.peers] == [Verdict.IDENTICAL] * 2, found.difference
    assert all(peer.compared for peer in found.peers)
