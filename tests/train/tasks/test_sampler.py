"""Batches: each a pure function of the step, each sample once a pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.train.tasks.data import Sampler

INDICES = np.array([3, 5, 8, 13, 21, 34, 55])


@given(
    n_own=st.integers(1, 20),
    batch_size=st.integers(1, 25),
    steps=st.lists(st.integers(0, 30), max_size=10),
)
def test_a_batch_depends_on_its_step_alone(n_own: int, batch_size: int, steps: list[int]) -> None:
    used = Sampler(np.arange(n_own), batch_size, seed=1, peer="a")
    for step in steps:
        fresh = Sampler(np.arange(n_own), batch_size, seed=1, peer="a")
        assert np.array_equal(used.batch(step), fresh.batch(step))


@given(n_own=st.integers(1, 20), batch_size=st.integers(1, 25))
def test_every_pass_has_each_sample_once(n_own: int, batch_size: int) -> None:
    sampler = Sampler(np.arange(n_own), batch_size, seed=0, peer="a")
    taken = np.concatenate([sampler.batch(step) for step in range(3 * n_own)])
    passes = taken[: len(taken) // n_own * n_own].reshape(-1, n_own)
    assert (np.sort(passes, axis=1) == np.arange(n_own)).all()


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_all_batches_are_of_the_size_asked_for(batch_size: int) -> None:
    sampler = Sampler(INDICES, batch_size, seed=0, peer="a")
    assert {len(sampler.batch(step)) for step in range(20)} == {batch_size}


def test_a_batch_larger_than_the_set_is_the_whole_set() -> None:
    batch = Sampler(INDICES, 100, seed=0, peer="a").batch(4)
    assert batch.dtype == np.int64 and sorted(batch.tolist()) == INDICES.tolist()


def test_each_peer_seed_and_pass_has_an_order_of_its_own() -> None:
    orders = [
        Sampler(np.arange(50), 50, seed=seed, peer=peer).batch(step).tolist()
        for seed in (0, 1)
        for peer in "ab"
        for step in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 8


def test_a_batch_is_not_changed_by_what_its_owner_does_with_the_last_one() -> None:
    sampler = Sampler(INDICES, 3, seed=0, peer="a")
    before = sampler.batch(0).copy()
    sampler.batch(0)[:] = -1
    assert np.array_equal(sampler.batch(0), before)


def test_a_batch_size_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size is 0"):
        Sampler(INDICES, 0, seed=0, peer="a")


def test_a_peer_without_samples_is_refused() -> None:
    with pytest.raises(ConfigError, match="peer a has no samples"):
        Sampler(INDICES[:0], 1, seed=0, peer="a")


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="step is -1"):
        Sampler(INDICES, 1, seed=0, peer="a").batch(-1)
