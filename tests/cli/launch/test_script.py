"""Where the processes of a script write, life after life, and what each is told."""

import json
from pathlib import Path

import pytest

from rumor.cli.launch.faults import read_live_faults
from rumor.cli.launch.script.config import ScriptConfig
from rumor.cli.launch.script.folder import ScriptFolder
from rumor.gossip.errors import ConfigError
from rumor.train import environment


def folder_of(out: Path, **settings: object) -> ScriptFolder:
    return ScriptFolder(ScriptConfig(**settings), ("python", "mine.py"), out)  # type: ignore[arg-type]


def test_founders_are_told_their_folders_and_how_many_they_are(tmp_path: Path) -> None:
    first, second = folder_of(tmp_path / "run", peers=2).found()
    assert (first.id, second.id) == ("peer-0", "peer-1")
    assert first.folder.is_dir() and (tmp_path / "run" / "rendezvous").is_dir()
    told = environment(second.variables)
    assert (told.index, told.count, told.out, told.resume) == (1, 2, second.folder, False)
    assert told.fields["founders"] == 2


def test_a_next_life_goes_on_from_what_it_kept_under_the_same_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", peers=2)
    _, second = folder.found()
    (second.folder / "peer.json").touch()
    again = folder.next_life(second, kept=True)
    told = environment(again.variables)
    assert (again.folder, again.command, again.earlier) == (second.folder, second.command, ())
    assert (told.fields["id"], told.index, told.resume) == ("peer-1", 1, True)
    assert told.fields["founders"] == 1
    # Else it would pass for the end of the next life.
    assert [path.name for path in second.folder.iterdir()] == ["former.peer.json"]


def test_a_next_life_with_nothing_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", peers=2)
    _, second = folder.found()
    again = folder.next_life(second, kept=False)
    third = folder.next_life(again, kept=False)
    told = environment(third.variables)
    assert [place.folder.name for place in (again, third)] == ["peer-1.life-2", "peer-1.life-3"]
    assert third.earlier == (second.folder, again.folder)
    assert (told.fields["id"], told.index, told.resume) == ("peer-1", 1, False)
    assert told.out == third.folder and third.folder.is_dir()


def test_a_newcomer_has_a_part_of_the_data_a_device_of_its_own_and_full_speed(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path / "run", peers=2, slow=("0:5",), device="cuda:{i}")
    folder.found()
    newcomer = folder.newcomer(1)
    told = environment(newcomer.variables)
    assert newcomer.id == told.fields["id"] == newcomer.folder.name == "join-1"
    # A script has so many parts: the index is one of theirs.
    assert (told.index, told.count, told.local_index) == (0, 2, 2)
    assert (told.device_name, told.slow, told.fields["founders"]) == ("cuda:2", 1.0, 1)


def test_a_script_is_killed_but_its_network_cannot_be_made_to_fail(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    crash = {"at_s": 1.0, "kind": "crash", "peer": 1}
    path.write_text(json.dumps([crash, {"at_s": 2.0, "kind": "cut", "peer": 0, "to": 1}]))
    with pytest.raises(ConfigError, match=r"fault 2 \(cut\): a script's network cannot"):
        read_live_faults(path, ["a", "b"], script=True)
    assert len(read_live_faults(path, ["a", "b"])) == 2
    path.write_text(json.dumps([crash]))
    assert read_live_faults(path, ["a", "b"], script=True)[0].peer == "b"
