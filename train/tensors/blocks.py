"""Process long runs of numbers block by block, so that each operation finds its input in the cache.

One pass over main memory costs more than ten operations in the cache: a format that subtracts,
scales and rounds does so block by block, in scratch memory that each thread keeps. A block takes 1
MB of float32: with half of that, more calls cost more than the nearer cache gains.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...gossip.types import stream
from ...gossip.wire.messages import SKETCH_NUMBERS

__all__ = [
    "BLOCK",
    "Given",
    "block_numbers",
    "blocks",
    "copy_finite",
    "difference_of",
    "exchange",
    "is_finite_tensor",
    "mix_blocks",
    "no_anchor",
    "overflowing_sum",
    "scratch",
    "sketch_of",
    "squared_distance",
    "widened",
]


# Copied data is still in the cache when it is checked. Measured at 4 to 400 MB: blocks of 0.5 MiB
# lose as much to calls as they gain, and blocks beyond 4 MiB do not fit the cache.
_BLOCK_BYTES: Final = 2 << 20


def is_finite_tensor(numbers: Tensor) -> bool:
    """True if all *numbers*, which have one axis, are finite, at the speed of a sum."""
    # A number that is not finite makes the sum so; only a sum that overflowed needs the exact
    # check, which on a single number takes as long as the sum of a frame. PyTorch sums 16-bit
    # numbers in a float32 copy, which is slow unless small.
    size = block_numbers(numbers.device)
    if numbers.numel() > size:
        return all(map(is_finite_tensor, numbers.split(size)))
    return math.isfinite(overflowing_sum(numbers).item()) or bool(torch.isfinite(numbers).all())


def copy_finite(
    target: Tensor, source: Tensor, copied: Callable[[int], object] | None = None
) -> bool:
    """Copy flat numbers, and return True if all of them are finite.

    *copied* is called with the number of bytes copied so far, as long as all are finite.
    """
    size = _BLOCK_BYTES // source.element_size()
    if source.numel() <= 2 * size:
        # The whole fits the cache, and two calls are faster than six.
        return is_finite_tensor(target.copy_(source))
    total, done_bytes = 0.0, 0
    for into, block in zip(target.split(size), source.split(size), strict=True):
        total += overflowing_sum(into.copy_(block)).item()
        done_bytes += into.nbytes
        if copied is not None and math.isfinite(total):
            copied(done_bytes)
    return math.isfinite(total) or is_finite_tensor(target)


def overflowing_sum(numbers: Tensor) -> Tensor:
    """Return a sum that is not finite if any of *numbers* is not; it may also overflow."""
    wide = torch.float64 if numbers.dtype == torch.float64 else torch.float32
    return numbers.sum(dtype=wide)


BLOCK = 1 << 18
"""Numbers per block in host memory."""

# A GPU needs few large kernels; its cache holds some tens of MB.
_BLOCK_ON_GPU = 1 << 22


class _Kept(threading.local):
    def __init__(self) -> None:
        self.held: dict[tuple[torch.device, torch.dtype, int], Tensor] = {}


_kept = _Kept()


_ROW: Final = 1024


def block_numbers(device: torch.device) -> int:
    """Return the number of elements per block on *device*."""
    return BLOCK if device.type == "cpu" else _BLOCK_ON_GPU


def blocks(n_numbers: int, device: torch.device, row: int = 1) -> list[int]:
    """Return the block lengths for *n_numbers* numbers, as `torch.split` takes them.

    Each block has whole rows of *row* numbers, a divisor of `BLOCK`, except for the remainder.
    """
    size = block_numbers(device)
    full, rest = divmod(n_numbers, size)
    tail = rest % row
    return [size] * full + [part for part in (rest - tail, tail) if part]


def scratch(like: Tensor, dtype: torch.dtype, slot: int = 0) -> Tensor:
    """Return undefined scratch memory of this thread, as long as *like*, which has at most a block,
    on its device. Memory in use at the same time needs its own *slot*."""
    key = like.device, dtype, slot
    held = _kept.held.get(key)
    if held is None:
        size = block_numbers(like.device)
        held = _kept.held[key] = torch.empty(size, dtype=dtype, device=like.device)
    return held[: like.numel()]


def difference_of(numbers: Tensor, anchor: Tensor) -> Tensor:
    """Return ``numbers - anchor`` of one block in scratch memory, float32."""
    exact = torch.sub(numbers, anchor, out=scratch(numbers, numbers.dtype))
    if exact.dtype == torch.float32:
        return exact
    return scratch(numbers, torch.float32).copy_(exact)


def mix_blocks(
    numbers: Tensor,
    anchor: Tensor,
    coded: Sequence[Tensor],
    rows: Sequence[int],
    decode: Callable[..., None],
    fraction: float,
) -> None:
    """Move numbers toward their encoded values, block by block, in place.

    Args:
        rows: Numbers per element of each *coded* array, divisors of `BLOCK`.
        decode: Called with one block each of the output, the anchor and the encoded arrays.
    """
    sizes = blocks(numbers.numel(), numbers.device, max(rows))
    cut = [part.split([-(-s // row) for s in sizes]) for part, row in zip(coded, rows, strict=True)]
    for here, base, *code in zip(numbers.split(sizes), anchor.split(sizes), *cut, strict=True):
        if fraction == 1.0:
            decode(here, base, *code)
        else:
            arrived = scratch(here, here.dtype)
            decode(arrived, base, *code)
            here.lerp_(arrived, fraction)


class Given(NamedTuple):
    """Further inputs for writing numbers."""

    anchor: Tensor
    sent: Tensor | None
    """The value last sent of each number, to be updated; None if not recorded."""
    rng: np.random.Generator | None


def no_anchor(numbers: Tensor) -> Tensor:
    """Return an anchor of zeros, which takes no memory, for numbers written as absolute values."""
    return numbers.new_zeros(1).expand(numbers.numel())


def widened(numbers: Tensor) -> torch.dtype:
    """Return the dtype of a center with which *numbers* are exchanged."""
    # Many small moves of 16-bit numbers would be lost to rounding.
    return torch.float64 if numbers.dtype == torch.float64 else torch.float32


@torch.no_grad()
def exchange(
    mine: Sequence[Tensor], shared: Sequence[Tensor], *, taken: float, given: float
) -> bool:
    """Exchange flat tensors with a center, block by block; see `effects.Exchange`.

    *shared* has the lengths of *mine* and dtypes from `widened`, in host memory or on the same
    device. False if a difference is not finite; then nothing was changed.
    """
    # No operation is a fused multiply-add, so that the bits do not depend on the block length.
    pairs = [
        (own, center)
        for numbers, values in zip(mine, shared, strict=True)
        for own, center in zip(numbers.split(BLOCK), values.split(BLOCK), strict=True)
    ]
    if not all(is_finite_tensor(_apart(own, center)) for own, center in pairs):
        return False
    for own, center in pairs:
        apart = _apart(own, center)
        if taken == 1.0:
            own.copy_(center)
        elif taken:
            own.copy_(own.to(center.device, center.dtype) - apart * taken)
        if given:
            center.add_(apart.mul_(given))
    return True


def _apart(own: Tensor, center: Tensor) -> Tensor:
    return own.to(center.device, center.dtype) - center


def squared_distance(numbers: Tensor, others: Tensor) -> float:
    """Return ``|numbers - others|^2`` in float64; on a CPU, the same bits for any number of
    threads."""
    parts = []
    size = block_numbers(numbers.device)
    for own, other in zip(numbers.split(size), others.split(size), strict=True):
        apart = scratch(own, torch.float64).copy_(own).sub_(other).square_()
        n_whole = len(apart) - len(apart) % _ROW
        # Threads divide rows among them without splitting one; they would split a single sum.
        rows = apart[:n_whole].view(-1, _ROW).sum(dim=1).sum()
        parts.append(float(rows + apart[n_whole:].sum()))
    return math.fsum(parts)


_AT_ONCE: Final = SKETCH_NUMBERS << 13
"""Numbers per pass, about a million, whose signs take a megabyte."""


@torch.no_grad()
def sketch_of(flats: Sequence[Tensor]) -> tuple[float, ...]:
    """Sketch a model: add each number to one of `SKETCH_NUMBERS` sums, with a random sign.

    Signs are the same at all peers, so that the sketch of a difference of two models is the
    difference of their sketches. The expected square of its norm is that of the model's, with a
    standard deviation of an eighth: unlike a sample of numbers, it does not miss a difference in
    only a few of them.

    Returns:
        The model itself if it has no more numbers; empty if one is not finite.

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
