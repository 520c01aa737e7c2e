"""``rumor replay`` and ``--set=journal``: what is printed, and how it ends."""

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.reports import console
from rumor.gossip.errors import ConfigError
from rumor.train import PeerConfig
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run

from ..launch.fakes import places_of


@pytest.fixture(scope="module")
def solo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a peer that trained alone."""
    folder = tmp_path_factory.mktemp("solo") / "peer"
    run(RunConfig(steps=30, journal=True), PeerConfig(id="solo", out=folder))
    return folder


def replay(*arguments: Path | str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.live
def test_a_run_that_is_repeated_is_a_table_and_status_0(solo: Path) -> None:
    status, stdout, stderr = replay(solo)
    assert status == 0 and stderr == ""
    assert "solo" in stdout and "identical, and so is its model" in stdout
    assert "bit for bit: 30 steps" in stdout


@pytest.mark.live
def test_the_last_line_is_one_object(solo: Path) -> None:
    status, stdout, _ = replay(solo, "--json")
    (line,) = stdout.splitlines()
    found = json.loads(line)
    assert status == 0 and found["identical"] and found["difference"] is None
    assert (found["task"], found["steps"], found["peers"]) == ("digits", 30, 1)
    assert found["peers_detail"][0]["verdict"] == "identical"


@pytest.mark.live
def test_a_difference_is_named_and_status_1(solo: Path, tmp_path: Path) -> None:
    path = shutil.copytree(solo, tmp_path / "copy") / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    name = next(iter(tensors))
    tensors[name].view(-1)[5] += 1
    save_file(tensors, path)
    status, stdout, stderr = replay(path.parent)
    assert status == 1 and "differs" in stdout
    assert "solo, record " in stderr and f"tensor {name}[" in stderr


@pytest.mark.live
def test_a_journal_cut_short_is_repeated_up_to_there(solo: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(solo, tmp_path / "copy")
    journal = folder / "journal.bin"
    journal.write_bytes(journal.read_bytes()[:-100])
    status, _, stderr = replay(folder)
    assert status == 2 and "before the live run did" in stderr
    (folder / "model.safetensors").unlink()
    status, stdout, _ = replay(folder)
    assert status == 0 and "identical as far as it goes" in stdout


@pytest.mark.live
def test_other_versions_are_a_warning(solo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.99")
    status, _, stderr = replay(solo)
    assert status == 0 and "warning: bits may differ: python is 3.99, and was 3." in stderr


def test_a_folder_that_is_no_run_is_bad_input(tmp_path: Path) -> None:
    status, stdout, stderr = replay(tmp_path)
    assert (status, stdout) == (2, "") and "has no journal" in stderr
    (tmp_path / "journal.bin").write_bytes(b"something else")
    status, _, stderr = replay(tmp_path)
    assert status == 2 and "is not a journal" in stderr


def test_a_journal_needs_a_folder() -> None:
    result = CliRunner().invoke(app, ["peer", "--set=journal"])
    assert result.exit_code == 2 and "--set journal needs --out" in result.stderr


@pytest.mark.parametrize("journal", [False, True])
def test_a_launch_tells_its_peers_to_keep_journals(tmp_path: Path, journal: bool) -> None:
    for place in places_of(tmp_path / "run", peers=2, journal=journal):
        assert ("--set=journal=true" in place.command) is journal


def test_progress_is_told_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_again(*folders: Path, tell: Callable[[float, int], None]) -> None:
        tell(0.25, 1200)
        raise ConfigError("that is enough")

    monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(import_module("rumor.sim.replay.replay"), "replay", run_again)
    said = replay("live", "--trust")[2]
    assert said.startswith("0 s: 25% of the journals, 1,200 steps taken\n")


@pytest.mark.live
def test_code_that_a_folder_brings_along_is_not_run_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = "from rumor.train.tasks.quadratic import quadratic\n"
    (tmp_path / "brought_task.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    task, folder = "brought_task:quadratic", tmp_path / "peer"
    run(RunConfig(task=task, steps=5, journal=True), PeerConfig(id="solo", out=folder))
    assert replay(folder)[0] == 0
    shutil.move(tmp_path / "brought_task.py", folder)
    monkeypatch.chdir(folder)
    status, stdout, stderr = replay(folder)
    assert (status, stdout) == (2, "")
    assert f"names task {task}, which would be imported, and that comes from the same" in stderr
    assert replay(folder, "--trust")[0] == 0
