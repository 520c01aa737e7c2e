"""The few numbers that have moved most since they were last sent; the others wait for their turn.

Nothing is lost by waiting: what a coordinate has moved adds up until it is among the largest, and
what travels is the number itself, not the move. All of it works on any device; the tensors of one
call lie on the same.
"""

import numpy as np
import torch
from torch import Tensor

from ....gossip.wire.formats import CHUNK, Wire
from ....gossip.wire.schema import ALIGNMENT_BYTES
from ..blocks import all_finite, block_numbers, scratch

__all__ = [
    *("are_sound_chunks", "decode_chunks", "encode_chunks"),
    *("encode_largest", "is_sound", "mix_into"),
]

# Enough to find the largest hundredth within a tenth, and cheap beside a pass over the numbers.
_SAMPLE = 1 << 14


def encode_largest(
    indices: Tensor, values: Tensor, numbers: Tensor, sent: Tensor, *, notes: bool = True
) -> bool:
    """Write the numbers that differ most from what was last sent, and note them as sent.

    Exactly as many as there is room for; among equals, those that come first. Beside the room,
    memory for about twice as many is taken, and for all numbers only where a sample misleads.

    Args:
        indices: What to fill, int32, shape ``(k,)``: places in ascending order.
        values: The same, float32, shape ``(k,)``: the numbers there.
        numbers: float32 or float64, shape ``(n,)``, n >= k.
        sent: What a receiver would have of each number; updated in place where it was written.
        notes: Whether it is.

    Returns:
        Whether all numbers are finite, those that stay included; where not, *sent* is unchanged.
    """
    chosen = _largest(numbers, sent, indices.numel())
    if chosen is None:
        return False
    indices.copy_(chosen)
    values.copy_(numbers.index_select(0, chosen))
    if not all_finite(values):
        return False
    if notes:
        sent.index_copy_(0, chosen, values.to(sent.dtype))
    return True


def mix_into(numbers: Tensor, indices: Tensor, values: Tensor, fraction: float) -> None:
    """Move the numbers that were sent: ``x += fraction * (value - x)`` at their places.

    Args:
        numbers: float32 or float64, shape ``(n,)``.
        indices: int32, shape ``(k,)``. A place that there is not is taken for the nearest that
            there is, since the sender may share this memory and change it after `is_sound`.
        values: float32, shape ``(k,)``.
        fraction: In [0, 1]; 1 makes them equal to the values.
    """
    size = block_numbers(indices.device)
    for part, arrived in zip(indices.split(size), values.split(size), strict=True):
        places = scratch(part, torch.int64).copy_(part).clamp_(0, numbers.numel() - 1)
        if numbers.dtype != arrived.dtype:
            arrived = scratch(part, numbers.dtype, 1).copy_(arrived)
        if fraction != 1.0:
            here = torch.take(numbers, places, out=scratch(part, numbers.dtype))
            arrived = here.lerp_(arrived, fraction)
        numbers.put_(places, arrived)


def is_sound(indices: Tensor, values: Tensor, n_numbers: int) -> bool:
    """Whether places ascend, none twice and none out of range, and all values are finite."""
    in_range = bool(indices[0] >= 0) and bool(indices[-1] < n_numbers)
    return in_range and bool((indices[1:] > indices[:-1]).all()) and all_finite(values)


def _largest(numbers: Tensor, sent: Tensor, k: int) -> Tensor | None:
    """Places of the *k* largest moves, int64, ascending; None where a number is not finite."""
    threshold = _threshold(numbers, sent, k)
    places, moves, start = [], [], 0
    size = block_numbers(numbers.device)
    for here, last in zip(numbers.split(size), sent.split(size), strict=True):
        move = torch.sub(here, last, out=scratch(here, here.dtype)).abs_()
        if not all_finite(move) and not all_finite(here):
            return None
        above = _above(move, threshold)
        moves.append(move.index_select(0, above))
        places.append(above.add_(start))
        start += size
    candidates = torch.cat(places)
    n_missing = k - candidates.numel()
    if n_missing <= 0:
        return candidates[_are_largest(torch.cat(moves), k)]
    if threshold == 0:
        # All others have not moved at all.
        return torch.cat((candidates, _first_of_others(candidates, n_missing))).sort().values
    return torch.nonzero(_are_largest((numbers - sent).abs_(), k)).squeeze(1)


