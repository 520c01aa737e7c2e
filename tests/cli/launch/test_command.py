"""``rumor launch``: its errors, and the results that it makes from its peers' files."""

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
from rumor.cli.launch.faults import FaultInjector
from rumor.train.faults.schedule import Fault, read_faults, resolve
from rumor.train.storage.jsonl import read_metrics

from ...faults import fault
from ...train.loggers.fakes import Collected, Failing
from ..called import called
from .fakes import FAKE_PEER, PNG, draw_nothing, run_fakes

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.fixture(autouse=True)
def without_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_nothing(monkeypatch)


def set_fates(monkeypatch: pytest.MonkeyPatch, **fates: str) -> None:
    named = {peer.replace("_", "-"): fate for peer, fate in fates.items()}
    monkeypatch.setenv("FAKE_FATES", json.dumps(named))


@pytest.mark.parametrize("trace", ["peers", "summary.json", "model.safetensors"])
def test_the_folder_of_another_run_is_refused(trace: str) -> None:
    Path("run", trace).mkdir(parents=True)
    done = called("launch", "--task", "quadratic", "--out", "run", status=2)
    assert f"holds another run ({trace})" in done.stderr
    assert ("resume it with --resume" in done.stderr) is (trace == "peers")
    assert [path.name for path in Path("run").iterdir()] == [trace]


@pytest.mark.parametrize(
    "words", [("launch", "--out=run", "--task=quadratic"), ("run", "--out=run", "--", "true")]
)
def test_a_folder_that_cannot_be_created_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def fail(path: Path, **rest: Any) -> None:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))

    monkeypatch.setattr(Path, "mkdir", fail)
    assert called(*words, status=2).stderr == "error: run cannot be written: File name too long\n"


def test_a_run_writes_a_summary_a_picture_and_the_mean_model(tmp_path: Path) -> None:
    summary = run_fakes(tmp_path / "run", steps=100)
    assert not complaint(summary)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert (tmp_path / "run" / "training.png").read_bytes() == PNG
    # The models have equal weight, and are filled with 0, 1, 2 and 3.
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


