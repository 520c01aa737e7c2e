"""``rumor advise``: what it prints of candidates, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rumor.sim.calibration as calibration
from rumor.cli.app import app
from rumor.sim.calibration import Advice, Calibration, Candidate, PeerPace

GOOD = Candidate(rule="gosgd:p=0.1")
BAD = Candidate(rule="diloco:h=20", topology="complete")
ODD = Candidate(rule="sgp", wire="topk2bit:0.1")


def told(*advice: Advice) -> tuple[float, list[Advice]]:
    return 0.25, list(advice)


def rumor(
    file: Path, monkeypatch: pytest.MonkeyPatch, found: Any, *arguments: str
) -> tuple[int, str, str]:
    def fake(_: Calibration, **settings: Any) -> Any:
        settings["tell"](1, 2, "--rule sgp")
        return found

    monkeypatch.setattr(calibration, "advise", fake)
    result = CliRunner().invoke(app, ["advise", str(file), *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    peers = (PeerPace(id="a", step_s=0.1), PeerPace(id="b", step_s=0.1))
    path = tmp_path / "measured.json"
    Calibration(source="x", peers=peers, notes=("a note",)).write(path)
    return path


def test_the_best_come_with_their_commands(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Advice(candidate=GOOD, times_s=(2.0, 3.0), loss=0.2, bytes_sent=3e6)
    second = Advice(candidate=GOOD, times_s=(3.0, 4.0), p=0.4, loss=0.2, bytes_sent=3e6)
    late = Advice(candidate=BAD, loss=0.9, bytes_sent=1e6)
    odd = Advice(candidate=ODD, why="only for rules that keep what was lost")
    status, text, errors = rumor(file, monkeypatch, told(first, second, late, odd))
    assert status == 0 and "note: a note" in errors
    lines = text.splitlines()
    assert "digits on 2 peers, until a loss of 0.25" in lines[0]
    assert "2.5 s" in lines[2] and "never" in lines[4] and "only for rules" in text
    command = "rumor launch -n 2 --task digits --rule gosgd:p=0.1 --topology exponential"
    assert lines[-3:-1] == [command, command]
    assert "0.4" in lines[3] and lines[-1].startswith("No significant difference from the best:")


def test_json_has_it_all(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Advice(candidate=GOOD, times_s=(2.0, 3.0), loss=0.2, bytes_sent=3e6)
    _, text, _ = rumor(file, monkeypatch, told(first), "--json")
    found = json.loads(text)
    assert found["target"] == 0.25 and found["advice"][0]["candidate"]["rule"] == "gosgd:p=0.1"
    assert found["advice"][0]["time_s"] == 2.5


def test_nobody_gets_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Advice(candidate=BAD, loss=0.9, bytes_sent=1e6)
    status, _, errors = rumor(file, monkeypatch, told(late))
    assert status == 1 and "no candidate came to a loss of 0.25" in errors


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["advise", str(tmp_path / "none.json")])
    assert result.exit_code == 2 and "none.json does not exist" in result.stderr
