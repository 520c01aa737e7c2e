"""A folder whose peer runs is nobody else's: a second one is refused before it touches anything."""

import gc
from pathlib import Path

import pytest
import torch

from rumor.gossip import ConfigError
from rumor.train import CheckpointConfig, Peer
from rumor.train.storage.environment import uptime_s
from rumor.train.storage.incarnation import lock_folder

from ..members import linear, settings

pytestmark = pytest.mark.live


def peer(folder: Path) -> Peer:
    return Peer(linear(), settings("p", checkpoint=CheckpointConfig(folder=folder, every="never")))


def test_who_resumes_in_a_folder_in_use_changes_nothing(tmp_path: Path) -> None:
    with peer(tmp_path) as running:
        running.step()
        assert running.save_checkpoint(wait=True)
        (tmp_path / "checkpoint-000002.safetensors.draft").write_text("growing")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        second = peer(tmp_path)
        values = second._vector.flats[0].clone()
        with pytest.raises(ConfigError, match="is in use"):
            second.resume()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert torch.equal(second._vector.flats[0], values)


@pytest.mark.extended
def test_who_has_resumed_and_never_runs_lets_go(tmp_path: Path) -> None:
    with peer(tmp_path) as first:
        first.step()
    assert peer(tmp_path).resume()
    gc.collect()
    lock_folder(tmp_path).close()


@pytest.mark.extended
def test_the_clock_of_a_peer_is_one_that_goes_on_while_the_machine_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def slept() -> float:
        told.append(uptime_s() + 100_000.0 * len(told))
        return told[-1]

    with peer(tmp_path) as running:
        monkeypatch.setattr("rumor.train.runtime.runner.uptime_s", slept)
        running.step()
        assert told
