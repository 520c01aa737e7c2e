"""``bfloat16`` and ``float16``: differences from the anchor in two bytes each.

Training changes numbers little compared with their size, so that few bits suffice for the
difference.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from ....gossip.wire.formats import Wire
from ..blocks import Given, blocks, difference_of, is_finite_tensor, mix_blocks

__all__ = ["is_sound", "mix", "write"]

# Bound on the sum of squares: the largest float16, squared; for bfloat16 the largest float32, whose
# square would overflow.
_PROOF: Final = {torch.float16: 65504.0**2, torch.bfloat16: float(torch.finfo(torch.float32).max)}


def write(parts: Sequence[Tensor], numbers: Tensor, wire: Wire, given: Given) -> bool:
    """Write ``numbers - anchor``, rounded to nearest; False for a difference out of range, which
    ends at 65,504 for float16."""
    (halves,) = parts
    sizes = blocks(numbers.numel(), numbers.device)
    squares = torch.empty(len(sizes), device=numbers.device, dtype=torch.float32)
    cut = (tensor.split(sizes) for tensor in (numbers, given.anchor, halves))
    for here, base, half, square in zip(*cut, squares.unbind(), strict=True):
        difference = difference_of(here, base)
        half.copy_(difference)
        torch.dot(difference, difference, out=square)
    # No number exceeds the root of the sum of squares: if that is in range, all are.
    return bool((squares < _PROOF[halves.dtype]).all()) or is_finite_tensor(halves)


def mix(
    numbers: Tensor, parts: Sequence[Tensor], wire: Wire, fraction: float, anchor: Tensor
) -> None:
    """Move numbers toward ``anchor + difference``."""

    def decode(out: Tensor, base: Tensor, halves: Tensor) -> None:
        out.copy_(halves).add_(base)

    mix_blocks(numbers, anchor, parts, (1,), decode, fraction)


def is_sound(parts: Sequence[Tensor], wire: Wire, n_numbers: int) -> bool:
    """True if all differences are finite."""
    return is_finite_tensor(parts[0])
