"""Numbers of models by which an observer sees how far they are apart."""

import math

import numpy as np
import pytest
import torch

from rumor.gossip.wire.messages import SAMPLE_NUMBERS_MAX
from rumor.train.runtime.telling.model_sample import ModelSample, distances


def test_of_a_small_model_all_numbers_are_told() -> None:
    flats = [torch.tensor([1.0, 2.0]), torch.tensor([0.5], dtype=torch.bfloat16)]
    assert ModelSample(flats)() == (1.0, 2.0, 0.5)


def test_of_a_large_one_the_same_ones_at_all_peers() -> None:
    models = [[torch.arange(5_000.0), torch.arange(5_000.0, 9_000.0)] for _ in range(2)]
    one, other = (ModelSample(flats)() for flats in models)
    assert one == other and len(one) == SAMPLE_NUMBERS_MAX
    assert sorted(one) == list(one) and min(one) < 500 and max(one) > 8_500


def test_it_is_read_anew_after_a_while() -> None:
    now, flat = [0.0], torch.zeros(3)
    sample = ModelSample([flat], lambda: now[-1])
    assert sample() == (0.0,) * 3
    flat.fill_(1.0)
    assert sample() == (0.0,) * 3
    now.append(1.0)
    assert sample() == (1.0,) * 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_that_has_diverged_tells_nothing(value: float) -> None:
    assert ModelSample([torch.tensor([1.0, value])])() == ()


def test_distances_are_those_of_the_models_within_a_tenth() -> None:
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(40_000, generator=generator)
    models = [mean + 0.1 * k * torch.randn(40_000, generator=generator) for k in (1, 2, 3, 4)]
    true_mean = torch.stack(models).mean(0)
    expected = [float((model - true_mean).norm() / true_mean.norm()) for model in models]
    found = distances(ModelSample([model])() for model in models)
    np.testing.assert_allclose(np.array(found, float), expected, rtol=0.1)


def test_who_tells_of_another_model_or_of_none_does_not_count() -> None:
    found = distances([(2.0, 0.0), (), (4.0, 0.0), (1.0, 2.0, 3.0)])
    assert found == [pytest.approx(1 / 3), None, pytest.approx(1 / 3), None]
    assert [distances(told) for told in ([], [(1.0,)], [()] * 2)] == [[], [None], [None] * 2]
