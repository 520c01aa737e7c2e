"""Checkpoints of a peer of several processes: one whole model, and an optimizer per process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rumor.gossip import GoSGD
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.storage.checkpoint import read_checkpoint

from .processes import layers, nodes, spread, values_of

pytestmark = [pytest.mark.live, pytest.mark.extended]

Send = Callable[[Any], None]


def train(
    rank: int,
    send: Send,
    *,
    kind: str,
    folder: Path,
    steps: int,
    resumes: bool = False,
    ends: bool = True,
) -> None:
    torch.manual_seed(rank)
    model = spread(layers(5 if resumes else 0), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    checkpoint = CheckpointConfig(folder=folder, every="5steps", kept=3)
    peer = Peer(model, PeerConfig(id="node", rule=GoSGD(p=0.0), checkpoint=checkpoint))
    peer.register(optimizer=optimizer)
    found = peer.resume()
    assert found is resumes
    send(peer.steps)
    with peer:
        while peer.steps < steps:
            optimizer.zero_grad()
            model(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
            peer.step()
            if peer.steps == 8:
                # A periodic checkpoint is late where the one before is still being written.
                peer.save_checkpoint(wait=True)
        if ends:
            peer.save_checkpoint(wait=True)
        send((peer.steps, values_of(model)))


@pytest.mark.parametrize("kind", ["ddp", "fsdp3", "hsdp", "tp"])
def test_a_resumed_run_equals_an_uninterrupted_run(tmp_path: Path, kind: str) -> None:
    with nodes() as make:
        whole = make(kind, train, tmp_path / "a", folder=tmp_path / "one", steps=14)
        first = make(kind, train, tmp_path / "b", folder=tmp_path / "two", steps=7)
        assert {*whole.receive_all(), *first.receive_all()} == {0}
        (_, expected), *_ = whole.receive_all()
        first.receive_all()
        assert {*whole.end(), *first.end()} == {0}
        second = make(kind, train, tmp_path / "c", folder=tmp_path / "two", steps=14, resumes=True)
        assert {*second.receive_all()} == {7}
        for steps, found in second.receive_all():
            assert steps == 14 and found == expected
        assert {*second.end()} == {0}


def test_only_a_checkpoint_of_all_processes_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    with nodes() as make:
        first = make("fsdp", train, tmp_path / "a", folder=folder, steps=12)
        first.receive_all(), first.receive_all(), first.end()
        own = sorted(folder.glob("*.safetensors"))
        theirs = sorted((folder / "rank-1").glob("*.safetensors"))
        assert [path.name for path in own] == [path.name for path in theirs[-len(own) :]]
        theirs[-1].unlink()
        theirs[-2].write_bytes(b"damaged")
        second = make("fsdp", train, tmp_path / "b", folder=folder, steps=12, resumes=True)
        expected = read_checkpoint(own[-3]).head["steps"]
        assert second.receive_all() == [expected, expected]
        assert len(second.receive_all()) == 2 and second.end() == [0, 0]
