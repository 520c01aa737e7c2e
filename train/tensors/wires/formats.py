"""Write the numbers of one piece of a share to bytes and read them back, in any format.

A piece is a run of numbers of one dtype, shape ``(n,)``; its *room* is its slot in the payload,
uint8, laid out as `rumor.gossip.wire.formats.Wire` says. If ``wire.needs_anchor``, numbers are
written as differences from the anchor, which has their shape and dtype; without one, as absolute
values. All are on one device, contiguous, and begin at a cache line. Numbers that a format leaves
unchanged (`Wire.converts`) do not come here.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from ....gossip.wire.formats import Wire
from ....gossip.wire.schema import ALIGNMENT_BYTES
from ..blocks import Given, no_anchor
from . import halves, int8, topk, topk2bit

__all__ = ["arrays_in", "is_finite", "mix", "read", "write"]


class _Coder(Protocol):
    """Interface of a format's module, which writes and reads the arrays of `Wire.parts`."""

    def write(self, parts: Sequence[Tensor], numbers: Tensor, wire: Wire, given: Given) -> bool:
        """Fill *parts*; return True if all written numbers are finite."""

    def mix(
        self, numbers: Tensor, parts: Sequence[Tensor], wire: Wire, fraction: float, anchor: Tensor
    ) -> None:
        """Set ``x += fraction * (value - x)``; exactly the value if *fraction* is 1."""

    def is_sound(self, parts: Sequence[Tensor], wire: Wire, n_numbers: int) -> bool:
        """True if the received numbers may be mixed."""


def write(
    room: Tensor,
    numbers: Tensor,
    wire: Wire,
    *,
    anchor: Tensor | None = None,
    sent: Tensor | None = None,
    rng: np.random.Generator | None = None,
) -> bool:
    """Write numbers to their room, padding included.

    Args:
        sent: The value that this peer last sent of each number, which ``topk`` updates; without it,
            ``topk`` writes the largest numbers.
        rng: Random numbers for the rounding of ``int8``.

    Returns:
        False if a number is not finite, or a difference is beyond the 65,504 of float16.
    """
    given = Given(no_anchor(numbers) if anchor is None else anchor, sent, rng)
    parts = arrays_in(room, wire, numbers.numel(), padded=True)
    return _CODERS[wire.coder].write(parts, numbers, wire, given)


def mix(
    numbers: Tensor, room: Tensor, wire: Wire, fraction: float, *, anchor: Tensor | None = None
) -> None:
    """Move numbers toward those in a room, in place: ``x += fraction * (value - x)``; exactly to
    them if *fraction* is 1. With ``topk``, only the numbers that were sent move."""
    base = no_anchor(numbers) if anchor is None else anchor
    _CODERS[wire.coder].mix(numbers, arrays_in(room, wire, numbers.numel()), wire, fraction, base)


def read(
    room: Tensor, wire: Wire, dtype: torch.dtype, n_numbers: int, *, anchor: Tensor | None = None
) -> Tensor:
    """Return all numbers in a room; those that ``topk`` left out are 0."""
    make = torch.empty if wire.is_dense else torch.zeros
    numbers = make(n_numbers, dtype=dtype, device=room.device)
    mix(numbers, room, wire, 1.0, anchor=anchor)
    return numbers


def is_finite(room: Tensor, wire: Wire, n_numbers: int) -> bool:
    """True if the received numbers may be mixed: every number is finite, and with ``topk`` the
    positions ascend and are in range."""
    return _CODERS[wire.coder].is_sound(arrays_in(room, wire, n_numbers), wire, n_numbers)


_CODERS: Final[Mapping[str, _Coder]] = {
    "halves": halves,
    "int8": int8,
    "topk": topk,
    "topk2bit": topk2bit,
}


def arrays_in(room: Tensor, wire: Wire, n: int, *, padded: bool = False) -> list[Tensor]:
    """Return views of the arrays in a room; with *padded*, zero the bytes after each."""
    parts, start = [], 0
    for name, length in wire.parts(n):
        kind: torch.dtype = getattr(torch, name)
        stop = start + length * kind.itemsize
        parts.append(room[start:stop].view(kind))
        start = -(-stop // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if padded:
            room[stop:start].zero_()
    return parts
