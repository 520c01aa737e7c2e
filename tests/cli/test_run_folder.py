"""Folders of runs: named, taken and checked."""

import io
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rumor.cli.run_folder import new_folders, require_trust, taken_folder
from rumor.gossip.errors import ConfigError


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


OWN = {"task": "mytask:make", "rule": "gosgd:p=0.5"}


def kept(folder: Path, **options: str) -> dict[Path, Mapping[str, Any]]:
    folder.mkdir(exist_ok=True)
    path = folder / "options.json"
    path.touch()
    return {path: options}


def test_code_of_ones_own_in_a_folder_of_ones_own_is_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mytask.py").touch()
    require_trust(tmp_path / "state", kept(tmp_path / "state", **OWN), (), trust=False)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (OWN, "task mytask:make"),
        ({"task": "digits", "rule": "rules:Mine:k=3"}, "rule rules:Mine"),
        ({"task": "digits", "partition": "parts:by_writer"}, "partition parts:by_writer"),
        ({"task": "digits", "rule": "gosgd:p=0.5,emission=adaptive"}, ""),
        ({"task": "digits", "partition": "dirichlet:0.1"}, ""),
    ],
)
def test_in_somebody_elses_folder_code_is_refused_unless_it_is_typed_or_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], code: str
) -> None:
    files = kept(tmp_path / "state", **options)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y"))
    for typed, trust in (((), True), (("task", "rule", "partition"), False)):
        require_trust(tmp_path / "state", files, typed, trust=trust)
    if not code:
        require_trust(tmp_path / "state", files, (), trust=False)
        return
    says = f"names {code}, which would be imported, and .*state belongs to user .* --set trust"
    with pytest.raises(ConfigError, match=says):
        require_trust(tmp_path / "state", files, (), trust=False)


@pytest.mark.parametrize("place", ["mytask.py", "mytask/__init__.py"])
def test_code_that_a_folder_brings_along_is_refused_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder = tmp_path / "state"
    files = kept(folder, **OWN)
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_text("raise SystemExit('imported')")
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"mytask:make, .* that comes from the same folder"):
        require_trust(Path(), files, (), trust=False)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_is_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    files = kept(tmp_path / "state", **OWN)
    files |= kept(tmp_path / "other", **OWN)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    asked: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        asked.append(question)
        return answer == "y"

    monkeypatch.setattr("rumor.cli.run_folder.typer.confirm", confirm)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    with nullcontext() if answer == "y" else pytest.raises(ConfigError, match="--set trust"):
        require_trust(tmp_path / "state", files, (), trust=False)
    assert len(asked) == 1 and asked[0].endswith("Import and run it?")
