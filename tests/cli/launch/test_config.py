"""Checks of a launch before it starts."""

from pathlib import Path

import pytest

from rumor.cli.launch.config import LaunchConfig, Place
from rumor.cli.launch.folder import RunFolder
from rumor.gossip.errors import ConfigError

from .fakes import checked_job, places_of


def test_a_slow_peer_sleeps_longer_than_the_others(tmp_path: Path) -> None:
    assert LaunchConfig().slowness() == {}
    config = LaunchConfig(slow=("0:1.5", "peer-2:4"))
    assert config.slowness() == {0: 1.5, 2: 4.0}
    places = places_of(tmp_path, step_s_min=0.5, slow=("3:10",))
    assert variables(places, "STEP_S_MIN") == ["0.5", "0.5", "0.5", "5.0"]
    # With only slow set, all steps get a minimum duration, which the factor multiplies.
    places = RunFolder(checked_job(out=tmp_path / "new", slow=("0:10",))).found()
    assert variables(places, "STEP_S_MIN")[:2] == ["0.2", "0.02"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("3", "WORKER:FACTOR"),
        ("1:nan", "WORKER:FACTOR"),
        ("a:2", "there is no worker a"),
        ("1:0.5", "FACTOR >= 1"),
        ("4:2", "only 0 to 3"),
        ("1:2 1:3", "twice"),
    ],
)
def test_a_malformed_slow_peer_is_refused(texts: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LaunchConfig(slow=tuple(texts.split()))


def test_each_peer_gets_its_folder_index_and_addresses(tmp_path: Path) -> None:
    places = places_of(tmp_path / "run", peers=12, seed=7, topology="ring", steps=30)
    assert [place.id for place in places] == [f"peer-{index:02}" for index in range(12)]
    assert all(place.folder.is_dir() for place in places)
    expected = {"INDEX": "3", "COUNT": "12", "FOUNDERS": "12", "STEPS": "30", "SEED": "7"}
    expected |= {"TOPOLOGY": "ring", "ID": "peer-03"}
    assert {name: places[3].variables[f"RUMOR_{name}"] for name in expected} == expected
    assert "RUMOR_LR" not in places[3].variables


def variables(places: list[Place], name: str) -> list[str | None]:
    return [place.variables.get(f"RUMOR_{name}") for place in places]


def test_a_run_without_a_folder_gets_a_new_one(in_empty_folder: Path) -> None:
    first = checked_job().out
    assert not first.exists()
    first.mkdir(parents=True)
    second = checked_job().out
    assert first != second and first.parent == second.parent == Path("runs")
    (second.parent / "notes.txt").touch()
    assert checked_job(out=second.parent).out == second.parent  # it is not a run itself


def test_peers_have_the_names_of_the_nodes_of_a_file(tmp_path: Path) -> None:
    graph = tmp_path / "cluster.edgelist"
    graph.write_text("ada bob\nbob cyd\n")
    places = places_of(tmp_path / "run", peers=3, topology=f"file:path={graph}")
    assert [place.id for place in places] == ["ada", "bob", "cyd"]


def test_a_file_with_invalid_peer_names_is_refused(tmp_path: Path) -> None:
    graph = tmp_path / "cluster.edgelist"
    graph.write_text("ada! bob\n")
    with pytest.raises(ConfigError, match="names a node 'ada!'"):
        LaunchConfig(peers=2, topology=f"file:path={graph}")
