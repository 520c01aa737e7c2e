"""A live run compared with a simulation: which figures are judged, and which of them agree."""

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


@pytest.fixture
def live(tmp_path: Path) -> LiveRun:
    return live_run(tmp_path / "run")


def live_run(folder: Path, **options: Any) -> LiveRun:
    return read_live_run(leave_run(folder, PACES, **options))


def simulated(settings: dict[str, Any] | None = None, **changes: Any) -> Run:
    """The result of a perfect simulation of `live_run`."""
    time_s = np.linspace(0.0, 30.0, 301)
    steps = (300.0 * 3 + 100.0) / 4 * time_s / 30
    accuracy = np.minimum(0.95, np.median([time_s / 10, time_s / 10, time_s / 30], axis=0))
    quantiles = np.repeat(accuracy[:, None], 5, axis=1)
    series = {
        "time_s": time_s,
        "steps": steps,
        "bytes_sent": 1000 * 4 * steps,
        "accuracy_quantiles": quantiles,
        "consensus_distance": np.full(301, 0.1),
    }
    summary = {"workers": 4, "accuracy": 0.96, "loss": 0.1}
    ends = {"steps": np.array([300, 300, 300, 100])}
    return Run(summary=summary | (settings or {}), series=series | changes, workers=ends)


def figures(live: LiveRun, other: Run, **arguments: Any) -> dict[str, Figure]:
    found = put_side_by_side(live, other, **arguments).figures
    return {figure.name: figure for figure in found}


def test_a_perfect_simulation_agrees_in_everything(live: LiveRun) -> None:
    found = put_side_by_side(live, simulated(), tolerance=0.11)
    assert found.agrees
    assert found.seconds == pytest.approx(30.0)
    named = {figure.name: figure for figure in found.figures}
    assert [*named] == ["steps/s", "bytes/s without membership", "time to 0.9"]
    # Rates cover the time in which all peers trained.
    assert named["steps/s"].live == pytest.approx(1000 / 30)
    assert named["steps/s"].ratio == pytest.approx(1.0)


def test_membership_bytes_of_a_simulation_are_separated_too(live: LiveRun) -> None:
    membership = 100 * 4 * simulated().series["steps"]
    sent = simulated().series["bytes_sent"] + membership
    found = figures(live, simulated(bytes_sent=sent, membership_bytes=membership))
    assert found["bytes/s without membership"].ratio == pytest.approx(1.0)


def test_bytes_include_membership_where_a_live_run_does_not_tell_it_apart(live: LiveRun) -> None:
    for peer in live.peers:
        for row in peer.rows:
            row.pop("membership_bytes")  # type: ignore[attr-defined]
    sent = simulated().series["bytes_sent"]
    found = figures(live, simulated(bytes_sent=2 * sent, membership_bytes=sent))
    assert found["bytes/s"].simulated == pytest.approx(2 * sent[-1] / 30)


def test_the_time_to_an_accuracy_is_that_of_the_median_peer(live: LiveRun) -> None:
    found = figures(live, simulated(), target=0.5)["time to 0.5"]
    # Peers 0 to 2 reach 0.5 after 50 steps of 0.1 s, and peer 3 after 15 s.
    assert (found.live, found.simulated) == pytest.approx((5.0, 5.0), abs=0.01)
    # If only one run reaches the target, the figure disagrees; if no run does, it is not judged.
    never = put_side_by_side(live, simulated(accuracy_quantiles=np.full((301, 5), 0.5)))
    (figure,) = (each for each in never.figures if each.name == "time to 0.9")
    assert (figure.simulated, figure.ratio, figure.agrees(0.2)) == (None, None, False)
    assert not never.agrees
    neither = put_side_by_side(live, simulated(), target=0.99, tolerance=0.11)
    (figure,) = (each for each in neither.figures if each.name == "time to 0.99")
    assert (figure.live, figure.simulated, figure.agrees(0.2)) == (None, None, None)
    assert neither.agrees


def test_the_tolerance_is_a_fraction_of_the_live_figure() -> None:
    figure = Figure(name="steps/s", unit="1/s", live=10.0, simulated=12.0)
    assert figure.agrees(0.2)
    assert not figure.agrees(0.19)
    assert replace(figure, simulated=8.0).agrees(0.2)
    assert not replace(figure, simulated=7.9).agrees(0.2)


def test_the_consensus_distance_is_judged_if_it_was_measured_live(live: LiveRun) -> None:
    found = put_side_by_side(live, simulated(), live_consensus=9.0)
    (figure,) = (each for each in found.figures if each.name == "consensus distance")
    assert figure.live == 9.0 and figure.simulated == pytest.approx(0.1)
    assert not found.agrees
    assert put_side_by_side(live, simulated(), live_consensus=0.11).agrees


def test_runs_with_different_numbers_of_peers_are_refused(live: LiveRun) -> None:
    with pytest.raises(ConfigError, match="is of 4 peers, and the simulation of 64 workers"):
        put_side_by_side(live, simulated({"workers": 64}))


def test_as_json_gives_strict_json(live: LiveRun) -> None:
    found = put_side_by_side(live, simulated(), target=0.99)
    text = json.dumps(found.as_json(), allow_nan=False)
    assert json.loads(text)["figures"][0]["name"] == "steps/s"
