"""A few hundred numbers that stand for a vector where only distances matter."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..gossip.errors import ConfigError
from ..gossip.streams import stream

__all__ = ["Sketch"]

# 2 MiB of float64 at a time: nothing as large as the vector is ever made.
CHUNK_SIZE = 1 << 18


class Sketch:
    """A random linear map from ``n_params`` numbers to *width*, the same on every peer.

    Each coordinate is added to one bin, drawn uniformly, with a random sign. Then
    ``|of(x) - of(y)|^2`` is ``|x - y|^2`` in expectation, with a relative standard deviation
    of at most sqrt(2 / width), 9 % for 256. A vector of at most *width* numbers is its own sketch.

    The bins are drawn again at every call, because kept they would cost half as much memory
    as the model. They come from the raw words of the bit generator, which, unlike
    numpy's distributions, are the same in all its versions.

    Args:
        n_params: Numbers in the vector.
        width: Numbers in the sketch, >= 1.
        seed: Peers whose sketches are to be compared must use the same.

    Raises:
        ConfigError: *n_params* is negative or *width* less than 1.

    Source: Charikar, Chen and Farach-Colton, ICALP 2002, with one row; the variance is in
    Weinberger et al., ICML 2009.
    """

    def __init__(self, n_params: int, width: int = 256, seed: int = 0) -> None:
        if n_params < 0 or width < 1:
            raise ConfigError(
                f"n_params is {n_params} and width {width}: they must be at least 0 and 1"
            )
        self.n_params = n_params
        self.width = width
        self.seed = seed

    def of(self, *flats: Tensor) -> list[float]:
        """Sketch a vector.

        Args:
            flats: The vector, whole or in pieces of any dtype and device, each one flat; their
                lengths add up to ``n_params``.

        Returns:
            ``width`` numbers, or ``n_params`` where those are fewer; summed in float64.

        Raises:
            ValueError: The lengths do not add up.
        """
        if (n := sum(flat.numel() for flat in flats)) != self.n_params:
            raise ValueError(f"the vector has {n} numbers, the sketch was made for {self.n_params}")
        chunks = (chunk for flat in flats for chunk in _chunks(flat.detach()))
        arrays = (chunk.cpu().to(torch.float64).numpy() for chunk in chunks)
        if self.n_params <= self.width:
            return [float(value) for array in arrays for value in array]
        words = stream(self.seed, "swarm", "sketch").bit_generator
        # Bin and sign are one draw: the coordinates with a minus have the upper half of the bins.
        sums = np.zeros(2 * self.width)
        for array in arrays:
            bins = (words.random_raw(len(array)) % np.uint64(len(sums))).astype(np.intp)
            sums += np.bincount(bins, array, len(sums))
        plus, minus = np.split(sums, 2)
        return [float(value) for value in plus - minus]


def _chunks(flat: Tensor) -> Iterator[Tensor]:
    for start in range(0, len(flat), CHUNK_SIZE):
        yield flat[start : start + CHUNK_SIZE]