def _threshold(numbers: Tensor, sent: Tensor, k: int) -> float:
    """A move that likely somewhat more than *k* numbers pass, guessed from a sample."""
    n = numbers.numel()
    if n <= 4 * _SAMPLE:
        return -1.0
    # Odd, or the sample might keep to a few columns of a matrix.
    step = n // _SAMPLE | 1
    moves = (numbers[::step] - sent[::step]).abs_()
    expected = k / n * moves.numel()
    rank = int(expected + 4 * expected**0.5) + 4
    return float(moves.topk(rank, sorted=False).values.min()) if rank <= moves.numel() else -1.0


def _above(moves: Tensor, threshold: float) -> Tensor:
    """Places in a block, int64, of what is larger than *threshold*."""
    if moves.is_cuda:
        return torch.nonzero(moves > threshold).squeeze(1)
    # PyTorch's own comparison and search take six times as long on a CPU.
    return torch.from_numpy(np.flatnonzero(moves.numpy() > threshold))


def _are_largest(moves: Tensor, k: int) -> Tensor:
    """Which *k* of *moves* are largest, as bool; among equals, the first."""
    least = moves.topk(k, sorted=False).values.min()
    chosen = moves > least
    equal = torch.nonzero(moves == least).squeeze(1)
    chosen[equal[: k - int(chosen.sum())]] = True
    return chosen


def _first_of_others(taken: Tensor, n_places: int) -> Tensor:
    """The first places that are not *taken*, int64."""
    # So many hold enough of them, wherever the taken ones lie.
    free = torch.ones(taken.numel() + n_places, dtype=torch.bool, device=taken.device)
    free[taken[taken < free.numel()]] = False
    return torch.nonzero(free).squeeze(1)[:n_places]


