"""The task ``digits``: its table and its split are scikit-learn's, which is not imported."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from rumor.train.tasks import digits
from rumor.train.tasks.registry import load_task

ALONE = """
import sys
from rumor.train.tasks.registry import load_task
load_task("digits", seed=0)
load_task("noisy-digits", seed=0)
assert "sklearn" not in sys.modules
"""


def test_the_data_are_those_of_scikit_learn_bit_for_bit() -> None:
    pixels, labels = load_digits(return_X_y=True)
    found = train_test_split(pixels, labels, test_size=360, stratify=labels, random_state=0)
    train, test, train_labels, test_labels = map(torch.from_numpy, found)
    task = load_task("digits", seed=0)
    assert torch.equal(task.train[0], train.float() / 16)
    assert torch.equal(task.test[0], test.float() / 16)
    assert torch.equal(task.train[1], train_labels.long())
    assert torch.equal(task.test[1], test_labels.long())


@given(
    counts=st.lists(st.integers(2, 60), min_size=2, max_size=12),
    part=st.floats(0.2, 0.6),
    order=st.integers(0, 99),
)
def test_any_labels_are_split_as_scikit_learn_does(
    counts: list[int], part: float, order: int
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(order).shuffle(labels)
    n_test = min(max(len(counts), int(part * len(labels))), len(labels) - len(counts))
    train, test = digits._stratified(labels, n_test)
    indices = np.arange(len(labels))
    expected = train_test_split(indices, test_size=n_test, stratify=labels, random_state=0)
    assert np.array_equal(train, expected[0]) and np.array_equal(test, expected[1])


@pytest.mark.extended
def test_scikit_learn_is_not_imported_for_them() -> None:
    subprocess.run([sys.executable, "-P", "-c", ALONE], check=True)


@pytest.mark.parametrize("folder", [None, "/nowhere"])
def test_where_the_table_is_not_found_scikit_learn_is_asked(
    monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    expected = digits._read_digits()
    spec = None
    if folder is not None:
        spec = importlib.util.spec_from_loader("sklearn", loader=None, is_package=True)
        assert spec is not None and spec.submodule_search_locations is not None
        spec.submodule_search_locations.append(folder)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    for one, two in zip(digits._read_digits(), expected, strict=True):
        assert np.array_equal(one, two) and one.dtype == two.dtype
