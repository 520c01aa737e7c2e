"""What is registered cannot take the place of the model's own tensors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.storage.checkpoint import flatten_state
from rumor.train.storage.files import WriterThread


@pytest.mark.parametrize("name", ["model", "anchor", "rng", "ema.shadow"])
def test_names_of_other_tensors_are_refused(tmp_path: Path, name: str) -> None:
    checkpoint = CheckpointConfig(folder=tmp_path)
    peer = Peer(nn.Linear(2, 2), PeerConfig(checkpoint=checkpoint))
    with pytest.raises(ConfigError, match=f"{name} cannot be the name"):
        peer.register(**{name: nn.Linear(2, 2)})


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(2, dtype=torch.complex128),
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(2, device="meta"),
    ],
)
def test_a_tensor_that_cannot_be_written_is_named(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"sgd\.momentum is a tensor of"):
        flatten_state({"momentum": value}, "sgd")


def test_whatever_goes_wrong_with_one_file_the_next_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer, written = WriterThread(), []

    def fail() -> None:
        raise MemoryError("no room")

    writer.add("a", fail)
    assert writer.wait()
    writer.add("b", lambda: written.append("b"))
    writer.close()
    assert written == ["b"] and "a could not be written" in caplog.text
