"""Where the processes of a script write, life after life, and what each is told."""

from pathlib import Path
from typing import Any

from rumor.cli.launch.config import Job, LaunchConfig
from rumor.cli.launch.folder import RunFolder
from rumor.train import environment
from rumor.train.faults.schedule import Fault


def folder_of(out: Path, *faults: Fault, **settings: Any) -> RunFolder:
    config, command = LaunchConfig(**settings), ("python", "mine.py")
    return RunFolder(Job(config=config, name="mine.py", command=command, out=out, faults=faults))


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


def test_a_script_is_told_where_the_faults_of_its_network_are(tmp_path: Path) -> None:
    (place,) = folder_of(tmp_path, Fault(at_s=1.0, kind="reset"), peers=1).found()
    assert environment(place.variables).network_faults == tmp_path / "network-faults.json"
