"""``int8``: differences from the anchor in one byte each, and a scale for each block."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ....gossip.types import stream
from ....gossip.wire.formats import INT8_BLOCK, Wire
from ..blocks import BLOCK, Given, blocks, difference_of, mix_blocks, scratch

__all__ = ["is_sound", "mix", "write"]

# Slightly more than 1 / 127: however the division rounds, no code with noise below 1 exceeds 127.
_SCALE_OF_LARGEST = (1 + 2**-21) / 127

# Below it, float32 has fewer digits, and a quotient may exceed 127.
_SCALE_MIN = float(torch.finfo(torch.float32).tiny)

_Noise = Callable[[Tensor], Tensor]


def write(parts: Sequence[Tensor], numbers: Tensor, wire: Wire, given: Given) -> bool:
    """Write ``numbers - anchor`` as multiples of a scale, rounded up or down at random.

    The scale of a row of `INT8_BLOCK` numbers is its largest difference / 127. A difference of code
    3.25 becomes 3 with probability 3/4, else 4: the mean over many shares is right, unlike with
    rounding to nearest.

    Source: Alistarh et al., NeurIPS 2017 (QSGD), section 3.1, with the largest difference in place
    of the Euclidean norm.
    """
    rng = given.rng
    assert rng is not None
    codes, scales = parts
    noise = _drawn(rng, numbers.device) if numbers.is_cuda else _tabled(rng, numbers.numel())
    sizes = blocks(numbers.numel(), numbers.device, INT8_BLOCK)
    rows_each = [-(-size // INT8_BLOCK) for size in sizes]
    cut = (tensor.split(sizes) for tensor in (numbers, given.anchor, codes))
    for here, base, code, scale in zip(*cut, scales.split(rows_each), strict=True):
        difference = difference_of(here, base)
        size = torch.abs(difference, out=scratch(here, torch.float32, 1))
        torch.amax(_in_rows(size), dim=1, out=scale)
        scale.mul_(_SCALE_OF_LARGEST).clamp_(min=_SCALE_MIN)
        rows = _in_rows(difference)
        torch.addcdiv(_in_rows(noise(size)), rows, scale.unsqueeze(1), out=rows)
        code.copy_(difference.floor_())
    return is_sound(parts, wire, numbers.numel())


def mix(
    numbers: Tensor, parts: Sequence[Tensor], wire: Wire, fraction: float, anchor: Tensor
) -> None:
    """Move numbers toward ``anchor + code * scale``."""
    mix_blocks(numbers, anchor, parts, (1, INT8_BLOCK), _decode, fraction)


def is_sound(parts: Sequence[Tensor], wire: Wire, n_numbers: int) -> bool:
    """True if every product of a code and its scale is finite."""
    return bool(torch.isfinite(parts[1] * 128).all())


def _decode(out: Tensor, anchor: Tensor, codes: Tensor, scales: Tensor) -> None:
    rows = _in_rows(out.copy_(codes))
    torch.addcmul(_in_rows(anchor), rows, scales.unsqueeze(1), out=rows)


def _in_rows(numbers: Tensor) -> Tensor:
    """Return a block as rows with one scale each, shape ``(n_rows, INT8_BLOCK)`` or ``(1, n)``."""
    return numbers.view(max(1, numbers.numel() // INT8_BLOCK), -1)


def _tabled(rng: np.random.Generator, n_numbers: int) -> _Noise:
    """Return noise in [0, 1) for one block after another, read from a table at random offsets."""
    # Drawing a number for each coordinate would take longer than everything else. The table holds
    # each 18-bit fraction once, in a fixed random order. Read cyclically from a random offset, it
    # gives each coordinate each fraction with equal probability, so that rounding is unbiased;
    # blocks are independent of each other, and within a block the errors even out.
    table = _table()
    # Whole blocks and at most two partial blocks.
    starts = iter(rng.integers(BLOCK, size=n_numbers // BLOCK + 2).tolist())

    def noise(block: Tensor) -> Tensor:
        start = next(starts)
        return table[start : start + block.numel()]

    return noise


@cache
def _table() -> Tensor:
    fractions = (stream(0, "all", "rounding").permutation(BLOCK) + 0.5) / BLOCK
    # Stored twice, so that a cyclic read is one slice.
    return torch.from_numpy(np.tile(fractions.astype(np.float32), 2))


def _drawn(rng: np.random.Generator, device: torch.device) -> _Noise:
    """Return noise in [0, 1) that the device draws itself, in place; *rng* seeds it."""
    generator = torch.Generator(device).manual_seed(int(rng.integers(2**63)))

    def noise(block: Tensor) -> Tensor:
        return block.uniform_(generator=generator)

    return noise
