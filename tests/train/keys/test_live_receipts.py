"""Real peers whose weight is signed for, and audits of what they leave."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from .test_live_keys import Run, rumor

pytestmark = pytest.mark.live


def test_a_run_with_receipts_is_sound_and_everybody_holds_what_it_is_worth(tmp_path: Path) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, stack)
        run.machine("m1", "--name", "peer-*")
        roster, out = run.roster("m1"), tmp_path / "run"
        names = "peer-0,peer-1,peer-2"
        rumor("roster", "found", roster, names, "--key", tmp_path / "ada.key")
        keys = ("--key", tmp_path / "m1.key", "--roster", roster)
        words = ("-n", 3, "--task", "quadratic", "--steps", 150, "--out", out, "--json")
        summary = json.loads(rumor("launch", *words, *keys, "--receipts").splitlines()[-1])
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
