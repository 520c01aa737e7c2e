"""Real peers, started by the real command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ONE
from rumor.sim.replay.replay import replay
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledger

pytestmark = pytest.mark.live

RUMOR = (sys.executable, "-m", "rumor.cli")


def launch(out: Path, peers: int, *options: str) -> "subprocess.Popen[str]":
    command = [*RUMOR, "launch", "--json", "--out", str(out), "--peers", str(peers), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def summary_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stderr
    (line,) = stdout.splitlines()
    summary: dict[str, Any] = json.loads(line)
    return summary


def test_a_launched_swarm_trains_one_model_and_loses_no_weight(tmp_path: Path) -> None:
    summary = summary_of(launch(tmp_path / "run", 2, "--steps", "150"))
    assert summary["accuracy"] > 0.85
    assert summary["consensus_distance"] < 0.1
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 2 * 2**40
    assert [peer["state"] for peer in summary["peers_detail"]] == ["finished"] * 2
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"peers", "rendezvous", "model.safetensors", "summary.json", "training.png"}


@pytest.fixture(scope="module")
def lessened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of a swarm of four; in the middle one was killed, and one was told to stop."""
    run = tmp_path_factory.mktemp("lessened") / "run"
    # On the ring the two are no neighbors: the one that leaves hands its weight to one that lives.
    options = ("--topology", "ring", "--p", "0.5", "--steps", "200", "--step-s-min", "0.02")
    ends = ("--timing", "local", "--linger-s", "1", "--leave-s", "10")
    launcher = launch(run, 4, *options, *ends, "--journal")
    while len(steps := steps_of(run)) < 4 or steps[0] < 20:
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.05)
    for peer, number in (("peer-1", signal.SIGKILL), ("peer-3", signal.SIGTERM)):
        os.kill(int((run / "peers" / peer / "pid").read_text()), number)
    return summary_of(launcher)


def steps_of(run: Path) -> list[int]:
    """The steps that peers have taken, in rising order; none of those that do not train yet."""
    logs = [read_metrics(path) for path in run.glob("peers/*/metrics.jsonl")]
    return sorted(rows[-1]["step"] for rows in logs if rows)


def test_a_killed_peer_is_a_machine_that_died_and_the_others_go_on(
    lessened: dict[str, Any],
) -> None:
    steps = [peer["steps"] for peer in lessened["peers_detail"]]
    assert steps[0] == steps[2] == 200 and steps[1] < 200
    (dead,) = lessened["dead"]
    assert (dead["id"], dead["why"]) == ("peer-1", "SIGKILL")
    assert lessened["weight_units_total"] == lessened["weight_units_expected"]
    assert sum(lessened["ledger"].values()) == 2 * lessened["ledger"]["founded"] == 8 * 2**40
    assert lessened["accuracy"] > 0.85


def test_a_peer_that_is_told_to_stop_hands_its_weight_on(lessened: dict[str, Any]) -> None:
    left = lessened["peers_detail"][3]
    assert (left["state"], left["weight_units"]) == ("left", 0)
    assert left["steps"] < 200
    (account,) = read_ledger(Path(lessened["out"]) / "peers" / "peer-3" / "ledger.jsonl")
    assert (account.founded, account.weight, account.burned) == (ONE, 0, 0)


def test_a_killed_peer_is_repeated_as_far_as_anybody_knows(lessened: dict[str, Any]) -> None:
    found = replay(lessened["out"])
    assert found.identical, (found.difference, [peer.why for peer in found.peers])
    dead = found.peers[1]
    assert not dead.closed and not dead.compared and 20 <= dead.steps < 200 and dead.mixed > 0
    assert all(peer.compared for peer in found.peers if peer is not dead)
