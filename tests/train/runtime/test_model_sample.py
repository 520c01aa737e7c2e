"""Samples of models, from which an observer estimates the distances between them."""

import math

import numpy as np
import pytest
import torch

from rumor.gossip.wire.messages import SAMPLE_NUMBERS_MAX
from rumor.train.runtime.telling.status import ModelSample, distances


def test_the_sample_of_a_small_model_has_all_numbers() -> None:
    flats = [torch.tensor([1.0, 2.0]), torch.tensor([0.5], dtype=torch.bfloat16)]
    assert ModelSample(flats)() == (1.0, 2.0, 0.5)


def test_all_peers_sample_the_same_positions_of_a_large_model() -> None:
    models = [[torch.arange(5_000.0), torch.arange(5_000.0, 9_000.0)] for _ in range(2)]
    one, other = (ModelSample(flats)() for flats in models)
    assert one == other and len(one) == SAMPLE_NUMBERS_MAX
    assert sorted(one) == list(one) and min(one) < 500 and max(one) > 8_500


def test_the_sample_is_refreshed_after_a_while() -> None:
    now, flat = [0.0], torch.zeros(3)
    sample = ModelSample([flat], lambda: now[-1])
    assert sample() == (0.0,) * 3
    flat.fill_(1.0)
    assert sample() == (0.0,) * 3
    now.append(1.0)
    assert sample() == (1.0,) * 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_sample_of_a_diverged_model_is_empty(value: float) -> None:
    assert ModelSample([torch.tensor([1.0, value])])() == ()


def test_sampled_distances_match_the_true_ones_within_ten_percent() -> None:
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(40_000, generator=generator)
    models = [mean + 0.1 * k * torch.randn(40_000, generator=generator) for k in (1, 2, 3, 4)]
    true_mean = torch.stack(models).mean(0)
    expected = [float((model - true_mean).norm() / true_mean.norm()) for model in models]
    found = distances(ModelSample([model])() for model in models)
    np.testing.assert_allclose(np.array(found, float), expected, rtol=0.1)


def test_empty_and_mismatched_samples_do_not_count() -> None:
    found = distances([(2.0, 0.0), (), (4.0, 0.0), (1.0, 2.0, 3.0)])
    assert found == [pytest.approx(1 / 3), None, pytest.approx(1 / 3), None]
    assert [distances(samples) for samples in ([], [(1.0,)], [()] * 2)] == [[], [None], [None] * 2]
