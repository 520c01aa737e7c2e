"""A run that goes on from its checkpoint: as if it had never stopped."""

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
from rumor.train.loop.report import Report
from rumor.train.loop.trainer import run
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledgers

from .test_trainer import tensors

pytestmark = pytest.mark.live


def dropped(*, seed: int = 0) -> Task:
    """Digits, by a model with statistics that draws random numbers."""

    def model() -> nn.Module:
        drawing = nn.BatchNorm1d(16), nn.Dropout(0.3)
        return nn.Sequential(nn.Linear(64, 16), *drawing, nn.Linear(16, 10))

    return replace(load_task("digits", seed=seed), model=model)


def solo(out: Path, **changes: Any) -> PeerConfig:
    return PeerConfig(id="solo", out=out, **changes)


def settings(**changes: Any) -> RunConfig:
    return replace(RunConfig(steps=30, checkpoint_every="10steps"), **changes)


def resumed(out: Path, **changes: Any) -> Report:
    """A second life of the peer in a folder."""
    return run(settings(resume=True, **changes), solo(out))


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A folder in which a run has ended."""
    run(settings(), solo(tmp_path))
    return tmp_path


@pytest.mark.extended
@pytest.mark.parametrize(
    ("task", "optimizer", "schedule"),
    [("digits", None, "constant"), (f"{__name__}:dropped", "adamw", "cosine:warmup=0.1")],
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


def test_the_folder_goes_on_telling(ended: Path) -> None:
    with open(ended / "metrics.jsonl", "ab") as file:
        file.write(b'{"step":31,"cut sh')
    (ended / "model.safetensors").unlink()
    # A learning rate can be changed on the way.
    report = resumed(ended, steps=60, lr=0.0125)
    rows = read_metrics(ended / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 10, 20, 30, 40, 50, 60]
    assert [row["lr"] for row in rows] == [0.1] * 4 + [0.0125] * 3
    assert [row["swarm_steps"] for row in rows][-1] == 60
    times = [row["time_s"] for row in rows]
    assert times == sorted(times)
    assert [a.weight for a in read_ledgers(ended)] == [ONE, ONE]
    assert json.loads((ended / "peer.json").read_text()) == report.as_json()
    events = read_metrics(ended / "events.jsonl")
    assert [row["event"] for row in events] == ["founded", "founded"]


@pytest.mark.extended
def test_a_peer_that_has_finished_already_finishes_at_once(ended: Path) -> None:
    before = tensors(ended / "model.safetensors")
    report = resumed(ended)
    assert (report.state, report.stats.steps, report.lives) == ("finished", 30, 2)
    after = tensors(ended / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_one_that_was_told_to_stop_goes_on_from_there(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    # It keeps the name that it drew.
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
def test_what_contradicts_a_checkpoint_is_named(
    ended: Path, changes: dict[str, Any], says: str
) -> None:
    before = {path: path.read_bytes() for path in ended.rglob("*.*")}
    with pytest.raises(ConfigError, match=says):
        resumed(ended, **changes)
    assert {path: path.read_bytes() for path in ended.rglob("*.*")} == before


@pytest.mark.extended
def test_a_life_that_left_no_checkpoint_is_followed_by_one_that_begins_anew(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        resumed(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    run(settings(checkpoint_every="never"), solo(tmp_path))
    assert not (tmp_path / "checkpoints").exists()
    report = resumed(tmp_path, steps=20)
    assert (report.stats.steps, report.lives) == (20, 2)


def test_no_journal_begins_in_the_middle() -> None:
    with pytest.raises(ConfigError, match="resume without it"):
        settings(resume=True, journal=True)
    with pytest.raises(ConfigError, match="takes a folder"):
        run(RunConfig(resume=True), PeerConfig())


def test_no_peer_of_a_synchronous_swarm_can_resume(tmp_path: Path) -> None:
    config = solo(tmp_path, linger_s=0, rule="allreduce")
    run(settings(), config)
    with pytest.raises(ConfigError, match="no peer of it can resume"):
        run(settings(resume=True), config)


@pytest.mark.extended
def test_where_no_checkpoint_can_be_read_nothing_is_started(ended: Path) -> None:
    for path in (ended / "checkpoints").iterdir():
        os.truncate(path, 100)
    with pytest.raises(TrainingError, match="no checkpoint can be used"):
        resumed(ended)
