"""Real peers whose weight is signed for, and audits of what they leave."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app

from ...waiting import until
from .test_live_keys import ENDLESS, Run, free_port, rumor

pytestmark = pytest.mark.live

SCRIPT = """
import time
from torch import nn
from rumor.train import Peer

with Peer(nn.Linear(4, 1)) as peer:
    for _ in range(60):
        time.sleep(0.01)
        peer.step(loss=1.0)
"""


@pytest.mark.extended
@pytest.mark.parametrize("check", ["share", "audit"])
def test_a_run_with_receipts_is_sound_and_everybody_holds_what_it_is_worth(
    check: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, stack)
        run.machine("m1", "--name", "peer-*")
        roster, out = run.roster("m1"), tmp_path / "run"
        names = "peer-0,peer-1,peer-2"
        rumor("roster", "found", roster, names, "--key", tmp_path / "ada.key")
        keys = ("--key", tmp_path / "m1.key", "--roster", roster)
        words = ("-n", 3, "--task", "quadratic", "--steps", 150, "--out", out, "--json")
        signed = ("--receipts", "--receipts-check", check)
        summary = json.loads(rumor("launch", *words, *keys, *signed).splitlines()[-1])
        assert summary["weight_units_total"] == summary["weight_units_expected"]

        told = json.loads(rumor("audit", out, "--roster", roster, "--json").splitlines()[-1])
        assert told["sound"] and told["forged"] == 0
        worth = {each["peer"]: each["worth_units"] for each in told["peers"]}
        held = {each["id"]: each["weight_units"] for each in summary["peers_detail"]}
        assert worth == held
        assert "sound:" in rumor("audit", out, "--roster", roster)

        # One line of a book is changed: its signature does not fit any more.
        (path, *_) = sorted(out.glob("peers/peer-0/receipts.*.json"))
        book = json.loads(path.read_text())
        book["statements"][0][5] += 1
        path.write_text(json.dumps(book))
        told = rumor("audit", out, "--roster", roster, status=1)
        assert "NOT sound" in told and "1 forged" in told


def test_receipts_need_keys_and_founders(tmp_path: Path) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, stack)
        run.machine("m1")
        assert "give key and roster" in rumor("peer", "--receipts", status=2)
        keys = ("--key", tmp_path / "m1.key", "--roster", run.roster("m1"))
        assert "names no founders" in rumor("peer", "--receipts", *keys, status=2)


@pytest.mark.extended
def test_a_swarm_that_runs_is_audited_by_one_that_is_no_member(tmp_path: Path) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, stack)
        for name in ("m1", "m2", "m3"):
            run.machine(name)
        roster = run.roster("m1")
        rumor("roster", "found", roster, "ada.m1,ada.m2", "--key", tmp_path / "ada.key")
        address = f"127.0.0.1:{free_port()}"
        more = ("--founders", 2, "--p", 1, "--receipts", "--steps", ENDLESS, "--no-shared-memory")
        one = run.start("m1", "--bind", address, *more, roster="m1")
        two = run.start("m2", "--join", address, *more, roster="m1")
        two.says("met ada.m1")
        words = ("audit", address, "--roster", roster, "--key", tmp_path / "m3.key", "--json")

        def audit() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(rumor(*words).splitlines()[-1])
            return found

        # A busy swarm adds up at any time, and nobody has met the one that asks.
        def have_met() -> bool:
            ended = CliRunner().invoke(app, [str(word) for word in words])
            if ended.exit_code:
                return False  # they belong to no swarm yet
            peers = json.loads(ended.output.splitlines()[-1])["peers"]
            return len(peers) == 2 and all(each["got_units"] for each in peers)

        until(have_met)
        for _ in range(5):
            told = audit()
            assert told["sound"] and told["silent"] == []
            assert [each["peer"] for each in told["peers"]] == ["ada.m1", "ada.m2"]
            assert sum(each["worth_units"] for each in told["peers"]) == told["endowment_units"]
        assert "ada.m3" not in one.log + two.log


def test_a_script_of_ones_own_has_receipts_by_an_option_of_run(tmp_path: Path) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, stack)
        run.machine("m1", "--name", "peer-*")
        roster = run.roster("m1")
        rumor("roster", "found", roster, "peer-0,peer-1", "--key", tmp_path / "ada.key")
        script, out = tmp_path / "mine.py", tmp_path / "out"
        script.write_text(SCRIPT)
        keys = ("--key", tmp_path / "m1.key", "--roster", roster, "--receipts")
        rumor("run", "-n", 2, "--p", "1", "--out", out, *keys, "--", script)
        told = json.loads(rumor("audit", out, "--roster", roster, "--json").splitlines()[-1])
        assert told["sound"] and len(told["peers"]) == 2
        assert all(each["got_units"] for each in told["peers"])
