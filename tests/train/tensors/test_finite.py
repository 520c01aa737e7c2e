"""The look whether numbers are finite, by itself and on the way of a copy."""

import pytest
import torch

from rumor.train.tensors.blocks import copy_finite, is_finite_tensor

BLOCK = (2 << 20) // 4


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("n", "place"),
    [(1, 0), (100, 99), *((3 * BLOCK + 5, place) for place in (0, BLOCK - 1, BLOCK, -1))],
)
def test_one_number_that_is_not_finite_is_found_anywhere(n: int, place: int, value: float) -> None:
    source = torch.ones(n)
    target = torch.empty_like(source)
    assert copy_finite(target, source)
    source[place] = value
    assert not copy_finite(target, source)
    assert not is_finite_tensor(source)
    torch.testing.assert_close(target, source, equal_nan=True, rtol=0, atol=0)


def test_infinities_of_both_signs_do_not_cancel() -> None:
    source = torch.zeros(3 * BLOCK)
    source[0], source[-1] = float("inf"), float("-inf")
    assert not copy_finite(torch.empty_like(source), source)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_sum_that_overflows_does_not_deceive(dtype: torch.dtype) -> None:
    source = torch.full((3 * BLOCK,), torch.finfo(dtype).max, dtype=dtype)
    assert is_finite_tensor(source)
    assert copy_finite(torch.empty_like(source), source)
