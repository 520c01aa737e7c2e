"""``topk``: the few numbers that have moved most since they were last sent.

Waiting loses nothing: a coordinate's moves add up until they are among the largest, and the number
itself is sent, not the move.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ....gossip.wire.formats import Wire
from ..blocks import Given, block_numbers, is_finite_tensor, no_anchor, scratch

__all__ = ["is_sound", "mix", "write"]

# Enough to find the largest hundredth within a tenth, and cheap compared with a pass over all
# numbers.
_SAMPLE = 1 << 14


def write(parts: Sequence[Tensor], numbers: Tensor, wire: Wire, given: Given) -> bool:
    """Write as many numbers as fit: those that differ most from the ones last sent, the first among
    equals. *given.sent* records them, unless a number is not finite; if None, write the largest."""
    indices, values = parts
    sent = given.sent
    before = no_anchor(numbers) if sent is None else sent
    chosen = _largest(numbers, before, indices.numel())
    if chosen is None:
        return False
    indices.copy_(chosen)
    values.copy_(numbers.index_select(0, chosen))
    if not is_finite_tensor(values):
        return False
    if sent is not None:
        sent.index_copy_(0, chosen, values.to(sent.dtype))
    return True


def mix(
    numbers: Tensor, parts: Sequence[Tensor], wire: Wire, fraction: float, anchor: Tensor
) -> None:
    """Move the numbers that were sent."""
    indices, values = parts
    size = block_numbers(indices.device)
    for part, arrived in zip(indices.split(size), values.split(size), strict=True):
        # A sender that shares this memory may change it after `is_sound`.
        places = scratch(part, torch.int64).copy_(part).clamp_(0, numbers.numel() - 1)
        if numbers.dtype != arrived.dtype:
            arrived = scratch(part, numbers.dtype, 1).copy_(arrived)
        if fraction != 1.0:
            here = torch.take(numbers, places, out=scratch(part, numbers.dtype))
            arrived = here.lerp_(arrived, fraction)
        numbers.put_(places, arrived)


def is_sound(parts: Sequence[Tensor], wire: Wire, n_numbers: int) -> bool:
    """True if positions strictly ascend and are in range, and all values are finite."""
    indices, values = parts
    in_range = bool(indices[0] >= 0) and bool(indices[-1] < n_numbers)
    return in_range and bool((indices[1:] > indices[:-1]).all()) and is_finite_tensor(values)


def _largest(numbers: Tensor, sent: Tensor, k: int) -> Tensor | None:
    """Return the positions of the *k* largest moves, ascending; None if a number is not finite."""
    threshold = _threshold(numbers, sent, k)
    places, moves, start = [], [], 0
    size = block_numbers(numbers.device)
    for here, last in zip(numbers.split(size), sent.split(size), strict=True):
        move = torch.sub(here, last, out=scratch(here, here.dtype)).abs_()
        if not is_finite_tensor(move) and not is_finite_tensor(here):
            return None
        if move.is_cuda:
            above = torch.nonzero(move > threshold).squeeze(1)
        else:
            # On a CPU, comparison and search by PyTorch take six times as long.
            above = torch.from_numpy(np.flatnonzero(move.numpy() > threshold))
        moves.append(move.index_select(0, above))
        places.append(above.add_(start))
        start += size
    candidates = torch.cat(places)
    n_missing = k - candidates.numel()
    if n_missing <= 0:
        return candidates[_are_largest(torch.cat(moves), k)]
    if threshold == 0:
        # All other numbers have not moved at all.
        return torch.cat((candidates, _first_of_others(candidates, n_missing))).sort().values
    return torch.nonzero(_are_largest((numbers - sent).abs_(), k)).squeeze(1)


def _threshold(numbers: Tensor, sent: Tensor, k: int) -> float:
    """Estimate from a sample a move that slightly more than *k* numbers likely exceed."""
    n = numbers.numel()
    if n <= 4 * _SAMPLE:
        return -1.0
    # An even step might sample only a few columns of a matrix.
    step = n // _SAMPLE | 1
    moves = (numbers[::step] - sent[::step]).abs_()
    expected = k / n * moves.numel()
    rank = int(expected + 4 * expected**0.5) + 4
    return float(moves.topk(rank, sorted=False).values.min()) if rank <= moves.numel() else -1.0


def _are_largest(moves: Tensor, k: int) -> Tensor:
    """Return a mask of the *k* largest *moves*; among equals, the first."""
    least = moves.topk(k, sorted=False).values.min()
    chosen = moves > least
    equal = torch.nonzero(moves == least).squeeze(1)
    chosen[equal[: k - int(chosen.sum())]] = True
    return chosen


def _first_of_others(taken: Tensor, n_places: int) -> Tensor:
    """Return the first positions that are not *taken*, int64."""
    # This many contain enough free positions, wherever the taken ones are.
    free = torch.ones(taken.numel() + n_places, dtype=torch.bool, device=taken.device)
    free[taken[taken < free.numel()]] = False
    return torch.nonzero(free).squeeze(1)[:n_places]
