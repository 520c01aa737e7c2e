"""A sample of a model's numbers, the same ones at all peers, to estimate distances of models."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ....gossip.types import stream
from ....gossip.wire.messages import SAMPLE_NUMBERS_MAX

__all__ = ["ModelSample", "distances"]

# Minimum age of a sample before it is read again, as reading from a device waits for it.
_EVERY_S: Final = 0.5


class ModelSample:
    """Samples current numbers of a model, given as flat vectors that keep their memory.

    Sums of squares over the sample, times n over its size, are unbiased estimates of those over all
    n numbers of the model, which may be of two steps if it is training meanwhile.
    """

    def __init__(
        self, flats: Sequence[Tensor], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._taken_s = -math.inf
        self._taken: tuple[float, ...] = ()
        n = sum(flat.numel() for flat in flats)
        if n > SAMPLE_NUMBERS_MAX:
            drawn = stream(0, "swarm", "model sample").integers(n, size=SAMPLE_NUMBERS_MAX)
            places = np.sort(drawn)
        else:
            places = np.arange(n)
        self._picked: list[tuple[Tensor, Tensor]] = []
        start = 0
        for flat in flats:
            inside = places[(places >= start) & (places < start + flat.numel())] - start
            self._picked.append((flat, torch.from_numpy(inside).to(flat.device)))
            start += flat.numel()

    def __call__(self) -> tuple[float, ...]:
        """Return at most `SAMPLE_NUMBERS_MAX` recent numbers, none if one is not finite."""
        if (now := self._clock()) - self._taken_s >= _EVERY_S:
            self._taken_s = now
            with torch.no_grad():
                found = [flat[places].double().tolist() for flat, places in self._picked]
            numbers = tuple(number for part in found for number in part)
            self._taken = numbers if all(map(math.isfinite, numbers)) else ()
        return self._taken


def distances(samples: Iterable[Sequence[float]]) -> list[float | None]:
    """Return the distance of each model from their mean, relative to the norm of the mean.

    It is None unless the model and another one have a sample of the most common length.

    >>> distances([(1.0, 0.0), (3.0, 0.0), ()])
    [0.5, 0.5, None]
    """
    told = [np.array(sample, np.float64) for sample in samples]
    lengths = [len(sample) for sample in told if len(sample)]
    length = max(set(lengths), key=lengths.count, default=0)
    known = [sample for sample in told if len(sample) == length]
    if len(known) < 2 or not length:
        return [None] * len(told)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.mean(known, axis=0)
        norm = float(np.linalg.norm(mean)) or 1.0
        apart = [
            float(np.linalg.norm(sample - mean)) / norm if len(sample) == length else math.nan
            for sample in told
        ]
    return [distance if math.isfinite(distance) else None for distance in apart]
