"""A few numbers of a whole model whose distances between peers are those of their models."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ...gossip.types import stream
from ...gossip.wire.messages import SKETCH_NUMBERS

__all__ = ["sketch_of"]

_AT_ONCE: Final = SKETCH_NUMBERS << 13
"""About a million numbers, whose signs take a megabyte."""


@torch.no_grad()
def sketch_of(flats: Sequence[Tensor]) -> tuple[float, ...]:
    """Sketch a model: each number goes into one of `SKETCH_NUMBERS` sums, with a random sign.

    Signs are the same at all peers, so that the sketch of a difference of two models is the
    difference of their sketches. The square of its norm is that of the model's on average, with a
    standard deviation of an eighth: other than a sample of numbers, it misses no difference that
    lies in a few of them. Computed in float64, chunk by chunk.

    Args:
        flats: The model as flat vectors, floating, on any device.

    Returns:
        At most `SKETCH_NUMBERS` numbers, those of the model where it has no more; none where one is
        not finite.

    Source: Charikar, Chen and Farach-Colton, ICALP 2002, section 3 (count sketch).
    """
    if sum(flat.numel() for flat in flats) <= SKETCH_NUMBERS:
        numbers = [number for flat in flats for number in flat.double().tolist()]
    else:
        signs = stream(0, "swarm", "model sketch")
        sums = torch.zeros(SKETCH_NUMBERS, dtype=torch.float64, device="cpu")
        for flat in flats:
            for chunk in flat.split(_AT_ONCE):
                sums += _sums(chunk, signs)
        numbers = sums.tolist()
    return tuple(numbers) if np.isfinite(numbers).all() else ()


def _sums(chunk: Tensor, signs: np.random.Generator) -> Tensor:
    n = chunk.numel()
    rows = -(-n // SKETCH_NUMBERS)
    padded = torch.zeros(rows * SKETCH_NUMBERS, dtype=torch.float64, device=chunk.device)
    bits = np.unpackbits(np.frombuffer(signs.bytes(-(-n // 8)), np.uint8), count=n)
    drawn = torch.from_numpy(bits).to(chunk.device).double()
    torch.mul(drawn.mul_(2).sub_(1), chunk.double(), out=padded[:n])
    return padded.view(rows, SKETCH_NUMBERS).sum(0).cpu()
