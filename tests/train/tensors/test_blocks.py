"""Blocks of numbers: checks that they are finite, and sketches of them."""

import math

import pytest
import torch
from torch import Tensor

from rumor.gossip.wire.messages import SKETCH_NUMBERS
from rumor.train.tensors.blocks import copy_finite, is_finite_tensor, sketch_of

BLOCK = (2 << 20) // 4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("n", "place"),
    [
        (1, 0),
        (100, 99),
        (3 * BLOCK + 5, 0),
        (3 * BLOCK + 5, BLOCK - 1),
        (3 * BLOCK + 5, BLOCK),
        (3 * BLOCK + 5, -1),
    ],
)
def test_a_non_finite_number_is_found_at_any_position(n: int, place: int, value: float) -> None:
    source = torch.ones(n)
    target = torch.empty_like(source)
    assert copy_finite(target, source)
    source[place] = value
    assert not copy_finite(target, source)
    assert not is_finite_tensor(source)
    torch.testing.assert_close(target, source, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_overflowing_sums_and_opposite_infinities_are_judged_correctly(
    dtype: torch.dtype,
) -> None:
    source = torch.full((3 * BLOCK,), torch.finfo(dtype).max, dtype=dtype)
    assert is_finite_tensor(source)
    assert copy_finite(torch.empty_like(source), source)
    source[0], source[-1] = float("inf"), float("-inf")
    assert not copy_finite(torch.empty_like(source), source)


def model(seed: int, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_a_small_model_is_its_own_sketch() -> None:
    parts = [model(0, 100), model(1, SKETCH_NUMBERS - 100, torch.float64)]
    assert sketch_of(parts) == tuple(torch.cat([part.double() for part in parts]).tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["all", "one", "shift", "block"])
def test_sketches_preserve_distances_and_norms(kind: str, dtype: torch.dtype) -> None:
    x = model(0, 2_500_001, dtype)
    moved = x.clone()
    if kind == "all":
        moved += 0.01 * model(1, len(x), dtype)
    elif kind == "one":
        moved[1_234_567] += 5.0
    elif kind == "shift":
        moved += 0.01
    else:
        moved[1000:9000] *= 0.5
    distance = float((moved.double() - x.double()).norm())
    one, other = sketch_of([x[:700], x[700:]]), sketch_of([moved[:700], moved[700:]])
    assert len(one) == SKETCH_NUMBERS
    assert math.dist(one, other) == pytest.approx(distance, rel=0.25)
    assert math.hypot(*one) == pytest.approx(float(x.double().norm()), rel=0.25)
    moved[1] = math.nan
    assert sketch_of([moved]) == sketch_of([moved[:3]]) == ()
