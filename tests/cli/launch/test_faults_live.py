"""Faults on real peers, started by the command: whatever is done, no weight is lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app

pytestmark = pytest.mark.live

QUICK = ("--step-s-min", "0.01", "--timing", "local", "--leave-s", "2")


def run(folder: Path, *options: str, faults: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary of a run to which this is done."""
    path = folder / "faults.json"
    path.write_text(json.dumps(faults))
    # The launcher is this process: one less that loads torch.
    command = ["launch", "--json", "--peers", "3", "--out", str(folder / "run")]
    done = CliRunner().invoke(app, [*command, *QUICK, *options, "--faults", str(path)])
    assert done.exit_code == 0, done.output
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def is_exact(summary: dict[str, Any]) -> bool:
    """Whether every unit that was founded is accounted for, in the ledgers of all lives."""
    ledger = summary["ledger"]
    found = sum(units for name, units in ledger.items() if name != "founded")
    same: bool = summary["weight_units_total"] == summary["weight_units_expected"]
    return same and found == ledger["founded"] >= 3 * 2**40


def test_a_peer_that_is_killed_and_resumes_trains_on_and_no_unit_is_missing(
    tmp_path: Path,
) -> None:
    summary = run(
        # However slow this machine is, there is a checkpoint in a second.
        *(tmp_path, "--steps", "250", "--checkpoint-every", "5steps"),
        faults=[
            {"at_s": 1.0, "kind": "crash", "peer": 1},
            {"at_s": 1.1, "kind": "restart", "peer": 1},
        ],
    )
    assert is_exact(summary)
    again = summary["peers_detail"][1]
    assert (again["state"], again["lives"], again["steps"]) == ("finished", 2, 250)
    assert [(dead["id"], dead["life"]) for dead in summary["dead"]] == [("peer-1", 1)]
    log = (tmp_path / "run" / "peers" / "peer-1" / "log.txt").read_text()
    assert "resuming peer-1 after" in log
    assert summary["accuracy"] > 0.85


@pytest.mark.slow
def test_a_cut_one_way_that_heals_costs_nothing_but_time(tmp_path: Path) -> None:
    summary = run(
        *(tmp_path, "--steps", "250"),
        faults=[
            {"at_s": 0.2, "kind": "cut", "peer": 0, "to": 1, "one_way": True, "for_s": 1.0},
            {"at_s": 0.2, "kind": "delay", "by_s": 0.01},
        ],
    )
    assert is_exact(summary)
    assert [peer["state"] for peer in summary["peers_detail"]] == ["finished"] * 3
    assert [len(fault["done"]) for fault in summary["faults"]] == [2, 1]
    assert summary["exchange"]["no_shared_memory"] and summary["accuracy"] > 0.85


@pytest.mark.slow
def test_resets_every_200_ms_and_losses_are_survived(tmp_path: Path) -> None:
    summary = run(
        *(tmp_path, "--steps", "250"),
        faults=[
            {"at_s": 0, "kind": "reset", "every_s": 0.2, "for_s": 3},
            {"at_s": 0, "kind": "loss", "rate": 0.1, "for_s": 2},
            {"at_s": 0, "kind": "duplicate", "rate": 0.1, "for_s": 3},
        ],
    )
    assert is_exact(summary)
    assert "finished" in {peer["state"] for peer in summary["peers_detail"]}
    (reset, *_) = summary["faults"]
    assert "connections are reset" in reset["done"][0]["what"]
    assert summary["accuracy"] > 0.85
