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

pytestmark = pytest.mark.live

RUMOR = (sys.executable, "-m", "rumor.cli")


def launch(out: Path, *options: str) -> "subprocess.Popen[str]":
    command = [*RUMOR, "launch", "--json", "--out", str(out), "--peers", "3", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def summary_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stderr
    (line,) = stdout.splitlines()
    summary: dict[str, Any] = json.loads(line)
    return summary


def send(number: signal.Signals, run: Path, peer: str, launcher: "subprocess.Popen[str]") -> None:
    """Send a signal to a peer once all of them train."""
    while len(list(run.glob("peers/*/metrics.jsonl"))) < 3:
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.05)
    os.kill(int((run / "peers" / peer / "pid").read_text()), number)


def test_a_launched_swarm_trains_one_model_and_loses_no_weight(tmp_path: Path) -> None:
    summary = summary_of(launch(tmp_path / "run", "--steps", "150"))
    assert summary["accuracy"] > 0.85
    assert summary["consensus_distance"] < 0.1
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 3 * ONE
    assert [peer["state"] for peer in summary["peers_detail"]] == ["finished"] * 3
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"peers", "rendezvous", "model.safetensors", "summary.json", "training.png"}


def test_a_killed_peer_is_a_machine_that_died_and_the_others_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--steps", "150", "--step-s-min", "0.01", "--linger-s", "1", "--leave-s", "1")
    launcher = launch(run, *options)
    send(signal.SIGKILL, run, "peer-1", launcher)
    summary = summary_of(launcher)
    steps = [peer["steps"] for peer in summary["peers_detail"]]
    assert steps[0] == steps[2] == 150 and steps[1] < 150
    (dead,) = summary["dead"]
    assert (dead["id"], dead["why"]) == ("peer-1", "SIGKILL")
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    assert sum(summary["ledger"].values()) == 2 * summary["ledger"]["founded"] == 6 * ONE
    assert summary["accuracy"] > 0.85


def test_a_peer_that_is_told_to_stop_hands_its_weight_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    launcher = launch(run, "--steps", "200", "--step-s-min", "0.01")
    send(signal.SIGTERM, run, "peer-1", launcher)
    summary = summary_of(launcher)
    assert summary["peers_detail"][1]["state"] == "left"
    assert summary["peers_detail"][1]["weight_units"] == 0
    assert summary["dead"] == []
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 3 * ONE
