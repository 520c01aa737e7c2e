"""What is read of the folders of real peers, and the pace that follows from it."""

import json
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim.calibration import calibrate
from rumor.sim.models.network import PRESETS, NetworkConfig
from rumor.sim.results.live_run import read_live_run

from ..live_folders import leave_peer, leave_run, rows_of

PACES = (0.1, 0.1, 0.1, 0.3)


def test_peers_of_a_launch_come_in_the_order_of_their_data(tmp_path: Path) -> None:
    run = read_live_run(leave_run(tmp_path / "run", PACES))
    assert [peer.id for peer in run.peers] == ["peer-0", "peer-1", "peer-2", "peer-3"]
    assert run.summary is not None
    assert run.summary["accuracy"] == 0.95


def test_one_peer_is_a_run_and_so_is_a_folder_of_several(tmp_path: Path) -> None:
    leave_peer(tmp_path / "all" / "ada", rows_of(0.1), index=1)
    leave_peer(tmp_path / "all" / "bob", rows_of(0.2), index=0)
    assert [peer.id for peer in read_live_run(tmp_path / "all").peers] == ["bob", "ada"]
    assert [peer.id for peer in read_live_run(tmp_path / "all" / "ada").peers] == ["ada"]


def test_counts_are_of_the_moment_that_is_asked_for(tmp_path: Path) -> None:
    run = read_live_run(leave_run(tmp_path / "run", PACES))
    assert [run.steps(peer, 12.0) for peer in run.peers] == pytest.approx([120, 120, 120, 40])
    assert run.count("bytes_sent", 12.0) == pytest.approx(1100 * 400)
    assert run.count("membership_bytes", 12.0) == pytest.approx(100 * 400)


def test_all_train_until_the_first_has_finished(tmp_path: Path) -> None:
    run = read_live_run(leave_run(tmp_path / "run", PACES, steps=[100, 200, 200, 100]))
    assert run.trained_s == pytest.approx(10.0)


def test_who_was_killed_does_not_end_the_stretch(tmp_path: Path) -> None:
    leave_peer(tmp_path / "ada", rows_of(0.1, 50), index=0, state=None)
    leave_peer(tmp_path / "bob", rows_of(0.1, 100), index=1)
    assert read_live_run(tmp_path).trained_s == pytest.approx(10.0)


def test_bytes_of_all_lives_count_and_steps_of_a_lost_one_once(tmp_path: Path) -> None:
    leave_peer(tmp_path / "peers" / "ada", rows_of(0.1, 50), state=None, id="ada")
    second = [row | {"step": row["step"] + 40} for row in rows_of(0.1, 50, since_s=20.0)]
    leave_peer(tmp_path / "peers" / "ada.life-2", second, id="ada")
    run = read_live_run(tmp_path)
    assert len(run.peers) == 1
    assert run.steps(run.peers[0], 100.0) == 90
    assert run.count("bytes_sent", 100.0) == 1100 * 100


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_what_is_no_folder_of_a_run_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not the folder of a live run: give that of"):
        read_live_run(tmp_path / name)


def test_a_run_before_its_first_step_is_refused(tmp_path: Path) -> None:
    leave_peer(tmp_path / "ada", [], state=None)
    with pytest.raises(ConfigError, match="none of its peers has taken a step yet"):
        read_live_run(tmp_path)


