"""Models that are compiled, tied, transposed or partly frozen are replayed bit for bit."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.gossip import ProtocolConfig
from rumor.sim.replay.replay import replay
from rumor.train import PeerConfig
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run

# The test changes BASE, and with it the values of the frozen layer.
TASK = """
import torch
from torch import nn
from rumor.train import Task

BASE = 0.5

def model():
    linear = nn.Linear
    layers = nn.Sequential(linear(6, 6), nn.ReLU(), linear(6, 6), linear(6, 8), linear(8, 1))
    layers[2].weight.data = layers[0].weight.data
    layers[3].requires_grad_(False).weight.fill_(BASE)
    layers[4].weight = nn.Parameter(torch.randn(8, 1).t())
    return torch.compile(layers, backend="eager")

def kinds():
    inputs = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
    data = inputs, inputs.sum(dim=1, keepdim=True)
    return Task(name="kinds", train=data, test=data, model=model, loss=nn.functional.mse_loss,
                lr=0.01, batch_size=8, steps=12)
"""


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("frozen_may_differ", [False, True])
def test_a_replay_rebuilds_the_schema_of_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen_may_differ: bool
) -> None:
    (tmp_path / "kindstask.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    config = RunConfig(task="kindstask:kinds", journal=True, eval_every=5)
    protocol = ProtocolConfig(found_s=0.05, seek_s=0.05)
    peer = PeerConfig(id="a", frozen_may_differ=frozen_may_differ, protocol=protocol, linger_s=0)
    peer = replace(peer, out=tmp_path / "a")
    try:
        assert run(config, peer).state == "finished"
        found = replay(tmp_path / "a")
        assert found.identical, found.difference
        monkeypatch.setattr(sys.modules["kindstask"], "BASE", 0.25)
        changed = replay(tmp_path / "a")
    finally:
        sys.modules.pop("kindstask", None)
    assert changed.difference is not None
    if not frozen_may_differ:
        assert changed.difference.record == 0 and "other tensors" in changed.difference.what
