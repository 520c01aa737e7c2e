"""Sketches: linear, alike everywhere, and as far apart as their vectors."""

import math

import numpy as np
import pytest
import torch

from rumor.train.loop import sketch as module
from rumor.train.loop.sketch import sketch


def normal(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_sketch_is_linear() -> None:
    x, y = normal(5000, 0), normal(5000, 1)
    both = 2 * np.array(sketch(x)) - 3 * np.array(sketch(y))
    np.testing.assert_allclose(sketch(2 * x - 3 * y), both, atol=1e-10)


@pytest.mark.parametrize("n_params", [0, 1, 255, 256])
def test_a_small_vector_is_its_own_sketch(n_params: int) -> None:
    x = normal(n_params)
    assert sketch(x) == x.tolist()


@pytest.mark.parametrize("width", [16, 256, 300])
def test_paper_the_square_of_a_distance_is_unbiased_with_the_stated_error(width: int) -> None:
    x, y, n_draws = normal(2000, 0), normal(2000, 1), 400
    square = (x - y).square().sum().item()
    ratios = []
    for seed in range(n_draws):
        one, other = (sketch(each, width=width, seed=seed) for each in (x, y))
        ratios.append(math.dist(one, other) ** 2 / square)
    stated = math.sqrt(2 / width)
    assert np.mean(ratios) == pytest.approx(1, abs=4 * stated / math.sqrt(n_draws))
    assert np.std(ratios) == pytest.approx(stated, rel=0.2)


def test_a_sketch_is_the_same_in_every_process_and_version() -> None:
    # Written down once: peers with other versions of numpy must come to the same numbers.
    expected = [-417.0, 1030.0, 5296.0, -5110.0, 6799.0, 11994.0, 4042.0, 2582.0]
    assert sketch(torch.arange(1000), width=8) == expected


def test_chunks_and_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(1001)
    whole = sketch(x)
    np.testing.assert_allclose(sketch(x[:333], x[333:]), whole, atol=1e-12)
    monkeypatch.setattr(module, "CHUNK_SIZE", 100)
    np.testing.assert_allclose(sketch(x), whole, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_any_dtype_is_summed_in_float64(dtype: torch.dtype) -> None:
    x = normal(1000).to(dtype).requires_grad_()
    assert sketch(x) == sketch(x.double())


@pytest.mark.cuda
def test_a_vector_on_the_gpu_has_the_sketch_of_its_copy() -> None:
    x = normal(1000)
    assert sketch(x.cuda()) == sketch(x)
