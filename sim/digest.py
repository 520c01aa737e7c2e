"""One name for all that a simulation came to: the same bits, the same name."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .models import Models
from .vectors import VectorRows

__all__ = ["digest_of"]

DIGEST_BYTES = 16

# What measuring finds is summed up with as many threads as torch likes; it names no run.
_EXACT = ("time_s", "steps", "messages", "bytes_sent", "pushes", "skipped", "mixed")


def digest_of(
    values: Models | VectorRows,
    series: Mapping[str, NDArray[np.float64]],
    workers: Mapping[str, NDArray[Any]],
) -> str:
    """Hash every parameter of every worker, what each holds and did, and what was sent when.

    Returns:
        32 hexadecimal digits (BLAKE2b).
    """
    hash = blake2b(digest_size=DIGEST_BYTES)
    if isinstance(values, Models):
        for part in values.rows.x:
            hash.update(part.contiguous().view(torch.uint8).numpy().data)
    else:
        hash.update(np.ascontiguousarray(values.x).data)
    for name in _EXACT:
        hash.update(np.ascontiguousarray(series[name]).data)
    for name in sorted(workers):
        hash.update(np.ascontiguousarray(workers[name]).data)
    return hash.hexdigest()