def test_loggers_are_closed_if_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Collected()
    monkeypatch.setattr(swarm, "supervise", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_fakes(tmp_path / "run", steps=100, loggers=(own,))
    assert own.summaries == [{}]


@pytest.mark.extended
def test_a_run_in_which_no_peer_finished_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_fates(monkeypatch, peer_0="kill", peer_1="fail", peer_2="refuse")
    summary = run_fakes(tmp_path / "run", peers=3, steps=100)
    assert complaint(summary).startswith("peer-1 failed: the loss is not finite; peer-2 failed: ")
    assert summary["digest"] is None and summary["accuracy"] is None
    assert len(summary["dead"]) == 3
    assert (tmp_path / "run" / "summary.json").exists()


def test_without_a_terminal_progress_goes_to_stderr_in_plain_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    set_fates(monkeypatch, peer_1="kill")
    run_fakes(tmp_path / "run", peers=2, steps=100)
    stdout, stderr = capfd.readouterr()
    assert stdout == ""
    first, *others = stderr.splitlines()
    assert first.startswith("quadratic on 2 peers")
    # In a long run, lines about all peers appear in between.
    news = [line for line in others if not re.match(r"\d+ s: ", line)]
    assert news == ["peer-1 killed at step 50: SIGKILL"]


def fill_disk(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Simulate a full disk when files with these names are moved into place."""

    def full(draft: Path, path: Path) -> None:
        if path.name in names:
            raise OSError(errno.ENOSPC, "No space left on device")
        draft.replace(path)

    monkeypatch.setattr("rumor.train.storage.files.publish", full)


def test_with_a_full_disk_the_result_is_shown_and_the_folder_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("model.safetensors", "summary.json", "training.png")
    fill_disk(monkeypatch, *names)
    set_fates(monkeypatch, peer_1="fail")
    # Real peers would take seconds to load.
    fakes = lambda *given: replace(training_job(*given), command=FAKE_PEER)  # noqa: E731
    monkeypatch.setattr(launch, "training_job", fakes)
    words = "launch --task quadratic --peers 2 --steps 50 --out run"
    done = called(*words.split(), status=1)
    assert "peer-1 failed at step 30 (the loss is not finite)" in done.stdout
    # Failures are reported before results.
    assert 0 < done.stdout.find("peer-1 failed: ") < done.stdout.find("Weight is exact")
    *_, error = done.stderr.splitlines()
    failed = "error: peer-1 failed: the loss is not finite; not written to run: model"
    assert error.startswith(failed)
    assert all(f"{name} (No space left on device)" in error for name in names)
    assert [path.name for path in (tmp_path / "run").iterdir() if path.is_file()] == []


@pytest.mark.extended
def test_a_failing_logger_only_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    summary = run_fakes(tmp_path / "run", steps=100, loggers=(Failing("open"), Failing("log")))
    assert not complaint(summary)
    assert caplog.text.count("logger Failing failed") == 2


@pytest.mark.extended
def test_killed_and_failed_peers_are_named_and_the_others_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_fates(monkeypatch, peer_0="fail", peer_2="kill")
    summary = run_fakes(tmp_path / "run", steps=100)
    assert complaint(summary) == "peer-0 failed: the loss is not finite"
    failed, killed = summary["dead"]
    assert failed["why"] == "the loss is not finite"
    assert (killed["id"], killed["state"], killed["why"]) == ("peer-2", "killed", "SIGKILL")
    assert (killed["step"], killed["weight_units"]) == (50, 2**40)
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 2 * 2**40
    assert summary["ledger"]["died"] == 2 * 2**40
    states = [peer["state"] for peer in summary["peers_detail"]]
    assert states == ["failed", "finished", "killed", "finished"]
    # The mean of the other two models, filled with 1 and 3.
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert torch.equal(model["weight"], torch.full((1, 32), 2.0))


def prepare_faults(monkeypatch: pytest.MonkeyPatch, *faults: dict[str, Any]) -> tuple[Fault, ...]:
    """Return faults of a run of two peers, and make all its peers train to their end.

    No peer takes its last steps before the faults of the first second have happened.
    """
    happened, update = Path("happened").absolute(), FaultInjector.update

    def updated(injector: FaultInjector) -> list[str]:
        news = update(injector)
        if all(record["done"] for record in injector.records if record["at_s"] < 1):
            happened.touch()
        return news

    monkeypatch.setattr(FaultInjector, "update", updated)
    monkeypatch.setenv("FAKE_HOLD", str(happened))
    names = ("peer-0", "peer-1", "join-1")
    monkeypatch.setenv("FAKE_FATES", json.dumps(dict.fromkeys(names, "train")))
    return resolve(read_faults(json.dumps(faults)), ["peer-0", "peer-1"])


@pytest.mark.extended
def test_peers_killed_at_once_restart_without_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = prepare_faults(monkeypatch, fault(0.1, "mass-restart", for_s=0.3, state="lost"))
    summary = run_fakes(tmp_path / "run", peers=2, steps=400, faults=faults)
    assert [peer["state"] for peer in summary["peers_detail"]] == ["finished"] * 2
    dead = [(each["id"], each["life"]) for each in summary["dead"]]
    assert dead == [("peer-0", 1), ("peer-1", 1)]
    assert summary["ledger"]["founded"] == summary["ledger"]["died"] == 2 * 2**40
    assert not complaint(summary)
    folders = {path.name for path in (tmp_path / "run" / "peers").iterdir()}
    assert folders == {"peer-0", "peer-1", "peer-0.life-2", "peer-1.life-2"}


@pytest.mark.extended
def test_restarted_new_and_departed_peers_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given = fault(0.1, "crash", 1), fault(0.2, "restart", 1), fault(0.3, "join")
    faults = prepare_faults(monkeypatch, *given, fault(0.4, "leave", 0), fault(60, "heal"))
    summary = run_fakes(tmp_path / "run", peers=2, steps=800, faults=faults)
    assert not complaint(summary)
    lives = {peer["id"]: (peer["state"], peer["lives"]) for peer in summary["peers_detail"]}
    finished = {"peer-1": ("finished", 2), "join-1": ("finished", 1)}
    assert lives == {"peer-0": ("left", 1)} | finished
    (dead,) = summary["dead"]
    expected = {"id": "peer-1", "life": 1, "state": "killed", "why": "SIGKILL"}
    assert dead.items() >= expected.items()
    assert dead["weight_units"] == summary["ledger"]["died"] == 2**40 and dead["step"] < 800
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    whats = [done["what"] for fault in summary["faults"] for done in fault["done"]]
    assert whats[:2] == ["peer-1 is killed", "peer-1 restarts from its last checkpoint"]
    assert summary["faults"][4]["done"] == []
    folder = tmp_path / "run" / "peers" / "peer-1"
    assert {"ledger.jsonl", "ledger.2.jsonl"} <= {path.name for path in folder.iterdir()}
    # The recorded time may be a little later than the scheduled one.
    assert re.search(r"fault at 0\.\d s: join-1 starts", capfd.readouterr().err)
