"""Long runs of numbers taken block by block: what one step leaves in the cache, the next finds.

One pass over main memory costs more than ten operations on what is in the cache: a format that
subtracts, scales and rounds does so block by block, in scratch memory that each thread keeps.
A block takes 1 MB of float32: half as much loses more by the calls than it gains by being nearer.
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


# What was copied is still in the cache when it is looked at. Measured at 4 to 400 MB: blocks of
# 0.5 MiB lose as much to the calls as they win, beyond 4 MiB the cache is left.
_BLOCK_BYTES: Final = 2 << 20


def is_finite_tensor(numbers: Tensor) -> bool:
    """True if all *numbers*, which have one axis, are finite, at the speed of a sum.

    One that is not finite makes the sum so; the exact look is only needed where it overflowed.
    """
    # PyTorch makes a float32 copy of what it sums of 16-bit numbers, which is slow unless small.
    # Not torch.isfinite at first: on a single number it takes as long as the sum of a frame.
    return all(
        math.isfinite(overflowing_sum(block).item()) or bool(torch.isfinite(block).all())
        for block in numbers.split(block_numbers(numbers.device))
    )


def copy_finite(target: Tensor, source: Tensor) -> bool:
    """Copy flat numbers, finite or not, and look at them on the way; whether all are finite."""
    size = _BLOCK_BYTES // source.element_size()
    if source.numel() <= 2 * size:
        # It stays in the cache as a whole, and two calls are faster than six.
        return is_finite_tensor(target.copy_(source))
    total = 0.0
    for into, block in zip(target.split(size), source.split(size), strict=True):
        total += overflowing_sum(into.copy_(block)).item()
    return math.isfinite(total) or is_finite_tensor(target)


def overflowing_sum(numbers: Tensor) -> Tensor:
    """A sum that is not finite where any of *numbers* is not; it may also overflow."""
    wide = torch.float64 if numbers.dtype == torch.float64 else torch.float32
    return numbers.sum(dtype=wide)


BLOCK = 1 << 18
"""Numbers of a block in host memory."""

# A GPU wants few large kernels; its cache holds some tens of MB.
_BLOCK_ON_GPU = 1 << 22


class _Kept(threading.local):
    def __init__(self) -> None:
        self.held: dict[tuple[torch.device, torch.dtype, int], Tensor] = {}


_kept = _Kept()


_ROW: Final = 1024


def block_numbers(device: torch.device) -> int:
    """How many numbers a block on *device* has."""
    return BLOCK if device.type == "cpu" else _BLOCK_ON_GPU


def blocks(n_numbers: int, device: torch.device, row: int = 1) -> list[int]:
    """Lengths of the blocks into which so many numbers are cut, as `torch.split` wants them.

    Numbers that belong together are a *row*, a divisor of `BLOCK`: each block but the last is made
    of whole rows, and the last is what does not fill one, where there is such a rest.
    """
    size = block_numbers(device)
    full, rest = divmod(n_numbers, size)
    tail = rest % row
    return [size] * full + [part for part in (rest - tail, tail) if part]


def scratch(like: Tensor, dtype: torch.dtype, slot: int = 0) -> Tensor:
    """Memory of this thread, as long as *like*, at most a block, on its device; what it holds is of
    no meaning. Several that are in use at a time have a *slot* each."""
    key = like.device, dtype, slot
    held = _kept.held.get(key)
    if held is None:
        size = block_numbers(like.device)
        held = _kept.held[key] = torch.empty(size, dtype=dtype, device=like.device)
    return held[: like.numel()]


def difference_of(numbers: Tensor, anchor: Tensor) -> Tensor:
    """``numbers - anchor`` of one block in scratch memory, float32."""
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
    """Move numbers toward what was coded of them, block by block, in place.

    Args:
        coded: Arrays, each with one element for so many numbers as *rows* says.
        rows: Divisors of `BLOCK`.
        decode: Called with one block of each: what to fill, the anchor, and what was coded.
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
    """What writing numbers takes besides them."""

    anchor: Tensor
    sent: Tensor | None
    """What was last sent of each number, to be updated; None where that is not noted."""
    rng: np.random.Generator | None


def no_anchor(numbers: Tensor) -> Tensor:
    """An anchor of zeros, which takes no memory, for numbers that travel by themselves."""
    return numbers.new_zeros(1).expand(numbers.numel())


def widened(numbers: Tensor) -> torch.dtype:
    """In which numbers of a segment are kept that *numbers* are exchanged with.

    Many small moves of 16-bit numbers would all be lost to rounding.
    """
    return torch.float64 if numbers.dtype == torch.float64 else torch.float32


@torch.no_grad()
def exchange(
    mine: Sequence[Tensor], shared: Sequence[Tensor], *, taken: float, given: float
) -> bool:
    """Exchange flat tensors with a center, block by block; see `effects.Exchange`.

    No operation adds and multiplies at once, so that the bits do not depend on how long blocks are.

    Args:
        mine: Flat tensors of a register.
        shared: As long, of the dtypes that `widened` gives, on host memory or the same device.
        taken: How far *mine* goes toward *shared*.
        given: How far *shared* goes toward *mine*.

    Returns:
        Whether all differences are finite; where one is not, nothing was changed.
    """
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
    """``|numbers - others|^2`` in float64, of flat tensors on one device: the same bits on a CPU
    however many threads there are."""
    parts = []
    size = block_numbers(numbers.device)
    for own, other in zip(numbers.split(size), others.split(size), strict=True):
        apart = scratch(own, torch.float64).copy_(own).sub_(other).square_()
        n_whole = len(apart) - len(apart) % _ROW
        # Threads share rows out among them, and do not cut one; a single sum they would.
        rows = apart[:n_whole].view(-1, _ROW).sum(dim=1).sum()
        parts.append(float(rows + apart[n_whole:].sum()))
    return math.fsum(parts)


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
