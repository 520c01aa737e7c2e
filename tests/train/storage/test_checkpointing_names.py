"""What is registered cannot take the place of the model's own tensors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.model import state_dict


@pytest.mark.parametrize("name", ["model", "anchor", "rng", "own", "ema.shadow"])
def test_names_of_other_tensors_are_refused(tmp_path: Path, name: str) -> None:
    checkpoint = CheckpointConfig(folder=tmp_path)
    peer = Peer(nn.Linear(2, 2), PeerConfig(checkpoint=checkpoint))
    with pytest.raises(ConfigError, match=f"{name} cannot be the name"):
        peer.register(**{name: nn.Linear(2, 2)})


def test_a_checkpoint_remembers_the_order_in_memory_and_what_was_frozen(tmp_path: Path) -> None:
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
