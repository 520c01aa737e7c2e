"""Differences from the anchor in fewer bits: two bytes each, or one and a scale for each block.

What training changes is small beside what it started from, so that few bits tell the difference
well. All numbers are written and read block by block (see `blocks`), on any device; the tensors of
one call lie on the same.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ....gossip.types import stream
from ....gossip.wire.formats import INT8_BLOCK
from ..blocks import BLOCK, all_finite, blocks, scratch

__all__ = [
    "are_finite_codes",
    "decode_codes",
    "decode_halves",
    "encode_codes",
    "encode_halves",
    "rows_of",
]

# The largest float16, and the largest of the others, squared where that is a float32.
_PROOF = {torch.float16: 65504.0**2, torch.bfloat16: float(torch.finfo(torch.float32).max)}

# A little more than 1 / 127: however the division rounds, no code with noise below 1 passes 127.
_SCALE_OF_LARGEST = (1 + 2**-21) / 127

# Below it, float32 has fewer digits, and a quotient may pass 127.
_SCALE_MIN = float(torch.finfo(torch.float32).tiny)

_Noise = Callable[[Tensor], Tensor]


def encode_halves(halves: Tensor, numbers: Tensor, anchor: Tensor) -> bool:
    """Write ``numbers - anchor``, rounded to nearest.

    A difference beyond 65,504 has no float16 and makes the result False; bfloat16 reaches as far
    as float32 and knows no such limit.

    Args:
        halves: What to fill, bfloat16 or float16, shape ``(n,)``.
        numbers: float32 or float64, shape ``(n,)``.
        anchor: Of the same dtype and shape.

    Returns:
        Whether all that was written is finite.
    """
    sizes = blocks(numbers.numel(), numbers.device)
    squares = torch.empty(len(sizes), device=numbers.device, dtype=torch.float32)
    parts = (tensor.split(sizes) for tensor in (numbers, anchor, halves))
    for here, base, half, square in zip(*parts, squares.unbind(), strict=True):
        difference = _difference(here, base)
        half.copy_(difference)
        torch.dot(difference, difference, out=square)
    # No number is larger than the root of the sum of squares: where that is in range, all are.
    return bool((squares < _PROOF[halves.dtype]).all()) or all_finite(halves)


def decode_halves(out: Tensor, halves: Tensor, anchor: Tensor) -> None:
    """Set ``out = anchor + halves``; one block of each, *out* and *anchor* of one dtype."""
    out.copy_(halves).add_(anchor)


def encode_codes(
    codes: Tensor, scales: Tensor, numbers: Tensor, anchor: Tensor, rng: np.random.Generator
) -> bool:
    """Write ``numbers - anchor`` as multiples of a scale, rounded up or down by chance.

    The scale of a row of `INT8_BLOCK` numbers is its largest difference / 127. A difference of
    code 3.25 becomes 3 three times in four and 4 the fourth time: the mean over many shares is
    right, which rounding to nearest would not be.

    Args:
        codes: What to fill, int8, shape ``(n,)``.
        scales: The same, float32, shape ``(ceil(n / INT8_BLOCK),)``.
        numbers: float32 or float64, shape ``(n,)``.
        anchor: Of the same dtype and shape.
        rng: Decides how to round; an equal one rounds alike.

    Returns:
        Whether all that was written is finite.

    Source: Alistarh et al., NeurIPS 2017 (QSGD), section 3.1, with the largest difference in place
    of the Euclidean norm.
    """
    noise = _drawn(rng, numbers.device) if numbers.is_cuda else _tabled(rng, numbers.numel())
    sizes = blocks(numbers.numel(), numbers.device, INT8_BLOCK)
    parts = (tensor.split(sizes) for tensor in (numbers, anchor, codes))
    for here, base, code, scale in zip(*parts, scales.split(rows_of(sizes)), strict=True):
        difference = _difference(here, base)
        size = torch.abs(difference, out=scratch(here, torch.float32, 1))
        torch.amax(_in_rows(size), dim=1, out=scale)
        scale.mul_(_SCALE_OF_LARGEST).clamp_(min=_SCALE_MIN)
        rows = _in_rows(difference)
        torch.addcdiv(_in_rows(noise(size)), rows, scale.unsqueeze(1), out=rows)
        code.copy_(difference.floor_())
    return are_finite_codes(scales)


def decode_codes(out: Tensor, codes: Tensor, scales: Tensor, anchor: Tensor) -> None:
    """Set ``out = anchor + codes * scale``.

    Args:
        out: One block of float32 or float64.
        codes: The same block, int8.
        scales: Of its rows, float32.
        anchor: The same block, of the dtype of *out*.
    """
    rows = _in_rows(out.copy_(codes))
    torch.addcmul(_in_rows(anchor), rows, scales.unsqueeze(1), out=rows)


def rows_of(sizes: list[int]) -> list[int]:
    """How many rows, with a scale each, there are in blocks of such *sizes*."""
    return [-(-size // INT8_BLOCK) for size in sizes]


def are_finite_codes(scales: Tensor) -> bool:
    """Whether no code can make a number that is not finite of its scale."""
    return bool(torch.isfinite(scales * 128).all())


def _difference(numbers: Tensor, anchor: Tensor) -> Tensor:
    """``numbers - anchor`` in scratch memory, float32, shape ``(n,)``."""
    exact = torch.sub(numbers, anchor, out=scratch(numbers, numbers.dtype))
    if exact.dtype == torch.float32:
        return exact
    return scratch(numbers, torch.float32).copy_(exact)


def _in_rows(numbers: Tensor) -> Tensor:
    """A block as rows that have a scale each, shape ``(n_rows, INT8_BLOCK)`` or ``(1, n)``."""
    return numbers.view(max(1, numbers.numel() // INT8_BLOCK), -1)


def _tabled(rng: np.random.Generator, n_numbers: int) -> _Noise:
    """Noise in [0, 1) for one block after another, read from a table where *rng* says.

    A fresh number for each coordinate would take longer than all the rest. The table holds each
    18-bit fraction once, in an order drawn once and for all. Read from a random place on, around
    its end, it gives each coordinate each fraction with the same chance, so that rounding has no
    bias; blocks are independent of each other, and within a block the errors even out.
    """
    table = _table()
    # Whole blocks and at most two parts of one.
    starts = iter(rng.integers(BLOCK, size=n_numbers // BLOCK + 2).tolist())

    def noise(block: Tensor) -> Tensor:
        start = next(starts)
        return table[start : start + block.numel()]

    return noise


@cache
def _table() -> Tensor:
    fractions = (stream(0, "all", "rounding").permutation(BLOCK) + 0.5) / BLOCK
    # Twice, so that reading around the end needs no second part.
    return torch.from_numpy(np.tile(fractions.astype(np.float32), 2))


def _drawn(rng: np.random.Generator, device: torch.device) -> _Noise:
    """Noise in [0, 1) that the device draws for itself, in place; *rng* seeds it."""
    generator = torch.Generator(device).manual_seed(int(rng.integers(2**63)))

    def noise(block: Tensor) -> Tensor:
        return block.uniform_(generator=generator)

    return noise
