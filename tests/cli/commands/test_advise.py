"""``rumor advise``: descriptions of machines, output, files and exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.commands.advise import read_hosts
from rumor.gossip.errors import ConfigError
from rumor.sim.models.network import PRESETS, Host, NetworkConfig

from ...sim.live_folders import leave_run
from ..called import called

ALONE = ("--rule", "gosgd:p=0.5", "--topology", "ring", "--wire", "float32")
SMALL = ("--task", "quadratic", "--steps", "20", "--jobs", "1")


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def advise(*arguments: str, status: int = 0) -> Any:
    return called("advise", *arguments, status=status, columns=160)


def test_groups_of_hosts_are_parsed() -> None:
    found = read_hosts("2x a100@10Gbit, rtx*2.5 @ 100mbit,1 x cpu", step_s=0.2)
    assert [(peer.id, peer.step_s) for peer in found.peers] == [
        ("a100-0", 0.2),
        ("a100-1", 0.2),
        ("rtx-0", 0.5),
        ("cpu-0", 0.2),
    ]
    hosts = tuple(
        Host(workers=(str(i),), bandwidth_mbit=rate) for i, rate in enumerate((1e4, 1e4, 100.0))
    )
    lan = PRESETS["lan"]
    assert found.network == NetworkConfig(
        latency_s=lan.latency_s, bandwidth_mbit=lan.bandwidth_mbit, hosts=hosts
    )


@pytest.mark.parametrize(
    "text",
    ["", "8x", "0x a", "8 a100", "a@fast", "a@25MB", "a@0Gbit", "a*0", "a*x", "a,,b", "99999x a"],
)
def test_malformed_hosts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_hosts(text, step_s=0.1)


@pytest.mark.extended
def test_advice_for_described_hosts_ends_with_the_command_to_start(tmp_path: Path) -> None:
    options = (*ALONE[:2], *ALONE[4:], *SMALL, "--out", "a", "--target")
    shown = advise("--hosts", "3x fast, slow*4", *options, "100")
    assert "quadratic on 4 peers, until a loss of 100" in shown.stdout
    assert "gosgd:p=0.5 on torus" in shown.stdout and "Topology: " in shown.stdout
    line = "rumor run --hosts hosts.txt --rule gosgd:p=0.5 --topology "
    assert line in shown.stdout.splitlines()[-1]
    assert "rule: 3 trials, " in shown.stderr
    assert Path("a/advice.png").is_file() and Path("a/report.html").is_file()
    again = advise("--hosts", "3x fast, slow*4", *options, "100", "--resume", "--json")
    assert "nothing is left to compute" in again.stderr
    advice = json.loads(again.stdout)
    assert advice["target"] == 100 and advice["out"] == "a" and advice["start"].startswith(line)
    graphs = ("ring", "torus", "exponential", "complete")
    assert {*advice["order"]} == {f"gosgd:p=0.5 on {graph}" for graph in graphs}
    never = advise("--hosts", "2x fast", *ALONE, *SMALL, "--out", "b", "--target", "1e-9", status=1)
    assert "no candidate reached a loss of 1e-09 with every seed" in never.stderr


@pytest.mark.extended
def test_a_candidate_that_fails_is_in_the_table() -> None:
    shown = advise("--hosts", "3x fast", *ALONE[:2], *ALONE[4:], *SMALL, "--target", "100")
    (line,) = [line for line in shown.stdout.splitlines() if "torus" in line]
    assert "failed: topology 'torus' with n=3" in line


@pytest.mark.extended
def test_advice_for_a_run_on_one_machine_is_a_launch_command(tmp_path: Path) -> None:
    leave_run(tmp_path / "run", (0.1, 0.1, 0.3))
    shown = advise("run", *ALONE, "--steps", "20", "--jobs", "1", "--target", "100")
    assert "note: all peers ran on one machine" in shown.stderr
    line = shown.stdout.splitlines()[-1]
    assert line.endswith(
        "rumor launch -n 3 --task digits --rule gosgd:p=0.5 --topology ring --wire float32"
    )
