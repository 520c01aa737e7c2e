"""Partitions: every sample goes to one peer, no peer is empty, and skew is as requested."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rumor.gossip.errors import ConfigError
from rumor.train.tasks.partition import split

LABELS = np.arange(1000) % 10
DISJOINT = ["iid", "dirichlet:0.1", "dirichlet:100", "shards:1", "shards:2"]


def classes_per_peer(parts: list[NDArray[np.int64]], labels: NDArray[np.int64]) -> list[int]:
    return [len(np.unique(labels[part])) for part in parts]


@pytest.mark.extended
@settings(deadline=None)
@given(
    spec=st.sampled_from(["iid", "dirichlet:0.01", "dirichlet:1", "shards:1"]),
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    n=st.integers(1, 20),
    seed=st.integers(0, 3),
)
def test_each_sample_goes_to_one_peer(spec: str, labels: list[int], n: int, seed: int) -> None:
    n = min(n, len(labels))
    parts = split(spec, np.array(labels), n, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    sizes = [len(part) for part in parts]
    assert len(parts) == n and max(sizes) - min(sizes) <= 1 <= min(sizes)


def equal(one: list[NDArray[np.int64]], other: list[NDArray[np.int64]]) -> bool:
    return all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("spec", ["shared", *DISJOINT])
def test_a_split_depends_only_on_its_arguments_and_seed(spec: str) -> None:
    found = split(spec, LABELS, 7, 3)
    assert equal(found, split(spec, LABELS, 7, 3)) and {p.dtype for p in found} == {np.dtype("i8")}
    assert equal(found, split(spec, torch.from_numpy(LABELS), 7, 3))
    assert equal(found, split(spec, LABELS, 7, 4)) is (spec == "shared")


def test_shared_gives_all_samples_to_every_peer() -> None:
    parts = split("shared", LABELS[:3], 5, 0)
    assert [part.tolist() for part in parts] == [[0, 1, 2]] * 5


def test_dirichlet_proportions_are_unbiased_and_spread_less_for_larger_alpha() -> None:
    labels = np.minimum(np.arange(2000) % 4, 2)
    spreads = []
    for alpha in (0.1, 1.0, 10.0, 100.0):
        parts = [p for seed in range(50) for p in split(f"dirichlet:{alpha}", labels, 5, seed)[:1]]
        shares = [(labels[part] == 2).mean() for part in parts]
        spreads.append(np.std(shares))
        assert np.mean(shares) == pytest.approx(0.5, abs=4 * spreads[-1] / np.sqrt(50))
    assert spreads == sorted(spreads, reverse=True)


@pytest.mark.parametrize("alpha", ["1e-300", "1e-9", "1e9", "1e300"])
def test_an_extreme_alpha_assigns_every_sample(alpha: str) -> None:
    parts = split(f"dirichlet:{alpha}", LABELS, 9, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))


def test_dirichlet_treats_all_peers_equally() -> None:
    # If peers were served one after another, the last would get only the leftovers.
    counts = np.zeros(10)
    for seed in range(200):
        counts += classes_per_peer(split("dirichlet:0.1", LABELS, 10, seed), LABELS)
    assert counts.max() / counts.min() < 1.15


def test_shards_have_few_classes_or_ranges_of_real_numbers() -> None:
    assert max(classes_per_peer(split("shards:2", LABELS, 5, 0), LABELS)) <= 2
    values = np.random.default_rng(0).standard_normal((100, 1))
    parts = sorted((values[part] for part in split("shards:1", values, 4, 0)), key=np.min)
    assert all(low.max() < high.min() for low, high in pairwise(parts))
    assert len(split("shards:1", torch.rand(20, dtype=torch.bfloat16), 4, 0)) == 4


def test_dirichlet_uses_deciles_of_real_numbers_as_classes() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    tenths = (np.argsort(np.argsort(values)) // 100).astype(np.int64)
    assert np.mean(classes_per_peer(split("dirichlet:0.01", values, 10, 0), tenths)) < 4


@pytest.mark.parametrize("spec", ["dirichlet:1", "shards:1"])
def test_targets_of_several_values_are_refused_where_order_matters(spec: str) -> None:
    with pytest.raises(ConfigError, match="use iid or shared"):
        split(spec, torch.zeros(8, 2), 2, 0)
    assert len(split("iid", torch.zeros(8, 2), 2, 0)) == 2


@pytest.mark.parametrize(
    ("spec", "n", "message"),
    [
        ("iid", 11, "or partition shared"),
        ("dirichlet:1", 11, "or partition shared"),
        ("shards:3", 4, "or partition shared"),
        ("iid", 0, "number of peers is 0"),
    ],
)
def test_too_few_samples_or_no_peers_are_refused(spec: str, n: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split(spec, LABELS[:10], n, 0)


INVALID = """
dirichlet dirichlet: dirichlet:0 dirichlet:-1 dirichlet:nan dirichlet:x dirichlet:inf
shards shards: shards:0 shards:-1 shards:1.5 iid: iid:2 shared:1 random
""".split()


@pytest.mark.parametrize("spec", ["", *INVALID])
def test_an_invalid_spec_is_refused_by_name(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"partition {spec!r}"):
        split(spec, LABELS, 4, 0)


OWN = """
import numpy as np

