"""Founders of a run start with the model of the first founder."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, TransportError
from rumor.train.runtime.script.initial_model import adopt, leave
from rumor.train.tensors.vector import Vector


def adopt_model(model: nn.Module, folder: Path, stop: threading.Event) -> None:
    adopt(model, Vector(model).schema, folder, stop, None)


def test_a_founder_copies_the_first_model_if_the_schemas_match(tmp_path: Path) -> None:
    first, other, stop = nn.Linear(2, 1), nn.Linear(2, 1), threading.Event()
    leave(first, Vector(first).schema, tmp_path / "new")
    adopt_model(other, tmp_path / "new", stop)
    assert torch.equal(first.weight, other.weight)
    wide = nn.Linear(3, 1)
    before = wide.weight.clone()
    with pytest.raises(ConfigError, match=r"weight is \(1, 3\) .* and \(1, 2\)"):
        adopt_model(wide, tmp_path / "new", stop)
    with pytest.raises(ConfigError, match="bias is absent here"):
        adopt_model(nn.Linear(2, 1, bias=False), tmp_path / "new", stop)
    assert torch.equal(wide.weight, before)
    stop.set()
    with pytest.raises(TransportError, match="left no model"):
        adopt_model(other, tmp_path / "nobody", stop)
