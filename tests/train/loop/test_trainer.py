"""A task trained by one peer: an exact result, and a record in its folder."""

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from rumor.gossip import ConfigError, TrainingError
from rumor.gossip.weight import ONE
from rumor.train import PeerConfig, load_task
from rumor.train.config import RunConfig
from rumor.train.loop import learner as module
from rumor.train.loop.learner import Learner
from rumor.train.loop.trainer import run
from rumor.train.storage.journal import JOURNAL
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledger

from ...sim.batched.test_exactness import trained_by_hand
from ...waiting import LIMIT_S
from ..loggers.fakes import Collected


def tensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def require_plain_sgd(folder: Path, steps: int) -> None:
    expected = trained_by_hand(load_task("digits", seed=3), ["solo"], steps, seed=3)
    found = tensors(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.live
@pytest.mark.parametrize("rule", ["gosgd", "gosgd:layers=4", "gosgd:robust=clip:tau=0.1"])
def test_one_peer_equals_plain_sgd_bit_for_bit(rule: str, tmp_path: Path) -> None:
    run(RunConfig(steps=40, seed=3), PeerConfig(id="solo", seed=3, rule=rule, out=tmp_path))
    require_plain_sgd(tmp_path, 40)


@pytest.mark.live
def test_the_folder_and_the_loggers_record_the_run(tmp_path: Path) -> None:
    own = Collected()
    config = PeerConfig(id="solo", loggers=(own,), out=tmp_path, log_every=20)
    report = run(RunConfig(steps=60), config)
    assert json.loads((tmp_path / "peer.json").read_text()) == report.as_json()
    assert (report.state, report.stats.steps, report.stats.weight) == ("finished", 60, 1.0)
    assert read_ledger(tmp_path / "ledger.jsonl")[0].weight == ONE
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 20, 40, 50, 60]
    assert own.rows == [("solo", row["swarm_steps"], row) for row in rows]
    assert own.run is not None and own.run.folder == tmp_path
    assert (own.run.config["task"], own.run.config["steps"]) == ("digits", 60)
    assert own.summaries == [report.as_json()]
    assert not (tmp_path / JOURNAL).exists()


@pytest.mark.extended
@pytest.mark.live
def test_a_folder_with_another_run_is_refused_and_unchanged(tmp_path: Path) -> None:
    run(RunConfig(steps=1), PeerConfig(out=tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(ConfigError, match="another run"):
        run(RunConfig(steps=1), PeerConfig(out=tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


@pytest.mark.live
def test_a_non_finite_loss_ends_the_run_and_burns_its_weight(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="lower the learning rate"):
        run(RunConfig(task="quadratic", lr=1e30), PeerConfig(out=tmp_path))
    assert json.loads((tmp_path / "peer.json").read_text())["state"] == "failed"
    assert not (tmp_path / "model.safetensors").exists()
    (account,) = read_ledger(tmp_path / "ledger.jsonl")
    assert (account.weight, account.burned) == (0, ONE)


@pytest.mark.extended
@pytest.mark.live
def test_a_port_in_use_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="Address already in use"):
            run(RunConfig(), PeerConfig(bind=bind, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_unavailable_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="device is 'cuda:9'"):
        run(RunConfig(device="cuda:9"), PeerConfig())


@pytest.mark.parametrize(("typed", "expected"), [(None, 0.5), ("constant", 1.0)])
def test_the_task_sets_the_default_learning_rate_schedule(
    typed: str | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = replace(load_task("digits", seed=0), lr_schedule="linear")
    monkeypatch.setattr(module, "load_task", lambda spec, seed: task)
    learner = Learner(RunConfig(steps=10, lr_schedule=typed, device="cpu"), "a")
    for _ in range(6):
        learner.step()
    assert learner._optimizer.param_groups[0]["lr"] == pytest.approx(expected * task.lr)
    assert learner.lr_schedule == (typed or "linear")
    learner.close()


def test_a_configured_optimizer_replaces_that_of_the_task() -> None:
    config = RunConfig(optimizer="adamw", lr=1e-3, device="cpu")
    learner = Learner(config, "a")
    assert type(learner._optimizer) is torch.optim.AdamW and learner.lr == 1e-3
    learner.step()
    learner.close()
    with pytest.raises(ConfigError, match="unknown optimizer 'adamm', did you mean 'adam'"):
        Learner(RunConfig(optimizer="adamm"), "a")


@pytest.mark.extended
@pytest.mark.live
def test_measuring_the_average_of_a_lone_peer_changes_no_bit(tmp_path: Path) -> None:
    config = RunConfig(steps=60, seed=3, eval_every=20, eval_average_every=20)
    run(config, PeerConfig(id="solo", seed=3, out=tmp_path))
    rows = [r for r in read_metrics(tmp_path / "metrics.jsonl") if "average_peers" in r]
    assert [row["step"] for row in rows] == [20, 40, 60]
    for row in rows:
        assert (row["average_peers"], row["average_missing"]) == (1, [])
        assert row["average_accuracy"] == row["accuracy"]
        assert row["average_test_loss"] == row["test_loss"]
    require_plain_sgd(tmp_path, 60)


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("join", [(), ("127.0.0.1:9",)], ids=["", "joins"])
def test_a_stopped_peer_leaves_or_gives_up_joining(tmp_path: Path, join: tuple[str, ...]) -> None:
    stop = threading.Event()
    threading.Timer(0.5 if join else 0.0, stop.set).start()
    if not join:
        assert stop.wait(LIMIT_S)
    report = run(RunConfig(), PeerConfig(join=join, out=tmp_path), stop=stop)
    assert (report.state, report.stats.steps, report.stats.weight_units) == ("left", 0, 0)
