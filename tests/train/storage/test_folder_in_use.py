"""A folder whose peer runs is nobody else's: a second one is refused before it touches anything."""

import gc
from pathlib import Path

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.storage.incarnation import lock_folder

pytestmark = pytest.mark.live


def peer(folder: Path, id: str = "p") -> Peer:
    checkpoint = CheckpointConfig(folder=folder, every="never")
    return Peer(nn.Linear(4, 4), PeerConfig(id=id, linger_s=0, checkpoint=checkpoint))


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
