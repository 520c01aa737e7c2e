"""Checkpoints in a custom training loop: registered objects are restored after any stop."""

import gc
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, GoSGD
from rumor.gossip.errors import LocalProtocolError
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.model import state_dict
from rumor.train.storage.environment import uptime_s
from rumor.train.storage.incarnation import (
    last_incarnation,
    lock_folder,
    next_incarnation,
    note_incarnation,
)
from rumor.train.storage.jsonl import read_metrics

from ...waiting import LIMIT_S, turning, until
from ..members import linear, settings

pytestmark = pytest.mark.live


class Loop:
    """A typical training loop."""

    def __init__(self, config: PeerConfig) -> None:
        torch.manual_seed(0)
        self.first = nn.Linear(3, 4)
        self.model = nn.Sequential(self.first, nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, gamma=0.5)
        self.peer = Peer(self.model, config)
        self.peer.register(optimizer=self.optimizer, scheduler=self.scheduler)

    def train(self, steps: int) -> list[float]:
        losses = []
        for _ in range(self.peer.steps, steps):
            inputs = torch.randn(8, 3)
            loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.peer.step()
            losses.append(loss.item())
        return losses


def config(folder: Path, **changes: Any) -> PeerConfig:
    checkpoint = CheckpointConfig(folder=folder, every=f"{changes.pop('every', 5)}steps")
    return settings(changes.pop("id", None), checkpoint=checkpoint, **changes)


def crash(peer: Peer) -> None:
    """Enter the peer and close it without leaving, as in a crash."""
    peer.__enter__()
    peer._close()


def test_a_crashed_peer_resumes_from_its_last_checkpoint(tmp_path: Path) -> None:
    loop = Loop(config(tmp_path))
    with pytest.raises(ZeroDivisionError), loop.peer:
        loop.train(7)
        assert loop.peer._folder._writer.wait()
        raise ZeroDivisionError
    message = "holds checkpoints of an earlier incarnation"
    with pytest.raises(ConfigError, match=message), Loop(config(tmp_path)).peer:
        pass
    other = Peer(nn.Linear(3, 4), config(tmp_path))
    with pytest.raises(ConfigError, match=r"0\.weight \(4, 3\) float32 in it"):
        other.resume()
    other._folder.close()
    again = Loop(config(tmp_path))
    assert again.peer.resume() and again.peer.steps == 5
    assert again.scheduler.last_epoch == 5 and again.optimizer.param_groups[0]["lr"] == 0.025


def test_a_peer_killed_before_its_first_checkpoint_keeps_its_id(tmp_path: Path) -> None:
    first = Loop(config(tmp_path))
    crash(first.peer)
    second = Loop(config(tmp_path))
    assert not second.peer.resume()
    with second.peer:
        assert second.peer.id == first.peer.id
    named = Loop(config(tmp_path, id="other"))
    with pytest.raises(ConfigError, match="id is other: the checkpoint is of peer"):
        named.peer.resume()


def test_objects_registered_after_resuming_must_fit_the_state(tmp_path: Path) -> None:
    with (first := Loop(config(tmp_path))).peer:
        first.train(4)
    linear, normed = nn.Linear(3, 4), nn.BatchNorm1d(4)
    model = nn.Sequential(linear, normed, nn.Linear(4, 1))
    parameters, peer = list(model.parameters()), Peer(model, config(tmp_path))
    assert peer.resume()
    assert torch.equal(linear.weight, first.first.weight)
    assert normed.num_batches_tracked is not None and int(normed.num_batches_tracked) == 4
    with pytest.raises(ConfigError, match=r"of optimizer does not fit this SGD: it has .*betas.*"):
        peer.register(optimizer=torch.optim.SGD(parameters, 0.1))
    with pytest.raises(ConfigError, match="this Adam: ValueError: loaded state dict contains a"):
        peer.register(optimizer=torch.optim.Adam(parameters[:1]))
    peer.register(optimizer=(optimizer := torch.optim.Adam(parameters)))
    assert optimizer.param_groups[0]["lr"] == 0.025
    with pytest.raises(ConfigError, match="the state of scheduler: register it, too"), peer:
        pass
    with pytest.raises(ConfigError, match="no state of sampler: it has optimizer, scheduler"):
        peer.register(sampler=optimizer)


