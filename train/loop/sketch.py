"""Sketches: short vectors whose distances approximate those of the vectors they stand for."""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from ...gossip.types import stream

__all__ = ["sketch"]

# 2 MiB of float64 at a time: so nothing as large as the vector is allocated.
CHUNK_SIZE: Final = 1 << 18


def sketch(*flats: Tensor, width: int = 256, seed: int = 0) -> list[float]:
    """Map a vector to *width* numbers by a random linear map, the same on every peer.

    Each coordinate is added to one bin, drawn uniformly, with a random sign. Then ``|sketch(x) -
    sketch(y)|^2`` is ``|x - y|^2`` in expectation, with a relative standard deviation of at most
    sqrt(2 / width), 9 % for 256. A vector of at most *width* numbers is its own sketch.

    The bins are drawn again at every call, because storing them would take half as much memory as
    the model. They come from the raw words of the bit generator, which are the same in all versions
    of numpy, unlike its distributions.

    Args:
        flats: The vector, whole or in flat pieces of any dtype and device.
        width: Length of the sketch, >= 1.
        seed: Must be equal on peers whose sketches are compared.

    Returns:
        ``width`` numbers, or the vector itself if it has fewer; summed in float64.

    Source: Charikar, Chen and Farach-Colton, ICALP 2002, with one row; the variance is in
    Weinberger et al., ICML 2009.
    """
    chunks = (chunk for flat in flats for chunk in flat.detach().split(CHUNK_SIZE))
    arrays = (chunk.cpu().to(torch.float64).numpy() for chunk in chunks)
    if sum(flat.numel() for flat in flats) <= width:
        return [float(value) for array in arrays for value in array]
    words = stream(seed, "swarm", "sketch").bit_generator
    # Bin and sign are one draw: coordinates with a minus sign use the upper half of the bins.
    sums = np.zeros(2 * width)
    for array in arrays:
        bins = (words.random_raw(len(array)) % np.uint64(len(sums))).astype(np.intp)
        sums += np.bincount(bins, array, len(sums))
    plus, minus = np.split(sums, 2)
    return [float(value) for value in plus - minus]
