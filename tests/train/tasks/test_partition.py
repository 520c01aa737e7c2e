"""Partitions: every sample to one peer, nobody empty, skew as asked for."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rumor.gossip.errors import ConfigError
from rumor.train.config import RunConfig
from rumor.train.tasks.partition import partition_as_json, partition_name, split

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
def test_each_sample_goes_to_one_peer_in_equal_numbers(
    spec: str, labels: list[int], n: int, seed: int
) -> None:
    n = min(n, len(labels))
    parts = split(spec, np.array(labels), n, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    sizes = [len(part) for part in parts]
    assert len(parts) == n and max(sizes) - min(sizes) <= 1 <= min(sizes)


@pytest.mark.parametrize("spec", ["shared", *DISJOINT])
def test_the_same_arguments_give_the_same_split(spec: str) -> None:
    for one, other in zip(split(spec, LABELS, 7, 3), split(spec, LABELS, 7, 3), strict=True):
        assert one.dtype == np.int64 and np.array_equal(one, other)


@pytest.mark.parametrize("spec", DISJOINT)
def test_another_seed_gives_another_split(spec: str) -> None:
    one, other = split(spec, LABELS, 7, 3), split(spec, LABELS, 7, 4)
    assert any(not np.array_equal(*pair) for pair in zip(one, other, strict=True))


def test_shared_gives_everything_to_everyone_even_more_peers_than_samples() -> None:
    parts = split("shared", LABELS[:3], 5, 0)
    assert [part.tolist() for part in parts] == [[0, 1, 2]] * 5


def test_a_small_alpha_means_few_classes_at_a_peer_and_a_large_one_all() -> None:
    few = classes_per_peer(split("dirichlet:0.01", LABELS, 10, 0), LABELS)
    all_of_them = classes_per_peer(split("dirichlet:1000", LABELS, 10, 0), LABELS)
    assert np.mean(few) < 4 and all_of_them == [10] * 10


def test_dirichlet_proportions_are_those_of_all_in_the_mean_and_nearer_for_a_larger_alpha() -> None:
    labels = np.minimum(np.arange(2000) % 4, 2)
    spreads = []
    for alpha in (0.1, 1.0, 10.0, 100.0):
        parts = [p for seed in range(50) for p in split(f"dirichlet:{alpha}", labels, 5, seed)[:1]]
        shares = [(labels[part] == 2).mean() for part in parts]
        spreads.append(np.std(shares))
        assert np.mean(shares) == pytest.approx(0.5, abs=4 * spreads[-1] / np.sqrt(50))
    assert spreads == sorted(spreads, reverse=True)


@pytest.mark.parametrize("alpha", ["1e-300", "1e-9", "1e9", "1e300"])
def test_an_extreme_alpha_still_deals_everything(alpha: str) -> None:
    parts = split(f"dirichlet:{alpha}", LABELS, 9, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))


def test_dirichlet_serves_all_peers_alike() -> None:
    # Dealt out one peer after another, the last would be left with what nobody wanted.
    counts = np.zeros(10)
    for seed in range(200):
        counts += classes_per_peer(split("dirichlet:0.1", LABELS, 10, seed), LABELS)
    assert counts.max() / counts.min() < 1.15


def test_shards_give_each_peer_at_most_that_many_classes_of_equal_size() -> None:
    assert max(classes_per_peer(split("shards:2", LABELS, 5, 0), LABELS)) <= 2


def test_shards_of_real_numbers_are_ranges_of_them() -> None:
    values = np.random.default_rng(0).standard_normal((100, 1))
    parts = sorted((values[part] for part in split("shards:1", values, 4, 0)), key=np.min)
    assert all(low.max() < high.min() for low, high in pairwise(parts))


def test_dirichlet_takes_the_tenths_of_real_numbers_for_classes() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    tenths = (np.argsort(np.argsort(values)) // 100).astype(np.int64)
    assert np.mean(classes_per_peer(split("dirichlet:0.01", values, 10, 0), tenths)) < 4


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.5", "shards:2"])
def test_tensors_and_arrays_are_split_alike(spec: str) -> None:
    for one, other in zip(
        split(spec, LABELS, 4, 0), split(spec, torch.from_numpy(LABELS), 4, 0), strict=True
    ):
        assert np.array_equal(one, other)


def test_bfloat16_targets_are_numbers_too() -> None:
    assert len(split("shards:1", torch.rand(20, dtype=torch.bfloat16), 4, 0)) == 4


@pytest.mark.parametrize("spec", ["dirichlet:1", "shards:1"])
def test_targets_of_several_values_are_refused_where_order_matters(spec: str) -> None:
    with pytest.raises(ConfigError, match="use iid or shared"):
        split(spec, torch.zeros(8, 2), 2, 0)
    assert len(split("iid", torch.zeros(8, 2), 2, 0)) == 2


@pytest.mark.parametrize(("spec", "n"), [("iid", 11), ("dirichlet:1", 11), ("shards:3", 4)])
def test_too_few_samples_are_answered_with_shared(spec: str, n: int) -> None:
    with pytest.raises(ConfigError, match="or partition shared"):
        split(spec, LABELS[:10], n, 0)


def test_no_peers_are_refused() -> None:
    with pytest.raises(ConfigError, match="number of peers is 0"):
        split("iid", LABELS, 0, 0)


@pytest.mark.parametrize(
    "spec",
    [
        *("dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:-1", "dirichlet:nan", "dirichlet:x"),
        *("dirichlet:inf", "shards", "shards:", "shards:0", "shards:-1", "shards:1.5"),
        *("", "iid:", "iid:2", "shared:1", "random"),
    ],
)
def test_an_invalid_spec_is_answered_with_the_valid_forms(spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split(spec, LABELS, 4, 0)
    said = str(caught.value)
    assert f"partition {spec!r}" in said


LISTS = [[0, 3, 5], [5, 1], [9]]


def in_parts(targets: Any, n: int, seed: int) -> list[list[int]]:
    return [[int(targets[peer]), seed] for peer in range(n)]


def test_lists_say_who_has_which_samples() -> None:
    for lists in (LISTS, [np.array(part) for part in LISTS], tuple(map(tuple, LISTS))):
        found = split(lists, LABELS[:10], 3, 0)
        assert [part.tolist() for part in found] == LISTS
        assert all(part.dtype == np.int64 for part in found)


def test_a_function_is_told_targets_peers_and_seed() -> None:
    found = split(in_parts, LABELS[:10], 3, 7)
    assert [part.tolist() for part in found] == [[LABELS[peer], 7] for peer in range(3)]

    def is_array(targets: Any, n: int, seed: int) -> list[list[int]]:
        assert isinstance(targets, np.ndarray)
        return [[0]] * n

    assert len(split(is_array, torch.rand(4, dtype=torch.bfloat16), 2, 0)) == 2
    assert split(lambda targets, n, seed: np.arange(10).reshape(n, -1), LABELS, 5, 0)[4][0] == 8


def test_lists_come_from_a_file_or_a_named_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("parts.json").write_text(json.dumps(LISTS))
    Path("ownparts.py").write_text("def listed(targets, n, seed):\n    return [[seed]] * n\n")
    assert [part.tolist() for part in split("parts.json", LABELS, 3, 0)] == LISTS
    assert [part.tolist() for part in split("ownparts:listed", LABELS, 2, 4)] == [[4], [4]]
    sys.modules.pop("ownparts")


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (LISTS[:2], r"lists:\w{8} has 2 lists, and the data are split among 3"),
        (LISTS[:1], "has 1 list, and"),
        ([[0], [], [1]], "the part of peer 1 is empty"),
        ([[0], [1], [3, 10]], "the part of peer 2 has index 10: there are 10 samples, 0 to 9"),
        ([[0], [-1], [3]], "the part of peer 1 has index -1"),
        ([[0], [1.0], [3]], "the part of peer 1 must be a list of integers"),
        ([[0], [True], [3]], "the part of peer 1 must be a list of integers"),
        ([[0], [[1], [2]], [3]], "the part of peer 1 must be a list of integers"),
        ([[0], [[1], [2, 3]], [3]], "the part of peer 1 must be a list of integers"),
        ([0, [1], [3]], "the part of peer 0 must be a list of integers"),
        (lambda targets, n, seed: 1 / 0, r"raised ZeroDivisionError(.|\n)*test_partition\.py"),
        (lambda targets, n, seed: None, "returned a NoneType: it must return index lists"),
        (lambda targets, n, seed: "iid", "returned a str"),
        ("nowhere.json", "nowhere.json cannot be read"),
        ("json_without:function", "there is no module 'json_without'"),
        ("json:no_function", "has no function 'no_function'"),
    ],
)
def test_lists_that_do_not_fit_are_refused(partition: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split(partition, LABELS[:10], 3, 0)


@pytest.mark.parametrize("text", ["[[", "3", '{"a": [1]}'])
def test_a_file_that_holds_no_lists_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "parts.json").write_text(text)
    with pytest.raises(ConfigError, match=r"parts.json (is no JSON|must hold a list)"):
        split(str(tmp_path / "parts.json"), LABELS, 3, 0)


def test_partitions_have_names_and_only_functions_cannot_be_written_down() -> None:
    assert partition_name("dirichlet:0.1") == partition_as_json("dirichlet:0.1") == "dirichlet:0.1"
    assert partition_name(in_parts) == f"{__name__}:in_parts"
    assert partition_name(LISTS) == partition_name([np.array(part) for part in LISTS])
    assert partition_name(LISTS) != partition_name(LISTS[::-1])
    assert json.loads(json.dumps(partition_as_json([np.array([1, 2])]))) == [[1, 2]]
    with pytest.raises(ConfigError, match="give its name as a text, module:function"):
        partition_as_json(in_parts)
    with pytest.raises(ConfigError, match="give its name as a text"):
        RunConfig(partition=in_parts, journal=True)


def test_a_package_goes_to_one_peer_whole_and_sizes_are_near_one_another() -> None:
    sizes = np.array([300, 200, 150, 120, 90, 60, 40, 20, 10, 10])
    packages = np.random.default_rng(0).permutation(np.repeat(np.arange(10), sizes))
    parts = split("package", packages, 3, seed=0)
    owned = [set(packages[part]) for part in parts]
    assert sorted(label for labels in owned for label in labels) == list(range(10))
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    # Never further apart than the smallest package of the largest part.
    assert max(map(len, parts)) - min(map(len, parts)) <= 20
    assert [part.tolist() for part in parts] != [
        part.tolist() for part in split("package", packages, 3, seed=1)
    ]


def test_fewer_packages_than_peers_are_refused() -> None:
    with pytest.raises(ConfigError, match="there are 2 for 3 peers"):
        split("package", np.array([0, 1, 0, 1]), 3, seed=0)