@pytest.mark.extended
def test_without_a_folder_objects_are_registered_and_checkpoints_refused() -> None:
    peer = Peer(nn.Linear(2, 1), PeerConfig(linger_s=0))
    peer.register(optimizer=torch.optim.SGD([torch.zeros(1, requires_grad=True)]))
    for call in (peer.resume, peer.save_checkpoint):
        with pytest.raises(LocalProtocolError):
            call()
    with peer:
        peer.step()
        assert peer.steps == 1
        with pytest.raises(LocalProtocolError, match="no checkpoints are kept"):
            peer.save_checkpoint()


@pytest.mark.extended
def test_an_unsupported_object_does_not_end_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"file": object()}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            raise AssertionError

    with (loop := Loop(config(tmp_path, every=2))).peer:
        loop.peer.register(odd=Odd())
        with caplog.at_level(logging.WARNING, "rumor"):
            loop.train(3)
        with pytest.raises(ConfigError, match=r"odd\.file is a builtins\.object"):
            loop.peer.save_checkpoint()
    assert "no checkpoint was written: odd.file" in caplog.text


@pytest.mark.extended
def test_a_diverged_model_is_not_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (loop := Loop(config(tmp_path, every=100))).peer:
        loop.train(1)
        assert loop.peer.save_checkpoint(wait=True)
        with torch.no_grad():
            loop.first.bias[0] = float("nan")
        with caplog.at_level(logging.WARNING, "rumor"):
            loop.peer.leave()
    assert "0.bias is not finite" in caplog.text
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1


@pytest.mark.extended
@pytest.mark.parametrize("wire", ["int8", "topk:0.5"])
def test_the_anchor_is_restored_from_the_checkpoint(tmp_path: Path, wire: str) -> None:
    with (first := Loop(config(tmp_path, times={"wire": wire}))).peer:
        swarm = first.peer._running().protocol.swarm
        first.train(6)
    second = Loop(config(tmp_path, times={"wire": wire}))
    second.peer.resume()
    with second.peer:
        protocol_now = second.peer._running().protocol
        assert protocol_now.swarm == swarm
        if wire == "int8":
            assert protocol_now.state.is_anchored and second.peer._vector.kept_anchor() == swarm


FOUND = {"found_alone_s": LIMIT_S}
"""A returning peer waits this long for its swarm before it founds another."""


@contextmanager
def running_founder(folder: Path, **changes: Any) -> Iterator[tuple[Loop, dict[str, Any]]]:
    """Run a founder whose model does not change; yield it and the settings that join it."""
    options: dict[str, Any] = {"times": FOUND, "rule": GoSGD(p=1e-9), "every": 10**9}
    loop = Loop(config(folder, id="a", **options | changes))
    with loop.peer:
        with turning(loop.peer.step):
            yield loop, {"id": "b", "times": FOUND, "join": (loop.peer.address or "",)}
        loop.peer.leave()


@pytest.mark.extended
def test_a_peer_starts_after_the_last_incarnation_that_its_swarm_knows(tmp_path: Path) -> None:
    """Its folder is lost, and its clock has gone back."""
    with running_founder(tmp_path / "a") as (_, joins):
        later = time.time_ns() // 10**6 + 3_600_000
        (tmp_path / "old").mkdir()
        note_incarnation(tmp_path / "old", "b", later)
        crash(Loop(config(tmp_path / "old", **joins)).peer)
        with (second := Loop(config(tmp_path / "new", **joins))).peer:
            assert second.peer._running().protocol.account.incarnation > later + 1
            assert second.peer.weight > 0
            second.peer.leave()
        assert next_incarnation(tmp_path / "new", "b", later / 1000) > later + 2


@pytest.mark.extended
def test_members_are_recorded_for_the_next_incarnation(tmp_path: Path) -> None:
    with running_founder(tmp_path / "a", out=tmp_path / "a") as (one, joins):
        with (two := Loop(config(tmp_path / "b", out=tmp_path / "b", **joins))).peer:
            folder = two.peer._folder
            folder._note._since_s -= 60
            two.train(1)
            assert folder._writer.wait()
            two.peer.leave()
        until(lambda: one.peer.members == ("a",))
    assert joins["join"][0] in (tmp_path / "b" / "life.json").read_text()
    events = [row["event"] for row in read_metrics(tmp_path / "a" / "events.jsonl")]
    assert events[0] == "founded" and {"met", "left"} <= set(events)


