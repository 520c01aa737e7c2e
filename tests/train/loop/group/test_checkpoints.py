"""Checkpoints of a peer of several processes, by the code on the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, GoSGD
from rumor.train import CheckpointConfig, Peer, PeerConfig

from .processes import fake_process_group, layers, nodes, spread, values_of

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "node.md"

Send = Callable[[Any], None]


def train(
    rank: int, send: Send, *, kind: str, folder: Path, steps: int, resumes: bool = False
) -> None:
    model = spread(layers(5 if resumes else 0), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    peer = Peer(model, PeerConfig(id="node", rule=GoSGD(p=0.0)))
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[2].split("```")[0]
    page: dict[str, Any] = {"model": model, "optimizer": optimizer, "peer": peer}
    exec(code, page)
    if resumes:
        page["restore"](folder)
    send(peer.steps)
    with peer:
        while peer.steps < steps:
            torch.manual_seed(100 * peer.steps + rank)
            optimizer.zero_grad()
            model(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
            peer.step()
        page["store"](folder)
        send((peer.steps, values_of(model)))


@pytest.mark.live
@pytest.mark.extended
@pytest.mark.skipif(not PAGE.exists(), reason="needs the docs")
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


def test_a_checkpoint_folder_is_refused(tmp_path: Path) -> None:
    with fake_process_group(2):
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        config = PeerConfig(checkpoint=CheckpointConfig(folder=tmp_path))
        with pytest.raises(ConfigError, match=r"takes no PeerConfig\.checkpoint"):
            Peer(model, config)
