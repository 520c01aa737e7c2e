"""``rumor simulate --against``: a live run and a simulation of it, side by side."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rumor.sim.results.run import Run

from ...forked import forked_peers
from ...sim.live_folders import leave_run
from ...sim.made_up import made_up
from ..called import called

PACES = (0.1, 0.1, 0.1, 0.3)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return leave_run(tmp_path / "live", PACES)


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Simulate a run that is just as fast as `live`, and at 0.9 when it is."""
    run = made_up(workers=4, points=301)
    time_s = np.linspace(0.0, 30.0, 301)
    steps = 25 / 3 * time_s / 1.0
    accuracy = np.minimum(0.95, time_s / 10)
    series = dict(run.series) | {
        "time_s": time_s,
        "steps": steps,
        "bytes_sent": 4400 * steps,
        # What the sketches of `live` say.
        "consensus_distance": np.full(301, 0.35),
        "accuracy": accuracy,
        "accuracy_quantiles": np.repeat(accuracy[:, None], 5, axis=1),
    }
    workers = dict(run.workers) | {"steps": np.array([300, 300, 300, 100])}
    whole = Run(summary=run.summary | {"seed": 1}, series=series, workers=workers)
    monkeypatch.setattr("rumor.cli.commands.simulate._run", lambda config: whole)

    def compare(live: Path, *options: str) -> Any:
        out = ("--set=plot=false", "--out", str(tmp_path / "sim"), *options)
        return called("simulate", "-n", "4", "--against", live, *out)

    return compare


def test_runs_that_agree_are_said_to(live: Path, compare: Callable[..., Any]) -> None:
    shown = compare(live)
    assert shown.exit_code == 0, shown.output
    assert "All within 20 %." in shown.stdout
    assert "Rates are of the first 30 s, in which all trained." in shown.stdout
    for name in ("steps/s of peer-3", "bytes/s without membership", "consensus distance"):
        assert name in shown.stdout


def test_runs_that_do_not_agree_end_with_status_1_and_say_where(
    tmp_path: Path, compare: Callable[..., Any]
) -> None:
    shown = compare(leave_run(tmp_path / "slower", (0.1, 0.1, 0.1, 0.5)))
    assert shown.exit_code == 1
    assert "Not within 20 %: steps/s of peer-3." in shown.stdout


def test_an_accuracy_that_is_never_reached_is_said_so(
    live: Path, compare: Callable[..., Any]
) -> None:
    shown = compare(live, "--set", "time_to=0.99")
    assert shown.exit_code == 0
    row = next(line for line in shown.stdout.splitlines() if line.startswith("time to 0.99"))
    assert row.split()[3:5] == ["never", "never"]


def test_as_json_it_is_part_of_one_object(live: Path, compare: Callable[..., Any]) -> None:
    said = json.loads(compare(live, "--json").stdout)["comparison"]
    assert said["agrees"] is True
    by_name = {figure["name"]: figure for figure in said["figures"]}
    assert by_name["steps/s"]["ratio"] == pytest.approx(1.0)
    assert by_name["consensus distance"]["live"] is not None


@pytest.mark.extended
@pytest.mark.live
def test_from_real_peers_to_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pace = ["--set", "step_s_min=0.02", "--slow", "1:10", "--set", "eval_every=5"]
    against = ["--against", "live", "--set", "time_to=0.5", "--json"]
    for command in (
        ["launch", "-n", "2", "--total-steps", "120", *pace, "--out", "live", "--json"],
        ["calibrate", "live", "-o", "peers.json"],
        ["simulate", "--from", "peers.json", "--set=plot=false", "--out", "sim", *against],
    ):
        with forked_peers():
            done = called(*command)
    # However busy this machine is: how far off that makes a prediction is for a person to judge.
    said = json.loads(done.stdout)["comparison"]
    by_name = {figure["name"]: figure for figure in said["figures"]}
    assert said["differences"] == []
    assert by_name["steps/s of peer-0"]["simulated"] > by_name["steps/s of peer-1"]["simulated"]
    for name in ("steps/s", "bytes/s", "time to 0.5", "consensus distance", "final accuracy"):
        assert by_name[name]["live"] > 0
        assert by_name[name]["simulated"] > 0
