"""``rumor launch``: what it refuses, and what it makes of what its peers leave."""

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rumor.cli.commands import launch
from rumor.cli.launch import swarm
from rumor.cli.launch.checks import training_job
from rumor.cli.launch.display import complaint
from rumor.train.storage.jsonl import read_metrics

from ...train.loggers.fakes import Collected
from ..called import called
from .fakes import FAKE_PEER, PNG, draw_nothing, run_fakes

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.fixture(autouse=True)
def without_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_nothing(monkeypatch)


def fate(monkeypatch: pytest.MonkeyPatch, **fates: str) -> None:
    named = {peer.replace("_", "-"): fate for peer, fate in fates.items()}
    monkeypatch.setenv("FAKE_FATES", json.dumps(named))


def test_the_folder_of_another_run_is_refused() -> None:
    Path("run/peers").mkdir(parents=True)
    done = called("launch", "--task", "quadratic", "--out", "run", status=2)
    assert "holds another run (peers)" in done.stderr and "resume it with --resume" in done.stderr
    assert [path.name for path in Path("run").iterdir()] == ["peers"]


@pytest.mark.parametrize(
    "words", [("launch", "--out=run", "--task=quadratic"), ("run", "--out=run", "--", "true")]
)
def test_a_folder_that_cannot_be_made_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def fail(path: Path, **rest: Any) -> None:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))

    monkeypatch.setattr(Path, "mkdir", fail)
    assert called(*words, status=2).stderr == "error: run cannot be written: File name too long\n"


def test_a_run_leaves_a_summary_a_picture_and_the_mean_model(tmp_path: Path) -> None:
    summary = run_fakes(tmp_path / "run", steps=100)
    assert not complaint(summary)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert (tmp_path / "run" / "training.png").read_bytes() == PNG
    # Of equal weight, and filled with 0, 1, 2 and 3.
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert torch.equal(model["weight"], torch.full((1, 32), 1.5))
    assert summary["consensus_distance"] == pytest.approx(5**0.5 / 3)
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 4 * 2**40
    assert (summary["messages"], summary["bytes_sent"]) == (28, 280)
    assert summary["steps_per_s"] == 400
    assert summary["accuracy"] is None and summary["loss"] > 0
    assert [peer["peer"] for peer in summary["peers_detail"]] == [0, 1, 2, 3]
    assert summary["dead"] == []


def test_loggers_get_every_row_of_every_peer_and_the_summary(tmp_path: Path) -> None:
    own = Collected()
    summary = run_fakes(tmp_path / "run", steps=100, peers=2, loggers=(own,))
    assert own.run is not None and own.run.peer is None
    assert (own.run.name, own.run.folder) == ("run", tmp_path / "run")
    assert (own.run.config["task"], own.run.config["steps"]) == ("quadratic", 100)
    for peer in ("peer-0", "peer-1"):
        rows = read_metrics(tmp_path / "run" / "peers" / peer / "metrics.jsonl")
        assert len(rows) == 10
        assert [row for id, _, row in own.rows if id == peer] == rows
    assert own.summaries == [summary]


def test_loggers_are_closed_where_a_run_breaks_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Collected()
    monkeypatch.setattr(swarm, "supervise", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_fakes(tmp_path / "run", steps=100, loggers=(own,))
    assert own.summaries == [{}]


@pytest.mark.extended
def test_a_run_in_which_no_peer_finished_did_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fate(monkeypatch, peer_0="kill", peer_1="fail", peer_2="refuse")
    summary = run_fakes(tmp_path / "run", peers=3, steps=100)
    assert complaint(summary).startswith("peer-1 failed: the loss is not finite; peer-2 failed: ")
    assert summary["digest"] is None and summary["accuracy"] is None
    assert len(summary["dead"]) == 3
    assert (tmp_path / "run" / "summary.json").exists()


def test_progress_goes_to_stderr_in_plain_lines_where_it_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fate(monkeypatch, peer_1="kill")
    run_fakes(tmp_path / "run", peers=2, steps=100)
    stdout, stderr = capfd.readouterr()
    assert stdout == ""
    first, *others = stderr.splitlines()
    assert first.startswith("quadratic on 2 peers")
    # Where it takes long, lines about all peers come in between.
    news = [line for line in others if not re.match(r"\d+ s: ", line)]
    assert news == ["peer-1 killed at step 50: SIGKILL"]


def test_on_a_full_disk_the_result_is_shown_and_the_folder_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("model.safetensors", "summary.json", "training.png")

    def full(draft: Path, path: Path) -> None:
        if path.name in names:
            raise OSError(errno.ENOSPC, "No space left on device")
        draft.replace(path)

    monkeypatch.setattr("rumor.train.storage.files.publish", full)
    fate(monkeypatch, peer_1="fail")
    # Real peers would take seconds to load.
    fakes = lambda *given: replace(training_job(*given), command=FAKE_PEER)  # noqa: E731
    monkeypatch.setattr(launch, "training_job", fakes)
    words = "launch --task quadratic --peers 2 --steps 50 --out run"
    done = called(*words.split(), status=1)
    assert "peer-1 failed at step 30 (the loss is not finite)" in done.stdout
    # What failed is said before what went well.
    assert 0 < done.stdout.find("peer-1 failed: ") < done.stdout.find("Weight is exact")
    *_, said = done.stderr.splitlines()
    failed = "error: peer-1 failed: the loss is not finite; not written to run: model"
    assert said.startswith(failed)
    assert all(f"{name} (No space left on device)" in said for name in names)
    assert [path.name for path in (tmp_path / "run").iterdir() if path.is_file()] == []
