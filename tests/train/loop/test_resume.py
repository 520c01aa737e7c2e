"""A run resumes from its checkpoint as if it had never stopped."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, TrainingError
from rumor.gossip.weight import ONE
from rumor.train import PeerConfig, Task, load_task
from rumor.train.config import RunConfig
from rumor.train.loop.telemetry import Report
from rumor.train.loop.trainer import run
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledgers

from .test_trainer import tensors

pytestmark = pytest.mark.live


def dropout(*, seed: int = 0) -> Task:
    """Digits, with a model that has statistics and dropout."""

    def model() -> nn.Module:
        drawing = nn.BatchNorm1d(16), nn.Dropout(0.3)
        return nn.Sequential(nn.Linear(64, 16), *drawing, nn.Linear(16, 10))

    return replace(load_task("digits", seed=seed), model=model)


def solo(out: Path, **changes: Any) -> PeerConfig:
    return PeerConfig(id="solo", out=out, **changes)


def settings(**changes: Any) -> RunConfig:
    return replace(RunConfig(steps=30, checkpoint_every="10steps"), **changes)


def resume_run(out: Path, **changes: Any) -> Report:
    """Resume the peer of a folder."""
    return run(settings(resume=True, **changes), solo(out))


@pytest.fixture
def finished_run(tmp_path: Path) -> Path:
    """Folder of a run that has finished."""
    run(settings(), solo(tmp_path))
    return tmp_path


@pytest.mark.extended
@pytest.mark.parametrize(
    ("task", "optimizer", "schedule"),
    [("digits", None, "constant"), (f"{__name__}:dropout", "adamw", "cosine:warmup=0.1")],
)
def test_a_lone_peer_that_resumes_ends_with_the_same_bits(
    task: str, optimizer: str | None, schedule: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"task": task, "optimizer": optimizer, "lr_schedule": schedule}
    config = RunConfig(steps=120, total_steps=121, **given)
    run(config, solo(tmp_path / "whole"))
    run(replace(config, steps=70), solo(tmp_path / "halves"))
    report = run(replace(config, resume=True), solo(tmp_path / "halves"))
    assert (report.stats.steps, report.stats.swarm_steps, report.lives) == (120, 120, 2)
    whole, again = (tensors(tmp_path / name / "model.safetensors") for name in ("whole", "halves"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_resumed_run_continues_the_files_of_its_folder(finished_run: Path) -> None:
    with open(finished_run / "metrics.jsonl", "ab") as file:
        file.write(b'{"step":31,"cut sh')
    (finished_run / "model.safetensors").unlink()
    # The learning rate may change between runs.
    report = resume_run(finished_run, steps=60, lr=0.0125)
    rows = read_metrics(finished_run / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 10, 20, 30, 40, 50, 60]
    assert [row["lr"] for row in rows] == [0.1] * 4 + [0.0125] * 3
    assert [row["swarm_steps"] for row in rows][-1] == 60
    times = [row["time_s"] for row in rows]
    assert times == sorted(times)
    assert [a.weight for a in read_ledgers(finished_run)] == [ONE, ONE]
    assert json.loads((finished_run / "peer.json").read_text()) == report.as_json()
    events = read_metrics(finished_run / "events.jsonl")
    assert [row["event"] for row in events] == ["founded", "founded"]


@pytest.mark.extended
def test_a_finished_peer_that_resumes_finishes_at_once(finished_run: Path) -> None:
    before = tensors(finished_run / "model.safetensors")
    report = resume_run(finished_run)
    assert (report.state, report.stats.steps, report.lives) == ("finished", 30, 2)
    after = tensors(finished_run / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_stopped_run_resumes_under_the_same_name(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    # The peer keeps its random name.
    first = run(settings(), PeerConfig(out=tmp_path), stop=stop)
    assert first.state == "left"
    report = run(settings(resume=True), PeerConfig(out=tmp_path))
    assert (report.state, report.stats.steps, report.stats.weight) == ("finished", 30, 1.0)
    assert report.stats.id == first.stats.id


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task": "quadratic"}, "checkpoint is of another model"),
        ({"seed": 1}, "seed is 1 now, and 0"),
        ({"partition": "iid"}, "partition is 'iid' now, and 'shared'"),
        ({"index": 1, "count": 2}, "index is 1 now, and 0"),
        ({"batch_size": 7}, "batch size is 7 now"),
    ],
)
@pytest.mark.extended
def test_settings_that_contradict_a_checkpoint_are_refused(
    finished_run: Path, changes: dict[str, Any], says: str
) -> None:
    before = {path: path.read_bytes() for path in finished_run.rglob("*.*")}
    with pytest.raises(ConfigError, match=says):
        resume_run(finished_run, **changes)
    assert {path: path.read_bytes() for path in finished_run.rglob("*.*")} == before


@pytest.mark.extended
def test_a_run_without_a_checkpoint_resumes_from_the_first_step(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        resume_run(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    run(settings(checkpoint_every="never"), solo(tmp_path))
    assert not (tmp_path / "checkpoints").exists()
    report = resume_run(tmp_path, steps=20)
    assert (report.stats.steps, report.lives) == (20, 2)


def test_resume_with_a_journal_or_without_a_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="resume without it"):
        settings(resume=True, journal=True)
    with pytest.raises(ConfigError, match="takes a folder"):
        run(RunConfig(resume=True), PeerConfig())


def test_a_peer_of_a_synchronous_swarm_cannot_resume(tmp_path: Path) -> None:
    config = solo(tmp_path, linger_s=0, rule="allreduce")
    run(settings(), config)
    with pytest.raises(ConfigError, match="no peer of it can resume"):
        run(settings(resume=True), config)


@pytest.mark.extended
def test_a_run_with_unreadable_checkpoints_does_not_resume(finished_run: Path) -> None:
    for path in (finished_run / "checkpoints").iterdir():
        os.truncate(path, 100)
    with pytest.raises(TrainingError, match="no checkpoint can be used"):
        resume_run(finished_run)
