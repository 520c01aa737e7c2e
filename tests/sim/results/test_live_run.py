"""Reading the folders of real peers, and the pace that follows from them."""

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


def test_peers_of_a_launch_are_ordered_by_index_and_counted_at_any_time(
    tmp_path: Path,
) -> None:
    run = read_live_run(leave_run(tmp_path / "run", PACES))
    assert [peer.id for peer in run.peers] == ["peer-0", "peer-1", "peer-2", "peer-3"]
    assert run.summary is not None and run.summary["accuracy"] == 0.95
    assert [run.steps(peer, 12.0) for peer in run.peers] == pytest.approx([120, 120, 120, 40])
    assert run.count("bytes_sent", 12.0) == pytest.approx(1100 * 400)
    assert run.count("membership_bytes", 12.0) == pytest.approx(100 * 400)


def test_a_folder_of_one_or_several_peers_is_a_run(tmp_path: Path) -> None:
    leave_peer(tmp_path / "all" / "ada", rows_of(0.1), index=1)
    leave_peer(tmp_path / "all" / "bob", rows_of(0.2), index=0)
    assert [peer.id for peer in read_live_run(tmp_path / "all").peers] == ["bob", "ada"]
    assert [peer.id for peer in read_live_run(tmp_path / "all" / "ada").peers] == ["ada"]


def test_only_a_finished_peer_ends_the_training_time(
    tmp_path: Path,
) -> None:
    run = read_live_run(leave_run(tmp_path / "run", PACES, steps=[100, 200, 200, 100]))
    assert run.trained_s == pytest.approx(10.0)
    leave_peer(tmp_path / "other" / "ada", rows_of(0.1, 50), index=0, state=None)
    leave_peer(tmp_path / "other" / "bob", rows_of(0.1, 100), index=1)
    assert read_live_run(tmp_path / "other").trained_s == pytest.approx(10.0)


def test_bytes_of_all_incarnations_count_and_repeated_steps_count_once(tmp_path: Path) -> None:
    leave_peer(tmp_path / "peers" / "ada", rows_of(0.1, 50), state=None, id="ada")
    second = [row | {"step": row["step"] + 40} for row in rows_of(0.1, 50, since_s=20.0)]
    leave_peer(tmp_path / "peers" / "ada.life-2", second, id="ada")
    run = read_live_run(tmp_path)
    assert len(run.peers) == 1
    assert run.steps(run.peers[0], 100.0) == 90
    assert run.count("bytes_sent", 100.0) == 1100 * 100


WITHOUT_OWN_TIME = [
    {key: value for key, value in row.items() if key != "own_s"} for row in rows_of(0.1)
]


@pytest.mark.parametrize(
    ("name", "rows", "given", "message"),
    [
        ("nowhere", [], {}, "is not the folder of a live run: give that of"),
        ("", None, {}, "is not the folder of a live run: give that of"),
        ("", [], {"state": None}, "none of its peers has taken a step yet"),
        ("", rows_of(0.1), {"options": "[]"}, r"options\.json is not a JSON object"),
        ("", rows_of(0.1)[:1], {}, "ada needs at least two recorded steps"),
        ("", WITHOUT_OWN_TIME, {"rule": "dpsgd"}, "do not say how long it waited"),
    ],
)
def test_unreadable_runs_and_runs_without_a_pace_are_refused(
    tmp_path: Path, name: str, rows: Any, given: dict[str, Any], message: str
) -> None:
    text = given.pop("options", None) if (given := dict(given)) else None
    if rows is not None:
        leave_peer(tmp_path / "ada", rows, **given)
    if text is not None:
        (tmp_path / "ada" / "options.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        calibrate(read_live_run(tmp_path / name))


def calibrated(tmp_path: Path, **options: Any) -> Any:
    return calibrate(read_live_run(leave_run(tmp_path / "run", PACES, **options)))


def test_the_pace_is_the_time_between_rows_without_the_first_step(tmp_path: Path) -> None:
    rows = rows_of(0.1)
    # Work after a step, such as a checkpoint, belongs to no step and delays the next one.
    longer = [row | {"time_s": 1.5 * row["time_s"]} for row in rows]
    late = [row | {"time_s": row["time_s"] + 30} for row in rows]
    varied = [
        row | {"step_s_sd": 0.03, "step_s": 0.1 + (0.04 if index % 2 else -0.04)}
        for index, row in enumerate(rows)
    ]
    found = [
        calibrate(read_live_run(leave_peer(tmp_path / f"{index}", each))).peers[0]
        for index, each in enumerate((longer, late, varied))
    ]
    assert [peer.step_s for peer in found[:2]] == pytest.approx([0.15, 0.1])
    assert found[0].steps == 99
    # Variation within rows and between them.
    assert found[2].step_s_cv == pytest.approx(0.5, rel=0.01)


def test_a_calibration_has_the_settings_of_its_run(tmp_path: Path) -> None:
    own = {"p": 0.5, "lr": 0.03, "topology": "ring"}
    found = calibrated(tmp_path, **own)
    assert found.settings.items() >= (own | {"total_steps": 900}).items()
    assert "steps" not in found.settings
    assert found.simulation()["workers"] == 4


@pytest.mark.parametrize(
    ("options", "paces"),
    [
        # Waiting under a synchronous rule is not counted as a step.
        ({"rule": "dpsgd"}, [0.05, 0.05, 0.05, 0.15]),
        # A step lasts at least step_s_min, without waiting.
        ({"rule": "allreduce", "step_s_min": 0.12}, [0.12, 0.12, 0.12, 0.15]),
    ],
)
def test_the_pace_excludes_waiting_for_other_peers(
    tmp_path: Path, options: dict[str, Any], paces: list[float]
) -> None:
    assert [peer.step_s for peer in calibrated(tmp_path, **options).peers] == pytest.approx(paces)


def test_a_network_that_was_not_measured_is_called_a_guess(tmp_path: Path) -> None:
    run = read_live_run(leave_run(tmp_path / "run", PACES))
    found = calibrate(run)
    assert found.network == PRESETS["ideal"]
    assert found.notes == ("all peers ran on one machine: messages take no time",)
    network = NetworkConfig(latency_s=0.01)
    found = calibrate(run, network=network)
    assert (found.network, found.notes) == (network, ())
    leave_peer(tmp_path / "ada", rows_of(0.1), address="tcp://10.0.0.5:7700")
    found = calibrate(read_live_run(tmp_path / "ada"))
    assert found.network == PRESETS["lan"]
    assert "lan is a guess" in found.notes[0]


def test_differences_of_the_simulation_are_noted(tmp_path: Path) -> None:
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


def test_parts_of_the_data_without_a_peer_are_noted(tmp_path: Path) -> None:
    found = calibrated(tmp_path, partition="iid", count=6)
    assert "the data was cut into 6 parts, and 4 peers were seen" in found.notes