def lists(targets, n, seed):
    assert isinstance(targets, np.ndarray)
    return [[int(targets[peer]), seed] for peer in range(n)]

def array(targets, n, seed):
    return np.arange(10).reshape(n, -1)

def few(targets, n, seed): return [[0]]
def nothing(targets, n, seed): return None
def text(targets, n, seed): return "iid"
def failing(targets, n, seed): return 1 / 0
def empty(targets, n, seed): return [[0], []]
def beyond(targets, n, seed): return [[0], [3, 10]]
def negative(targets, n, seed): return [[0], [-1]]
def real(targets, n, seed): return [[0], [1.0]]
def flags(targets, n, seed): return [[0], [True]]
def nested(targets, n, seed): return [[0], [[1], [2, 3]]]
def number(targets, n, seed): return [0, [1]]
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module ``ownparts`` in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("ownparts.py").write_text(OWN)
    yield
    sys.modules.pop("ownparts", None)


@pytest.mark.usefixtures("own_module")
def test_a_function_receives_targets_peers_and_seed() -> None:
    found = split("ownparts:lists", LABELS[:10], 3, 7)
    assert [part.tolist() for part in found] == [[LABELS[peer], 7] for peer in range(3)]
    assert all(part.dtype == np.int64 for part in found)
    assert len(split("ownparts:lists", torch.zeros(4, dtype=torch.bfloat16), 2, 0)) == 2
    assert split("ownparts:array", LABELS, 5, 0)[4][0] == 8


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("ownparts:few", "returned a list of 1: it must return a list of indices for each of 2"),
        ("ownparts:nothing", "returned a NoneType: it must"),
        ("ownparts:text", "returned a str"),
        ("ownparts:failing", r"raised ZeroDivisionError(.|\n)*ownparts\.py"),
        ("ownparts:empty", "the part of peer 1 is empty"),
        ("ownparts:beyond", "the part of peer 1 has index 10: there are 10 samples, 0 to 9"),
        ("ownparts:negative", "the part of peer 1 has index -1"),
        ("ownparts:real", "the part of peer 1 must be a list of integers"),
        ("ownparts:flags", "the part of peer 1 must be a list of integers"),
        ("ownparts:nested", "the part of peer 1 must be a list of integers"),
        ("ownparts:number", "the part of peer 0 must be a list of integers"),
        ("json_without:function", "there is no module 'json_without'"),
    ],
)
def test_invalid_results_of_a_function_are_refused(partition: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split(partition, LABELS[:10], 2, 0)
