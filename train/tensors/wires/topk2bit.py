"""``topk2bit``: the largest numbers of each chunk in 2 bits each, all others 0."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ....gossip.wire.formats import CHUNK, Wire
from ..blocks import Given, is_finite_tensor

__all__ = ["is_sound", "mix", "write"]


def write(parts: Sequence[Tensor], numbers: Tensor, wire: Wire, given: Given) -> bool:
    """Write the largest numbers of each chunk, rounded to a sign and one of two sizes.

    One size is the mean of those among a chunk's largest numbers that are above their mean size,
    the other that of the rest: about the best pair of sizes, found in one pass.

    Source: Sarfi, Therien, Lidin and Belilovsky 2025, SparseLoCo (chunks of 4,096, 2 bits); the
    rounding is our own.
    """
    places, codes, levels = parts
    levels = levels.view(-1, 2)
    if not is_finite_tensor(numbers):
        return False
    found, coded = [], []
    for row, chunks in enumerate(_chunks(numbers)):
        k = wire.kept(chunks.shape[1])
        at = chunks.abs().topk(k, dim=1, sorted=False).indices.sort(dim=1).values
        values = chunks.gather(1, at).float()
        sizes = values.abs()
        is_large = sizes > sizes.mean(dim=1, keepdim=True)
        small = _mean_of(sizes, ~is_large)
        # The second group is the remainder after whole chunks.
        first = row * (numbers.numel() // CHUNK)
        levels[first : first + len(chunks)] = torch.stack((small, _mean_of(sizes, is_large)), 1)
        found.append(at.flatten())
        coded.append(((values < 0) + 2 * is_large.int()).flatten())
    places.copy_(_packed_places(torch.cat(found), len(places)))
    codes.copy_(_packed_codes(torch.cat(coded), len(codes)))
    return True


def mix(
    numbers: Tensor, parts: Sequence[Tensor], wire: Wire, fraction: float, anchor: Tensor
) -> None:
    """Move numbers toward those written, and those left out toward 0."""
    _, codes, levels = parts
    n = numbers.numel()
    chunk, at = _unpacked_places(parts[0], wire, n)
    shifts = torch.arange(0, 8, 2, device=codes.device, dtype=torch.uint8)
    code = (codes[:, None] >> shifts & 3).flatten()[: len(at)].long()
    sizes = levels.view(-1, 2)[chunk, code >> 1]
    arrived = torch.zeros_like(numbers)
    # A sender that shares this memory may change positions after `is_sound`.
    arrived[at.clamp_(0, n - 1)] = torch.where(code & 1 == 1, -sizes, sizes).to(numbers.dtype)
    numbers.lerp_(arrived, fraction)


def is_sound(parts: Sequence[Tensor], wire: Wire, n_numbers: int) -> bool:
    """True if positions strictly ascend and are in range, and all sizes are finite."""
    levels = parts[2]
    _, at = _unpacked_places(parts[0], wire, n_numbers)
    ascends = bool((at[1:] > at[:-1]).all()) and bool(at[-1] < n_numbers)
    return ascends and is_finite_tensor(levels) and bool((levels >= 0).all())


def _chunks(numbers: Tensor) -> list[Tensor]:
    """Return all whole chunks as rows, and the remainder as one more row."""
    whole = numbers.numel() // CHUNK * CHUNK
    groups = numbers[:whole].view(-1, CHUNK), numbers[whole:].view(1, -1)
    return [group for group in groups if group.numel()] if whole else [groups[1]]


def _mean_of(sizes: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of the chosen sizes in each row; 0 without any."""
    return (sizes * chosen).sum(dim=1) / chosen.sum(dim=1).clamp(min=1)


def _packed_places(at: Tensor, n_bytes: int) -> Tensor:
    """Pack two positions of 12 bits each into three bytes."""
    pairs = torch.nn.functional.pad(at, (0, 2 * n_bytes // 3 - len(at))).view(-1, 2)
    one, two = pairs[:, 0], pairs[:, 1]
    return torch.stack((one & 255, one >> 8 | (two & 15) << 4, two >> 4), 1).flatten()


def _unpacked_places(places: Tensor, wire: Wire, n: int) -> tuple[Tensor, Tensor]:
    """Return the chunk of each number that was sent, and its position among all numbers."""
    packed = places.view(-1, 3).long()
    one = packed[:, 0] | (packed[:, 1] & 15) << 8
    two = packed[:, 1] >> 4 | packed[:, 2] << 4
    within = torch.stack((one, two), 1).flatten()[: wire.kept(n)]
    chunk = torch.arange(len(within), device=places.device) // wire.kept(CHUNK)
    # The last chunk may have fewer numbers.
    chunk.clamp_(max=(n - 1) // CHUNK)
    return chunk, chunk * CHUNK + within


def _packed_codes(codes: Tensor, n_bytes: int) -> Tensor:
    """Pack four codes of 2 bits each into a byte."""
    fours = torch.nn.functional.pad(codes, (0, 4 * n_bytes - len(codes))).view(-1, 4)
    shifts = torch.arange(0, 8, 2, device=codes.device)
    return (fours << shifts).sum(dim=1)
