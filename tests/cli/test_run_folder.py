"""Folders of runs: named, taken and checked."""

from itertools import islice
from pathlib import Path

import pytest

from rumor.cli.run_folder import new_folders, taken_folder


def test_a_name_says_what_was_trained_and_when_and_never_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rumor.cli.run_folder.time.strftime", lambda form: "now")
    names = [str(path) for path in islice(new_folders("my.tasks:make", "sim-"), 3)]
    assert names == [f"runs/sim-my.tasks-make-now{end}" for end in ("", "-2", "-3")]


def test_a_folder_that_another_run_took_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with taken_folder(iter([tmp_path / "a", tmp_path / "b"])) as folder:
        assert folder == tmp_path / "b" and folder.is_dir()
        (folder / "kept").touch()
    assert folder.exists()


def test_a_folder_in_which_nothing_was_kept_is_gone(tmp_path: Path) -> None:
    with taken_folder(iter([tmp_path / "runs" / "a"])) as folder:
        assert folder.is_dir()
    assert not (tmp_path / "runs").exists()
