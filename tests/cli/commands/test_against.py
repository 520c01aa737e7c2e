"""``rumor simulate --against``: a live run and a simulation of it, side by side."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rumor.sim.results.run import Run

from ...forked import forked_peers
from ...sim.live_folders import leave_run
from ...sim.made_up import made_up
from ...sim.results.test_compare import simulated
from ..called import called


def test_the_exit_status_and_the_table_report_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, perfect = made_up(workers=4, points=301), simulated()
    distances = {"consensus_distance": np.full(301, 0.35)}
    whole = Run(
        summary=run.summary | {"seed": 1},
        series={**run.series, **perfect.series, **distances},
        workers={**run.workers, **perfect.workers},
    )
    monkeypatch.setattr("rumor.cli.commands.simulate._run", lambda config: whole)

    def compare(live: Path, *options: str, out: str = "sim") -> Any:
        more = ("--set=plot=false", "--out", str(tmp_path / out), *options)
        return called("simulate", "-n", "4", "--against", live, *more)

    shown = compare(leave_run(tmp_path / "live", (0.1, 0.1, 0.1, 0.3)), "--set", "time_to=0.99")
    assert shown.exit_code == 0, shown.output
    assert "All within 20 %." in shown.stdout
    assert "Rates are of the first 30 s, in which all trained." in shown.stdout
    for name in ("steps/s", "bytes/s without membership", "consensus distance"):
        assert name in shown.stdout
    row = next(line for line in shown.stdout.splitlines() if line.startswith("time to 0.99"))
    assert row.split()[3:5] == ["never", "never"]
    comparison = json.loads(compare(tmp_path / "live", "--json", out="again").stdout)["comparison"]
    (rate,) = (each for each in comparison["figures"] if each["name"] == "steps/s")
    assert comparison["agrees"] is rate["agrees"] is True and rate["ratio"] == pytest.approx(1.0)
    shown = compare(leave_run(tmp_path / "slower", (0.2, 0.2, 0.2, 0.3)), out="other")
    assert shown.exit_code == 1
    assert "Not within 20 %: steps/s, bytes/s without membership" in shown.stdout


@pytest.mark.extended
@pytest.mark.live
def test_a_real_run_is_compared_with_its_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # On a busy machine the prediction may be off; no agreement is asserted.
    comparison = json.loads(done.stdout)["comparison"]
    by_name = {figure["name"]: figure for figure in comparison["figures"]}
    assert comparison["differences"] == []
    for name in ("steps/s", "bytes/s without membership", "time to 0.5", "consensus distance"):
        assert by_name[name]["live"] > 0
        assert by_name[name]["simulated"] > 0
