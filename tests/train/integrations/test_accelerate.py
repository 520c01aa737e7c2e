"""Peers in loops with Accelerate."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, ProtocolConfig
from rumor.gossip.errors import LocalProtocolError
from rumor.train import Peer, PeerConfig
from rumor.train.integrations.accelerate import keep_in_checkpoints

from .restart import SAVED, kill_and_resume

accelerate: Any = pytest.importorskip("accelerate", reason="needs rumor[accelerate]")

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.live,
    # Libraries raise warnings that do not concern rumor.
    pytest.mark.filterwarnings("ignore"),
]

CONFIG = PeerConfig(protocol=ProtocolConfig(seek_s=0.05, found_alone_s=0.3), linger_s=0.0)


class Tied(nn.Module):
    """Two layers, one weight under two names, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.second(self.norm(self.first(inputs)))


class Ignored:
    """Takes the place of a peer in a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["steps"] == 5


def prepare() -> tuple[Any, Any, Any]:
    accelerator = accelerate.Accelerator(cpu=True)
    net = Tied()
    model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=0.01))
    return accelerator, model, optimizer


def train(accelerator: Any, model: Any, optimizer: Any, peer: Peer, steps: int) -> None:
    while peer.steps < steps:
        optimizer.zero_grad()
        accelerator.backward(model(torch.randn(8, 4)).square().mean())
        optimizer.step()
        peer.step()


@pytest.mark.parametrize("safe", [True, False])
def test_a_checkpoint_has_the_whole_model_and_the_peer(tmp_path: Path, safe: bool) -> None:
    accelerator, model, optimizer = prepare()
    peer = Peer(model, CONFIG, checkpoints=False)
    keep_in_checkpoints(accelerator, peer)
    with peer:
        train(accelerator, model, optimizer, peer, 5)
        accelerator.save_state(tmp_path, safe_serialization=safe)
        with pytest.raises(LocalProtocolError, match="resume before"):
            accelerator.load_state(tmp_path)
        expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    again, other, moments = prepare()
    back = Peer(other, CONFIG, checkpoints=False)
    keep_in_checkpoints(again, back)
    again.load_state(tmp_path)
    assert back.id == peer.id and back.steps == 5
    loaded = [other.state_dict()]
    # A script without peers reads the checkpoint like any other of Accelerate.
    plain = accelerate.Accelerator(cpu=True)
    plain.register_for_checkpointing(Ignored())
    loaded.append(plain.prepare(Tied()).state_dict())
    plain.load_state(tmp_path)
    for name, tensor in expected.items():
        assert all(torch.equal(state[name], tensor) for state in loaded), name
    with back:
        train(again, other, moments, back, 7)
    assert back.stats().swarm == peer.stats().swarm and back.steps == 7


def test_groups_of_processes_are_refused() -> None:
    class Group:
        """Stands in for an Accelerator that torchrun has started."""

        num_processes = 2
        distributed_type = "DistributedType.MULTI_GPU"

    class Engine:
        """Stands in for an Accelerator with DeepSpeed."""

        num_processes = 1
        distributed_type = "DistributedType.DEEPSPEED"

    peer = Peer(nn.Linear(2, 2), CONFIG)
    with pytest.raises(ConfigError, match="2 processes train one model together"):
        keep_in_checkpoints(Group(), peer)
    with pytest.raises(ConfigError, match="DeepSpeed trains weights of its own"):
        keep_in_checkpoints(Engine(), peer)


def test_a_killed_process_resumes_and_weight_is_exact(tmp_path: Path) -> None:
    script = f"""
import os, time
from pathlib import Path
import torch
from accelerate import Accelerator
from torch import nn
from rumor.train import Peer, environment
from rumor.train.integrations.accelerate import keep_in_checkpoints

env = environment()
accelerator = Accelerator(cpu=True)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=0.01))
peer = Peer(model, checkpoints=False)
keep_in_checkpoints(accelerator, peer)
if os.environ["RESUME"]:
    accelerator.load_state(env.out / "kept")
with peer:
    while not Path(os.environ["OVER"]).exists():
        inputs = torch.randn(8, 4)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), (inputs.sum(1) > 0).long())
        accelerator.backward(loss)
        optimizer.step()
        peer.step(loss=loss)
        if peer.steps == {SAVED}:
            accelerator.save_state(env.out / "draft")
            (env.out / "draft").rename(env.out / "kept")
        time.sleep(0.005)
"""
    kill_and_resume(tmp_path, script, "kept")
