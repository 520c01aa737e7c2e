"""Differences from the anchor in two bytes each: ``bfloat16`` and ``float16``.

What training changes is small beside what it started from, so that few bits tell the difference
well.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from ....gossip.wire.formats import Wire
from ..blocks import Given, blocks, difference_of, is_finite_tensor, mix_blocks

__all__ = ["is_sound", "mix", "write"]

# The largest float16, and the largest of the others, squared where that is a float32.
_PROOF: Final = {torch.float16: 65504.0**2, torch.bfloat16: float(torch.finfo(torch.float32).max)}


def write(parts: Sequence[Tensor], numbers: Tensor, wire: Wire, given: Given) -> bool:
    """Write ``numbers - anchor``, rounded to nearest.

    A difference beyond 65,504 has no float16 and makes the result False; bfloat16 reaches as far
    as float32 and knows no such limit.
    """
    (halves,) = parts
    sizes = blocks(numbers.numel(), numbers.device)
    squares = torch.empty(len(sizes), device=numbers.device, dtype=torch.float32)
    cut = (tensor.split(sizes) for tensor in (numbers, given.anchor, halves))
    for here, base, half, square in zip(*cut, squares.unbind(), strict=True):
        difference = difference_of(here, base)
        half.copy_(difference)
        torch.dot(difference, difference, out=square)
    # No number is larger than the root of the sum of squares: where that is in range, all are.
    return bool((squares < _PROOF[halves.dtype]).all()) or is_finite_tensor(halves)


def mix(
    numbers: Tensor, parts: Sequence[Tensor], wire: Wire, fraction: float, anchor: Tensor
) -> None:
    """Move numbers toward anchor and difference."""
    mix_blocks(numbers, anchor, parts, (1,), _decode, fraction)


def is_sound(parts: Sequence[Tensor], wire: Wire, n_numbers: int) -> bool:
    """True if all differences are finite."""
    return is_finite_tensor(parts[0])


def _decode(out: Tensor, anchor: Tensor, halves: Tensor) -> None:
    out.copy_(halves).add_(anchor)
