"""Files of `rumor calibrate`: how a simulation uses them, and which are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim import SimulationConfig
from rumor.sim.calibration import (
    Calibration,
    PeerPace,
    calibrate,
    differences,
    read_calibration,
)
from rumor.sim.models.network import PRESETS
from rumor.sim.models.step_time import make_step_time
from rumor.sim.results.live_run import read_live_run

from ..live_folders import leave_peer, rows_of

STEPS_S = (0.1021, 0.1, 0.3001)


def paces(cv: float = 0.0) -> tuple[PeerPace, ...]:
    return tuple(
        PeerPace(id=f"peer-{index}", step_s=step_s, step_s_cv=cv, steps=100)
        for index, step_s in enumerate(STEPS_S)
    )


def measured(**changes: Any) -> Calibration:
    given: dict[str, Any] = {"source": "runs/x", "peers": paces(), "settings": {"rule": "sgp"}}
    return Calibration(**given | changes)


def test_a_file_round_trips(tmp_path: Path) -> None:
    first = measured(network=PRESETS["wan"], notes=("all is well",))
    first.write(tmp_path / "a.json")
    assert read_calibration(tmp_path / "a.json") == first


def test_each_worker_steps_at_the_pace_of_its_peer() -> None:
    config = SimulationConfig(**measured().simulation())
    ids = [f"peer-{worker}" for worker in range(config.workers)]
    pace = make_step_time(config.pace, ids=ids, step_s=config.step_s, slow=config.slow, seed=0)
    found = [pace.mean_s(worker) for worker in range(config.workers)]
    assert found == pytest.approx(STEPS_S, rel=1e-5)
    assert config.rule == "sgp"


def test_more_workers_than_peers_take_their_paces_in_turn() -> None:
    found = measured().simulation(workers=7)
    assert found["workers"] == 7
    slow = {text.partition(":")[0]: text.partition(":")[2] for text in found["slow"]}
    assert slow == {"0": "1.021", "2": "3.001", "3": "1.021", "5": "3.001", "6": "1.021"}


def test_step_times_vary_as_measured_unless_the_variation_is_negligible() -> None:
    assert measured(peers=paces(cv=0.2)).simulation()["pace"] == "lognormal:cv=0.2"
    assert measured(peers=paces(cv=0.004)).simulation()["pace"] == "constant"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rumor_calibration": 99}, "is of format 99: this rumor reads 1"),
        ({"peers": []}, "needs the pace of one peer at least"),
        ({"peers": "many"}, "peers is 'many': it must be a list"),
        ({"peers": [{"id": "a"}]}, r"peers\[0\] needs step_s"),
        ({"peers": [{"id": "a", "step_s": 0}]}, r"peers\[0\]: step_s is 0: it must be above 0"),
        ({"peers": [{"id": "a", "step_s": 1, "step_s_cv": -1}]}, "step_s_cv is -1"),
        ({"peers": [{"id": "", "step_s": 1}]}, "id is empty"),
        ({"settings": {"leraning": 1}}, "settings has 'leraning', which is not a setting"),
        ({"settings": {"workers": 4}}, "settings has 'workers'"),
        ({"settings": 3}, "settings is 3: it must be an object"),
        ({"settings": {"lr": "0.1"}}, "lr is '0.1': it must be a number"),
        ({"settings": {"time_s": 10**400}}, "a number of 401 digits, is too large"),
        ({"network": {"latncy_s": 1}}, "did you mean 'latency_s'"),
        ({"network": 3}, "network is 3: it must be an object, or the name of a network"),
    ],
)
def test_an_invalid_file_is_refused_with_its_path_and_key(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(measured().as_json() | changes))
    with pytest.raises(ConfigError, match=message) as caught:
        read_calibration(path)
    assert str(path) in str(caught.value)


def test_other_files_are_refused_and_a_network_may_be_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    wrong = {"{": "is not JSON", "[]": "is not a JSON object", "{}": "rumor calibrate -o FILE"}
    for text, message in wrong.items():
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_calibration(path)
    path.write_text(json.dumps(measured().as_json() | {"network": "wan"}))
    assert read_calibration(path).network == PRESETS["wan"]


def test_the_cost_of_exchanges_is_separated_from_the_step_time(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    pushes, time_s = 0, 0.0
    for number in range(20):
        pushes += number % 4
        # Ten steps of 50 ms, of which the exchange takes 1 ms anyhow, and 20 ms for each push.
        exchange_s = 0.001 + 0.02 * (number % 4) / 10
        time_s += 10 * (0.05 + exchange_s)
        own = {"own_s": 0.05, "own_s_sd": 0.0, "step_s": 0.05 + exchange_s, "step_s_sd": 0.0}
        moment = {"step": 10 * number + 10, "time_s": time_s, "unix_s": 1e9 + time_s}
        rows.append(moment | own | {"pushes": pushes, "mixed": 0})
    leave_peer(tmp_path / "peers" / "a", rows)
    (peer,) = calibrate(read_live_run(tmp_path)).peers
    assert peer.exchange_s == pytest.approx(0.02)
    assert peer.step_s == pytest.approx(0.051)
    leave_peer(tmp_path / "asleep" / "peers" / "a", rows, step_s_min=0.05)
    (peer,) = calibrate(read_live_run(tmp_path / "asleep")).peers
    assert peer.exchange_s == 0.0 and peer.step_s > 0.051


def test_differing_settings_are_named(tmp_path: Path) -> None:
    leave_peer(tmp_path / "peers" / "a", rows_of(0.1), seed=7, topology="ring", rule="gosgd:p=0.1")
    run = read_live_run(tmp_path)
    alike = SimulationConfig(seed=7, topology="ring", rule="gosgd", p=0.1)
    assert differences(run, alike) == []
    assert differences(run, replace(alike, topology="exponential", p=0.5, seed=1)) == [
        "topology is 'exponential' in the simulation, and was 'ring'",
        "seed is 1 in the simulation, and was 7",
        "p is 0.5 in the simulation, and was 0.1",
    ]
