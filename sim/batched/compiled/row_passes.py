"""Steps of optimizers in machine code, in which each number is touched once."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernel.fast_path.compiler import can_compile
from .interface import RowUpdate
from .whole_shares import mix

__all__ = ["alike", "rounds_as_torch", "take_steps"]

Ints = NDArray[np.int64]


@cache
def rounds_as_torch() -> bool:
    """Whether fused multiply-adds give torch's bits on this machine; False without numba."""
    if not can_compile():
        return False
    x = torch.randn(
        2, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float32, device="cpu"
    )
    for fraction in (1e-3, 0.3, 0.49999, 0.5, 0.7, 0.999):
        ours, theirs = x.clone(), x.clone()
        mix(ours[0], ours[1], fraction)
        if not alike(ours[0], theirs[0].lerp_(theirs[1], fraction)):
            return False
    return True


def alike(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two tensors are the same in every bit."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    return torch.equal(*(x.flatten().view(torch.uint8) for x in (ours, theirs)))


def take_steps(x: Tensor, gradients: Tensor, workers: Ints, update: RowUpdate) -> bool:
    """Take a step in the rows of some workers, in place.

    Args:
        x: All workers' vectors, float32, axes ``(worker, number)``.
        gradients: Of those who take a step, axes ``(step, number)``.

    Returns:
        Whether all values are finite after it.
    """
    from . import machine_code

    return bool(machine_code.take_steps(x.numpy(), gradients.numpy(), workers, update))
