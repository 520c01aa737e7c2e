"""Founders of a run begin with the model of the first one."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError, TransportError
from rumor.train.runtime.script.initial_model import adopt, leave
from rumor.train.tensors.vector import Vector


def adopted(model: nn.Module, folder: Path, *, stopped: bool = False) -> None:
    stop = threading.Event()
    if stopped:
        stop.set()
    adopt(model, Vector(model).schema, folder, stop, None)


def test_another_becomes_a_copy_of_the_first(tmp_path: Path) -> None:
    first, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    nn.init.normal_(first.weight)
    leave(first, Vector(first).schema, tmp_path / "new")
    adopted(other, tmp_path / "new")
    assert torch.equal(first.weight, other.weight)


def test_another_model_is_refused_by_the_name_of_its_tensor(tmp_path: Path) -> None:
    model, other = nn.Linear(2, 1), nn.Linear(3, 1)
    leave(model, Vector(model).schema, tmp_path)
    before = other.weight.clone()
    with pytest.raises(ConfigError, match=r"weight is \(1, 3\) .* and \(1, 2\)"):
        adopted(other, tmp_path)
    with pytest.raises(ConfigError, match="bias is absent here"):
        adopted(nn.Linear(2, 1, bias=False), tmp_path)
    assert torch.equal(other.weight, before)


def test_who_is_told_to_stop_waits_no_longer(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="left no model"):
        adopted(nn.Linear(2, 1), tmp_path, stopped=True)