def test_addresses_of_peers_that_are_not_met_again_are_kept(tmp_path: Path) -> None:
    former = tuple(f"tcp://127.0.0.1:{port}" for port in range(1, 100))
    note_incarnation(tmp_path, "a", 1, ("not an address", *former))
    config = settings("a", out=tmp_path)
    with Peer(linear(), config) as peer:
        peer._folder._note._since_s -= 60
        peer.step()
        assert peer._folder._writer.wait()
    last = last_incarnation(tmp_path)
    assert last is not None and last.addresses == former[:64]


@pytest.mark.extended
def test_checkpoints_are_written_on_request_and_at_intervals(tmp_path: Path) -> None:
    with (loop := Loop(config(tmp_path, every=4))).peer:
        with pytest.raises(LocalProtocolError, match="before `with`"):
            loop.peer.resume()
        for step in range(1, 9):
            loop.train(step)
            assert loop.peer._folder._writer.wait()
        assert len(list(tmp_path.glob("checkpoint-*"))) == 2
        assert loop.peer.save_checkpoint(wait=True)
        assert (tmp_path / "checkpoint-000003.safetensors").exists()


@pytest.mark.extended
def test_a_failing_disk_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    with caplog.at_level(logging.WARNING, "rumor"):
        with (loop := Loop(config(tmp_path, every=2))).peer:
            monkeypatch.setattr(os, "fsync", fail)
            for step in range(1, 5):
                loop.train(step)
                assert loop.peer._folder._writer.wait()
    assert caplog.text.count("the checkpoint could not be written, training goes on") == 1
    assert not list(tmp_path.glob("checkpoint*"))


def checkpointed_peer(folder: Path) -> Peer:
    return Peer(linear(), settings("p", checkpoint=CheckpointConfig(folder=folder, every="never")))


def test_resuming_in_a_folder_in_use_changes_nothing(tmp_path: Path) -> None:
    with checkpointed_peer(tmp_path) as running:
        running.step()
        assert running.save_checkpoint(wait=True)
        (tmp_path / "checkpoint-000002.safetensors.draft").write_text("growing")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        second = checkpointed_peer(tmp_path)
        values = second._vector.flats[0].clone()
        with pytest.raises(ConfigError, match="is in use"):
            second.resume()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert torch.equal(second._vector.flats[0], values)


@pytest.mark.extended
def test_a_resumed_peer_that_never_runs_releases_its_folder(tmp_path: Path) -> None:
    with checkpointed_peer(tmp_path) as first:
        first.step()
    assert checkpointed_peer(tmp_path).resume()
    gc.collect()
    lock_folder(tmp_path).close()


@pytest.mark.extended
def test_the_clock_of_a_peer_runs_while_the_machine_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[float] = []

    def uptime_after_sleep() -> float:
        readings.append(uptime_s() + 100_000.0 * len(readings))
        return readings[-1]

    with checkpointed_peer(tmp_path) as running:
        monkeypatch.setattr("rumor.train.runtime.runner.uptime_s", uptime_after_sleep)
        running.step()
        assert readings


@pytest.mark.parametrize("name", ["model", "anchor", "rng", "own", "ema.shadow"])
def test_reserved_and_dotted_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be the name"):
        checkpointed_peer(tmp_path).register(**{name: nn.Linear(2, 2)})


def test_a_checkpoint_records_memory_order_and_frozen_parameters(tmp_path: Path) -> None:
    def peer(value: float, memory_format: torch.memory_format = torch.channels_last) -> Peer:
        model: Any = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 3, 2))
        model[0].requires_grad_(False)
        nn.init.constant_(model[0].weight, value)
        nn.init.zeros_(model[0].bias)
        model.to(memory_format=memory_format)
        return Peer(model, PeerConfig(id="a", out=tmp_path, linger_s=0))

    with peer(0.5) as first:
        first.step()
        kept = state_dict(first._vector.layout.module)
    again = peer(0.5)
    assert again.resume() and again.steps == 1
    assert torch.equal(state_dict(again._vector.layout.module)["1.weight"], kept["1.weight"])
    again._folder.close()
    with pytest.raises(ConfigError, match=r"0\.weight .* of checksum .* in it: load the same"):
        peer(0.25).resume()
    with pytest.raises(ConfigError, match=r"memory order \(0, 2, 3, 1\) in it"):
        peer(0.5, torch.contiguous_format).resume()
