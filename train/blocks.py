"""Long runs of numbers taken block by block: what one step leaves in the cache, the next finds.

One pass over main memory costs more than ten operations on what is in the cache: a format that
subtracts, scales and rounds does so block by block, in scratch memory that each thread keeps.
A block takes 1 MB of float32: half as much loses more by the calls than it gains by being nearer.
"""

import threading

import torch
from torch import Tensor

from .finite import is_finite

__all__ = ["BLOCK", "all_finite", "block_numbers", "blocks", "scratch"]

BLOCK = 1 << 18
"""Numbers of a block in host memory."""

# A GPU wants few large kernels; its cache holds some tens of MB.
_BLOCK_ON_GPU = 1 << 22


class _Kept(threading.local):
    """What a thread has made so far."""

    def __init__(self) -> None:
        self.held: dict[tuple[torch.device, torch.dtype, int], Tensor] = {}


_kept = _Kept()


def block_numbers(device: torch.device) -> int:
    """How many numbers a block on *device* has."""
    return BLOCK if device.type == "cpu" else _BLOCK_ON_GPU


def blocks(n_numbers: int, device: torch.device, row: int = 1) -> list[int]:
    """Lengths of the blocks into which so many numbers are cut, as `torch.split` wants them.

    Args:
        n_numbers: How many there are.
        device: Where they lie.
        row: Numbers that belong together, a divisor of `BLOCK`: each block but the last is made
            of whole rows, and the last is what does not fill one, where there is such a rest.
    """
    size = block_numbers(device)
    full, rest = divmod(n_numbers, size)
    tail = rest % row
    return [size] * full + [part for part in (rest - tail, tail) if part]


def scratch(like: Tensor, dtype: torch.dtype, slot: int = 0) -> Tensor:
    """Memory of this thread, as long as *like*, at most a block; what it holds is of no meaning.

    Args:
        like: Numbers, of which only the length and the device count.
        dtype: Of the result, shape ``like.shape``, which has one axis.
        slot: Which of several that are in use at a time.
    """
    key = like.device, dtype, slot
    held = _kept.held.get(key)
    if held is None:
        size = block_numbers(like.device)
        held = _kept.held[key] = torch.empty(size, dtype=dtype, device=like.device)
    return held[: like.numel()]


def all_finite(numbers: Tensor) -> bool:
    """Whether all *numbers* are finite, looked at block by block.

    PyTorch makes a float32 copy of what it sums of 16-bit numbers, which is slow unless small.
    """
    return all(is_finite(block) for block in numbers.split(block_numbers(numbers.device)))
