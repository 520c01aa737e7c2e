"""``rumor demo``: what it says of a race, and a short one with real processes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.commands.demo import _compared, _reached_s, _spans
from rumor.sim.results.live_plots import Contestant, Event, LifeLine, draw_race

from ...forked import forked_peers


def test_a_lucky_evaluation_is_no_success() -> None:
    times_s = [float(second) for second in range(6)]
    assert _reached_s(times_s, [0.1, 0.9, 0.2, 0.8, 0.8, 0.8], 0.8) == 5.0
    assert _reached_s(times_s, [0.1, 0.9, 0.2, 0.8, 0.7, 0.8], 0.8) is None
    assert _reached_s(times_s[:2], [0.9, 0.9], 0.8) is None


def test_who_is_faster_is_said_whoever_it_is() -> None:
    assert _compared("It", 20.0, 10.0) == "It took 20.0 s: 2.0 times as long."
    assert _compared("It", 8.0, 10.0) == "It was faster: it took 8.0 s."
    assert _compared("It", 8.0, None) == "It was faster: it took 8.0 s."
    assert _compared("It", None, 8.0) == "It did not get there within this run."


def test_a_life_ends_where_the_peer_is_killed_and_begins_with_its_first_row() -> None:
    rows_s = [0.5, 1.0, 1.5, 5.0, 6.0]
    assert _spans(rows_s, [1.7], [3.0]) == [(0.5, 1.7), (5.0, 6.0)]
    assert _spans(rows_s[:3], [1.7], []) == [(0.5, 1.7)]
    assert _spans(rows_s, [], []) == [(0.5, 6.0)]
    assert _spans([], [1.0], []) == []


@pytest.mark.extended
def test_a_race_is_drawn_also_where_somebody_never_arrives(tmp_path: Path) -> None:
    def contestant(name: str, reached_s: float | None) -> Contestant:
        return Contestant(
            name=name, times_s=[0.0, 1.0], losses=[2.0, 1.0], accuracies=[0.1, 0.9],
            reached_s=reached_s,
        )  # fmt: skip

    events = [Event(0.5, "killed"), Event(0.8, "back from its checkpoint")]
    line = LifeLine(name="peer-0", spans_s=[(0.0, 0.5), (0.8, 1.0)], events=events)
    both = [contestant("rumor", 1.0), contestant("one machine", None)]
    draw_race(both, [line], 0.88, "A race", "Weight is exact.", tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", f"--out={tmp_path / 'run'}", "--seconds=0"])
    assert result.exit_code == 2 and "seconds is 0" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.extended
@pytest.mark.live
def test_three_swarms_train_side_by_side_and_weight_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rumor.cli.commands.demo.TARGET", 0.05)
    options = ["--seconds=5", f"--out={tmp_path / 'run'}", "--json"]
    with forked_peers():
        told = CliRunner().invoke(app, ["demo", *options])
    assert told.exit_code == 0, told.stderr
    summary = json.loads(told.stdout)
    swarm = summary["swarms"]["rumor"]
    assert swarm["weight_units_total"] == swarm["weight_units_expected"]
    assert {fault["kind"]: len(fault["done"]) for fault in swarm["faults"]} == {
        **{"join": 1, "crash": 1, "restart": 1},
    }
    assert all(reached_s > 0 for reached_s in summary["reached_s"].values())
    assert [peer["lives"] for peer in swarm["peers_detail"]] == [1, 2, 1, 1, 1]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *("rumor", "one-machine", "allreduce", "summary.json", "demo.png"),
    }
