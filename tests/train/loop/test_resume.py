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
from torch.nn import functional

from rumor.gossip import ConfigError, TrainingError
from rumor.gossip.weight import ONE
from rumor.train import PeerConfig, Task
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledgers

from .test_trainer import tensors

pytestmark = pytest.mark.live


def with_adam_and_dropout(*, seed: int = 0) -> Task:
    """Everything that a step can depend on: two moments, a count, and the random stream."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(300, 8, generator=generator)
    targets = (inputs.sum(1) > 0).long()
    return Task(
        name="dropped",
        model=lambda: nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 2)
        ),
        train=(inputs, targets),
        test=(inputs, targets),
        loss=functional.cross_entropy,
        optimizer=lambda parameters, lr: torch.optim.AdamW(parameters, lr, amsgrad=True),
        lr=0.01,
        batch_size=32,
        steps=100,
    )


TASKS = ["digits", f"{__name__}:with_adam_and_dropout"]


@pytest.fixture
def solo() -> PeerConfig:
    return PeerConfig(id="solo")


@pytest.mark.extended
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("schedule", ["constant", "cosine:warmup=0.1"])
def test_a_lone_peer_that_resumes_ends_with_the_same_bits(
    task: str, schedule: str, solo: PeerConfig, tmp_path: Path
) -> None:
    config = RunConfig(task=task, steps=120, total_steps=10_000)
    if schedule != "constant":
        config = replace(config, total_steps=120, lr_schedule=schedule)
    run(config, replace(solo, out=tmp_path / "whole"))
    halves = replace(solo, out=tmp_path / "halves")
    run(replace(config, steps=70), halves)
    report = run(replace(config, resume=True), halves)
    assert (report.stats.steps, report.stats.swarm_steps, report.lives) == (120, 120, 2)
    whole, again = (tensors(tmp_path / name / "model.safetensors") for name in ("whole", "halves"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def settings(**changes: Any) -> RunConfig:
    return replace(RunConfig(steps=30, checkpoint_every="10steps"), **changes)


def test_the_folder_goes_on_telling(solo: PeerConfig, tmp_path: Path) -> None:
    run(settings(), replace(solo, out=tmp_path))
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step":31,"cut sh')
    (tmp_path / "model.safetensors").unlink()
    report = run(settings(steps=60, resume=True), replace(solo, out=tmp_path))
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 10, 20, 30, 40, 50, 60]
    assert [row["swarm_steps"] for row in rows][-1] == 60
    times = [row["time_s"] for row in rows]
    assert times == sorted(times)
    assert [a.weight for a in read_ledgers(tmp_path)] == [ONE, ONE]
    assert json.loads((tmp_path / "peer.json").read_text()) == report.as_json()
    events = read_metrics(tmp_path / "events.jsonl")
    assert [row["event"] for row in events] == ["founded", "founded"]


def test_a_peer_that_has_finished_already_finishes_at_once(
    solo: PeerConfig, tmp_path: Path
) -> None:
    run(settings(), replace(solo, out=tmp_path))
    before = tensors(tmp_path / "model.safetensors")
    report = run(settings(resume=True), replace(solo, out=tmp_path))
    assert (report.state, report.stats.steps, report.lives) == ("finished", 30, 2)
    after = tensors(tmp_path / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_one_that_was_told_to_stop_goes_on_from_there(solo: PeerConfig, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert run(settings(), replace(solo, out=tmp_path), stop=stop).state == "left"
    report = run(settings(resume=True), replace(solo, out=tmp_path))
    assert (report.state, report.stats.steps, report.stats.weight) == ("finished", 30, 1.0)


@pytest.mark.extended
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
def test_what_contradicts_the_checkpoint_is_refused_by_its_name(
    solo: PeerConfig, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    run(settings(), replace(solo, out=tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(ConfigError, match=says):
        run(settings(resume=True, **changes), replace(solo, out=tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_another_peer_cannot_take_a_checkpoint_up(solo: PeerConfig, tmp_path: Path) -> None:
    run(settings(), replace(solo, out=tmp_path))
    with pytest.raises(ConfigError, match="id is other: the checkpoint is of peer solo"):
        run(settings(resume=True), replace(solo, id="other", out=tmp_path))


def test_a_peer_without_a_name_keeps_the_one_it_drew(tmp_path: Path) -> None:
    first = run(settings(), PeerConfig(out=tmp_path))
    second = run(settings(resume=True, steps=40), PeerConfig(out=tmp_path))
    assert first.stats.id == second.stats.id and second.stats.steps == 40


def test_a_folder_without_a_run_cannot_be_resumed(solo: PeerConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        run(settings(resume=True), replace(solo, out=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_life_that_left_no_checkpoint_is_followed_by_one_that_begins_anew(
    solo: PeerConfig, tmp_path: Path
) -> None:
    run(settings(checkpoint_every="never"), replace(solo, out=tmp_path))
    assert not (tmp_path / "checkpoints").exists()
    report = run(settings(steps=20, resume=True), replace(solo, out=tmp_path))
    assert (report.stats.steps, report.lives) == (20, 2)


def test_where_no_checkpoint_can_be_read_nothing_is_started(
    solo: PeerConfig, tmp_path: Path
) -> None:
    run(settings(), replace(solo, out=tmp_path))
    for path in (tmp_path / "checkpoints").iterdir():
        os.truncate(path, 100)
    with pytest.raises(TrainingError, match="no checkpoint can be used"):
        run(settings(resume=True), replace(solo, out=tmp_path))


def test_a_learning_rate_can_be_changed_on_the_way(solo: PeerConfig, tmp_path: Path) -> None:
    run(settings(), replace(solo, out=tmp_path))
    run(settings(resume=True, steps=40, lr=0.0125), replace(solo, out=tmp_path))
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["lr"] for row in rows] == [0.1] * 4 + [0.0125]


def test_no_journal_begins_in_the_middle(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="resume without it"):
        settings(resume=True, journal=True)
    with pytest.raises(ConfigError, match="takes a folder"):
        run(RunConfig(resume=True), PeerConfig())


def test_no_peer_of_a_synchronous_swarm_can_resume(tmp_path: Path) -> None:
    config = PeerConfig(id="solo", linger_s=0, rule="allreduce", out=tmp_path)
    run(settings(), config)
    with pytest.raises(ConfigError, match="no peer of it can resume"):
        run(settings(resume=True), config)
