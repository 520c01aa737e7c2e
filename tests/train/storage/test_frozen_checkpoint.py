"""A checkpoint written by version 0.1.0 (commit 62639e4) still loads, whatever moved since."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file

from rumor.train import CheckpointConfig, Peer, PeerConfig

KEPT = Path(__file__).with_name("checkpoint-1")


def test_a_checkpoint_of_version_1_resumes_with_model_optimizer_and_step(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    shutil.copytree(KEPT, folder)
    tensors = load_file(KEPT / "checkpoint-000002.safetensors")
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    config = PeerConfig(checkpoint=CheckpointConfig(folder=folder))
    peer = Peer(model, config)
    peer.register(optimizer=optimizer)

    assert peer.resume()

    assert peer.steps == 7
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, tensors[f"model.{name}"]), name
    momentum = optimizer.state[next(model.parameters())]["momentum_buffer"]
    assert torch.equal(momentum, tensors["optimizer.state.0.momentum_buffer"])