def encode_chunks(room: Tensor, numbers: Tensor, wire: Wire) -> bool:
    """Write the largest numbers of each chunk, rounded to a sign and one of two sizes.

    The sizes of a chunk are the means of those of its largest that are above their mean size, and
    of the others: of all pairs of sizes about the nearest, found in one pass.

    Args:
        room: What to fill, uint8, ``wire.room_bytes(...)`` long.
        numbers: float32 or float64, shape ``(n,)``.
        wire: ``topk2bit``.

    Returns:
        Whether all numbers are finite; where not, what is in the room is of no use.

    Source: Sarfi, Therien, Lidin and Belilovsky 2025, SparseLoCo (chunks of 4,096, 2 bits); how
    numbers are rounded to these is ours.
    """
    n = numbers.numel()
    places, codes, levels = _rooms(room, wire, n)
    if not all_finite(numbers):
        return False
    found, coded = [], []
    for row, chunks in enumerate(_chunks(numbers)):
        k = wire.kept(chunks.shape[1])
        at = chunks.abs().topk(k, dim=1, sorted=False).indices.sort(dim=1).values
        values = chunks.gather(1, at).float()
        sizes = values.abs()
        is_large = sizes > sizes.mean(dim=1, keepdim=True)
        small = _mean_of(sizes, ~is_large)
        # The second group is what is left of a whole number of chunks.
        first = row * (n // CHUNK)
        levels[first : first + len(chunks)] = torch.stack((small, _mean_of(sizes, is_large)), 1)
        found.append(at.flatten())
        coded.append(((values < 0) + 2 * is_large.int()).flatten())
    places.copy_(_packed_places(torch.cat(found), len(places)))
    codes.copy_(_packed_codes(torch.cat(coded), len(codes)))
    return True


def decode_chunks(room: Tensor, wire: Wire, dtype: torch.dtype, n: int) -> Tensor:
    """Read what `encode_chunks` wrote: all numbers, shape ``(n,)``, those left out being 0.

    Places out of range, of a sender that changes its memory after `are_sound_chunks`, do no harm.
    """
    _, codes, levels = _rooms(room, wire, n)
    chunk, at = _unpacked_places(room, wire, n)
    shifts = torch.arange(0, 8, 2, device=room.device, dtype=torch.uint8)
    code = (codes[:, None] >> shifts & 3).flatten()[: len(at)].long()
    sizes = levels[chunk, code >> 1]
    numbers = torch.zeros(n, dtype=dtype, device=room.device)
    values = torch.where(code & 1 == 1, -sizes, sizes).to(dtype)
    numbers[at.clamp_(0, n - 1)] = values
    return numbers


def are_sound_chunks(room: Tensor, wire: Wire, n: int) -> bool:
    """Whether places ascend, none twice and none out of range, and all sizes are finite."""
    _, _, levels = _rooms(room, wire, n)
    _, at = _unpacked_places(room, wire, n)
    ascends = bool((at[1:] > at[:-1]).all()) and bool(at[-1] < n)
    return ascends and all_finite(levels.flatten()) and bool((levels >= 0).all())


def _chunks(numbers: Tensor) -> list[Tensor]:
    """All whole chunks as rows, and what is left as one more row."""
    whole = numbers.numel() // CHUNK * CHUNK
    groups = numbers[:whole].view(-1, CHUNK), numbers[whole:].view(1, -1)
    return [group for group in groups if group.numel()] if whole else [groups[1]]


def _mean_of(sizes: Tensor, chosen: Tensor) -> Tensor:
    """The mean of those that are chosen in each row; 0 where none is."""
    return (sizes * chosen).sum(dim=1) / chosen.sum(dim=1).clamp(min=1)


def _rooms(room: Tensor, wire: Wire, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Packed places and packed codes, uint8; sizes, float32, axes ``(chunk, 2)``."""
    kept = wire.kept(n)
    lengths = 3 * -(-kept // 2), -(-kept // 4), 8 * -(-n // CHUNK)
    parts, start = [], 0
    for length in lengths:
        parts.append(room[start : start + length])
        start += -(-length // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return parts[0], parts[1], parts[2].view(torch.float32).view(-1, 2)


def _packed_places(at: Tensor, n_bytes: int) -> Tensor:
    """Two places of 12 bits each in three bytes."""
    pairs = torch.nn.functional.pad(at, (0, 2 * n_bytes // 3 - len(at))).view(-1, 2)
    one, two = pairs[:, 0], pairs[:, 1]
    return torch.stack((one & 255, one >> 8 | (two & 15) << 4, two >> 4), 1).flatten()


def _unpacked_places(room: Tensor, wire: Wire, n: int) -> tuple[Tensor, Tensor]:
    """Of each number that was sent its chunk, and its place among all numbers; both int64."""
    packed = _rooms(room, wire, n)[0].view(-1, 3).long()
    one = packed[:, 0] | (packed[:, 1] & 15) << 8
    two = packed[:, 1] >> 4 | packed[:, 2] << 4
    within = torch.stack((one, two), 1).flatten()[: wire.kept(n)]
    chunk = torch.arange(len(within), device=room.device) // wire.kept(CHUNK)
    # In the last one there may be fewer.
    chunk.clamp_(max=(n - 1) // CHUNK)
    return chunk, chunk * CHUNK + within


def _packed_codes(codes: Tensor, n_bytes: int) -> Tensor:
    """Four codes of 2 bits each in a byte."""
    fours = torch.nn.functional.pad(codes, (0, 4 * n_bytes - len(codes))).view(-1, 4)
    shifts = torch.arange(0, 8, 2, device=codes.device)
    return (fours << shifts).sum(dim=1)
