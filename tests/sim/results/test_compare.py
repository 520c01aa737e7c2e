"""A live run beside a simulation: which figures are compared, and what counts as agreeing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim.results.compare import Figure, put_side_by_side
from rumor.sim.results.live_run import LiveRun, read_live_run
from rumor.sim.results.run import Run

from ..live_folders import leave_run

PACES = (0.1, 0.1, 0.1, 0.3)


def live_run(folder: Path, **options: Any) -> LiveRun:
    return read_live_run(leave_run(folder, PACES, **options))


def simulated(**changes: Any) -> Run:
    """What a perfect simulation of `live_run` leaves."""
    time_s = np.linspace(0.0, 30.0, 301)
    steps = (300.0 * 3 + 100.0) / 4 * time_s / 30
    accuracy = np.minimum(0.95, np.median([time_s / 10, time_s / 10, time_s / 30], axis=0))
    series = {
        "time_s": time_s,
        "steps": steps,
        "bytes_sent": 1000 * 4 * steps,
        "accuracy_quantiles": np.repeat(accuracy[:, None], 5, axis=1),
        "consensus_distance": np.full(301, 0.1),
    }
    summary = {"workers": 4, "accuracy": 0.96, "loss": 0.1, "task": "digits", "seed": 1}
    return Run(
        summary=summary, series=series | changes, workers={"steps": np.array([300, 300, 300, 100])}
    )


def figures(live: LiveRun, other: Run, **arguments: Any) -> dict[str, Figure]:
    found = put_side_by_side(live, other, **arguments).figures
    return {figure.name: figure for figure in found}


def test_a_perfect_simulation_agrees_in_everything(tmp_path: Path) -> None:
    found = put_side_by_side(live_run(tmp_path / "run"), simulated(), tolerance=0.11)
    assert found.agrees
    assert found.seconds == pytest.approx(30.0)
    names = [figure.name for figure in found.figures if figure.judged]
    assert names == [
        *("steps/s", "bytes/s without membership"),
        *(f"steps/s of peer-{index}" for index in range(4)),
        "time to 0.9",
    ]


def test_rates_are_of_the_stretch_in_which_all_trained(tmp_path: Path) -> None:
    found = figures(live_run(tmp_path / "run"), simulated())
    assert found["steps/s"].live == pytest.approx(1000 / 30)
    assert found["steps/s"].ratio == pytest.approx(1.0)
    assert found["steps/s of peer-3"].live == pytest.approx(100 / 30)


def test_members_that_a_simulation_gossips_about_are_told_apart_too(tmp_path: Path) -> None:
    perfect = simulated()
    told = 100 * 4 * perfect.series["steps"]
    sent = perfect.series["bytes_sent"] + told
    found = figures(live_run(tmp_path / "run"), simulated(bytes_sent=sent, membership_bytes=told))
    assert found["bytes/s"].ratio == pytest.approx(1.0)
    assert found["bytes/s without membership"].ratio == pytest.approx(1.0)


def test_the_time_to_an_accuracy_is_that_of_the_median_peer(tmp_path: Path) -> None:
    found = figures(live_run(tmp_path / "run"), simulated(), target=0.5)["time to 0.5"]
    # Peers 0 to 2 come to 0.5 after 50 steps of 0.1 s, and peer 3 after 15 s.
    assert found.live == pytest.approx(5.0, abs=0.01)
    assert found.simulated == pytest.approx(5.0, abs=0.01)


def test_who_never_gets_there_is_not_within_anything(tmp_path: Path) -> None:
    live = live_run(tmp_path / "run")
    never = np.full((301, 5), 0.5)
    found = put_side_by_side(live, simulated(accuracy_quantiles=never))
    assert not found.agrees
    figure = next(figure for figure in found.figures if figure.name == "time to 0.9")
    assert (figure.simulated, figure.ratio, figure.agrees(0.2)) == (None, None, False)


def test_where_neither_gets_there_nothing_is_said_against_it(tmp_path: Path) -> None:
    found = put_side_by_side(live_run(tmp_path / "run"), simulated(), target=0.99, tolerance=0.11)
    figure = next(figure for figure in found.figures if figure.name == "time to 0.99")
    assert (figure.live, figure.simulated, figure.agrees(0.2)) == (None, None, None)
    assert found.agrees


def test_the_tolerance_is_a_part_of_the_live_figure() -> None:
    figure = Figure(name="steps/s", unit="1/s", live=10.0, simulated=12.0)
    assert figure.agrees(0.2)
    assert not figure.agrees(0.19)
    assert replace(figure, simulated=8.0).agrees(0.2)
    assert not replace(figure, simulated=7.9).agrees(0.2)


def test_rates_of_peers_are_left_out_where_all_take_as_many_steps(tmp_path: Path) -> None:
    other = replace(simulated(), workers={"steps": np.array([300] * 4)})
    assert "steps/s of peer-0" not in figures(live_run(tmp_path / "run"), other)


def test_how_far_apart_models_were_is_judged_where_sketches_tell(tmp_path: Path) -> None:
    live = live_run(tmp_path / "run")
    found = put_side_by_side(live, simulated(), live_consensus=9.0)
    figure = next(figure for figure in found.figures if figure.name == "consensus distance")
    assert (figure.live, figure.judged) == (9.0, True)
    assert figure.simulated == pytest.approx(0.1)
    assert not found.agrees
    assert put_side_by_side(live, simulated(), live_consensus=0.11).agrees
    assert not figures(live, simulated())["consensus distance"].judged


def test_other_settings_are_named(tmp_path: Path) -> None:
    live = live_run(tmp_path / "run", seed=7, topology="ring")
    told = {"topology": "exponential", "p": 0.5}
    other = simulated()
    found = put_side_by_side(live, replace(other, summary={**other.summary, **told}))
    assert found.differences == (
        "topology is 'exponential' in the simulation, and was 'ring'",
        "p is 0.5 in the simulation, and was 0.1",
        "seed is 1 in the simulation, and was 7",
    )


def test_a_rule_that_cuts_the_vector_itself_is_no_difference(tmp_path: Path) -> None:
    # What was typed is one shard.
    live = live_run(tmp_path / "run", rule="divshare", shards=1)
    other = simulated()
    summary = {**other.summary, "rule": "divshare", "shards": 10, "p": None}
    assert put_side_by_side(live, replace(other, summary=summary)).differences == ()


def test_a_topology_that_cannot_be_made_again_is_passed_over(tmp_path: Path) -> None:
    live = live_run(tmp_path / "run", topology="file:path=gone.json")
    other = simulated()
    other = replace(other, summary={**other.summary, "topology": "ring"})
    assert put_side_by_side(live, other).differences == ()


def test_runs_of_different_sizes_are_not_compared(tmp_path: Path) -> None:
    other = replace(simulated(), summary={"workers": 64})
    with pytest.raises(ConfigError, match="is of 4 peers, and the simulation of 64 workers"):
        put_side_by_side(live_run(tmp_path / "run"), other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": 0.0}, "target is 0"),
        ({"target": 1.5}, "target is 1.5"),
        ({"tolerance": 0.0}, "tolerance is 0"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    tmp_path: Path, arguments: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        put_side_by_side(live_run(tmp_path / "run"), simulated(), **arguments)


def test_as_json_it_is_strict(tmp_path: Path) -> None:
    found = put_side_by_side(live_run(tmp_path / "run"), simulated(), target=0.99)
    text = json.dumps(found.as_json(), allow_nan=False)
    assert json.loads(text)["figures"][0]["name"] == "steps/s"