def test_options_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    leave_peer(tmp_path / "ada", rows_of(0.1))
    (tmp_path / "ada" / "options.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"options\.json is no JSON object"):
        read_live_run(tmp_path)


def calibrated(tmp_path: Path, **options: Any) -> Any:
    return calibrate(read_live_run(leave_run(tmp_path / "run", PACES, **options)))


def test_a_pace_is_what_passed_between_rows(tmp_path: Path) -> None:
    rows = rows_of(0.1)
    # What follows a step, such as a checkpoint, is in no step and holds up the next one.
    rows = [row | {"time_s": 1.5 * row["time_s"]} for row in rows]
    found = calibrate(read_live_run(leave_peer(tmp_path / "ada", rows)))
    assert found.peers[0].step_s == pytest.approx(0.15)
    assert found.peers[0].steps == 99


def test_the_slow_first_step_is_left_out(tmp_path: Path) -> None:
    rows = [row | {"time_s": row["time_s"] + 30} for row in rows_of(0.1)]
    found = calibrate(read_live_run(leave_peer(tmp_path / "ada", rows)))
    assert found.peers[0].step_s == pytest.approx(0.1)


def test_a_step_varies_within_rows_and_between_them(tmp_path: Path) -> None:
    rows = [row | {"step_s_sd": 0.03} for row in rows_of(0.1)]
    for index, row in enumerate(rows):
        row["step_s"] = 0.1 + (0.04 if index % 2 else -0.04)
    found = calibrate(read_live_run(leave_peer(tmp_path / "ada", rows)))
    assert found.peers[0].step_s_cv == pytest.approx(0.5, rel=0.01)


def test_settings_are_those_of_the_run(tmp_path: Path) -> None:
    found = calibrated(tmp_path, p=0.5, lr=0.03, topology="ring")
    assert found.settings["p"] == 0.5
    assert found.settings["lr"] == 0.03
    assert found.settings["topology"] == "ring"
    assert found.settings["total_steps"] == 900
    assert "steps" not in found.settings
    assert found.simulation()["workers"] == 4


def test_under_a_rule_that_waits_the_waiting_is_no_step(tmp_path: Path) -> None:
    assert [peer.step_s for peer in calibrated(tmp_path, rule="dpsgd").peers] == pytest.approx(
        [0.05, 0.05, 0.05, 0.15]
    )


def test_a_step_that_sleeps_lasts_at_least_so_long_alone(tmp_path: Path) -> None:
    found = calibrated(tmp_path, rule="allreduce", step_s_min=0.12)
    assert [peer.step_s for peer in found.peers] == pytest.approx([0.12, 0.12, 0.12, 0.15])


def test_without_its_waiting_a_pace_under_a_barrier_cannot_be_told(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k != "own_s"} for row in rows_of(0.1)]
    leave_peer(tmp_path / "ada", rows, rule="dpsgd")
    with pytest.raises(ConfigError, match="do not say how long it waited"):
        calibrate(read_live_run(tmp_path))


def test_one_row_is_no_pace(tmp_path: Path) -> None:
    leave_peer(tmp_path / "ada", rows_of(0.1)[:1])
    with pytest.raises(ConfigError, match="ada needs at least two recorded steps"):
        calibrate(read_live_run(tmp_path))


def test_peers_of_one_machine_are_simulated_without_a_network(tmp_path: Path) -> None:
    found = calibrated(tmp_path)
    assert found.network == PRESETS["ideal"]
    assert found.notes == ("all peers ran on one machine: messages take no time",)


def test_a_network_that_was_not_measured_is_called_a_guess(tmp_path: Path) -> None:
    leave_peer(tmp_path / "ada", rows_of(0.1), address="tcp://10.0.0.5:7700")
    found = calibrate(read_live_run(tmp_path))
    assert found.network == PRESETS["lan"]
    assert "lan is a guess" in found.notes[0]


def test_a_network_that_was_measured_needs_no_note(tmp_path: Path) -> None:
    run = read_live_run(leave_run(tmp_path / "run", PACES))
    network = NetworkConfig(latency_s=0.01)
    found = calibrate(run, network=network, push_mbit=200.0)
    assert (found.network, found.notes) == (network, ())
    assert found.settings["push_mbit"] == 200.0


def test_what_a_simulation_does_otherwise_is_noted(tmp_path: Path) -> None:
    folder = leave_run(tmp_path / "run", PACES, lr_schedule="cosine")
    (folder / "summary.json").write_text(json.dumps({"faults": [{"kind": "crash"}]}))
    place = folder / "peers" / "peer-2" / "options.json"
    options = json.loads(place.read_text())
    place.write_text(json.dumps(options | {"batch_size": 8}))
    found = calibrate(read_live_run(folder))
    notes = " / ".join(found.notes)
    assert found.settings["lr_schedule"] == "cosine" and "lr_schedule" not in notes
    for words in ("batch_size was not", "--faults"):
        assert words in notes


def test_parts_of_the_data_that_nobody_was_seen_with_are_noted(tmp_path: Path) -> None:
    found = calibrated(tmp_path, partition="iid", count=6)
    assert "the data was cut into 6 parts, and 4 peers were seen" in found.notes
