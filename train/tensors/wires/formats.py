"""Write the numbers of one piece of a share to bytes and read them back, in any format.

A piece is a run of numbers of one dtype, shape ``(n,)``; its *room* is its slot in the payload,
uint8, laid out as `rumor.gossip.wire.formats.Wire` says. If ``wire.needs_anchor``, numbers are
written as differences from the anchor, which has their shape and dtype; *bare* ones are written as
absolute values. All are on one device, contiguous, and begin at a cache line. Numbers that a format
leaves unchanged (`Wire.converts`) do not come here.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from ....gossip.wire.formats import Wire
from ....gossip.wire.schema import ALIGNMENT_BYTES
from ..blocks import Given, no_anchor

__all__ = ["Coder", "arrays_in", "is_finite", "mix", "read", "write"]


class Coder(Protocol):
    """Interface of a format's module, which writes and reads the arrays of `Wire.parts`."""

    @staticmethod
    def write(parts: Sequence[Tensor], numbers: Tensor, wire: Wire, given: Given) -> bool:
        """Fill *parts*; return True if all written numbers are finite."""

    @staticmethod
    def mix(
        numbers: Tensor, parts: Sequence[Tensor], wire: Wire, fraction: float, anchor: Tensor
    ) -> None:
        """Set ``x += fraction * (value - x)``; exactly the value if *fraction* is 1."""

    @staticmethod
    def is_sound(parts: Sequence[Tensor], wire: Wire, n_numbers: int) -> bool:
        """True if the received numbers may be mixed."""


def write(
    room: Tensor,
    numbers: Tensor,
    wire: Wire,
    *,
    anchor: Tensor | None = None,
    sent: Tensor | None = None,
    rng: np.random.Generator | None = None,
    bare: bool = False,
) -> bool:
    """Write numbers to their room, padding included.

    Args:
        sent: The value that this peer last sent of each number. ``topk`` needs it, and updates it
            for numbers that it writes; of bare numbers it writes the largest.
        rng: Random numbers for the rounding of ``int8``; other formats need none.

    Returns:
        True if all written numbers are finite; False if a number is not, or if a difference is too
        large for the format: the limit of float16 is 65,504, bfloat16 and int8 have none.

    Raises:
        ValueError: An argument that the format needs is missing; the room is unchanged.
    """
    if sent is None and not (bare or wire.is_dense):
        raise ValueError("sent is missing")
    if rng is None and wire.is_random:
        raise ValueError("rng is missing")
    given = Given(_anchor(wire, numbers, anchor, bare), None if bare else sent, rng)
    parts = arrays_in(room, wire, numbers.numel(), padded=True)
    return _coder(wire.coder).write(parts, numbers, wire, given)


def mix(
    numbers: Tensor, room: Tensor, wire: Wire, fraction: float, *, anchor: Tensor | None = None
) -> None:
    """Move numbers toward those in a room, in place: ``x += fraction * (value - x)``.

    With ``topk`` only the numbers that were sent move, and positions out of range do no harm. A
    fraction of 1 makes numbers equal to the received ones.

    Raises:
        ValueError: The anchor is missing; nothing has moved.
    """
    anchor = _anchor(wire, numbers, anchor, bare=False)
    parts = arrays_in(room, wire, numbers.numel())
    _coder(wire.coder).mix(numbers, parts, wire, fraction, anchor)


def read(
    room: Tensor,
    wire: Wire,
    dtype: torch.dtype,
    n_numbers: int,
    *,
    anchor: Tensor | None = None,
    bare: bool = False,
) -> Tensor:
    """Return all numbers in a room.

    Bare numbers that ``topk`` left out are 0.

    Raises:
        ValueError: The anchor is missing, or the format does not hold every number.
    """
    if not (wire.is_dense or bare):
        raise ValueError(f"{wire} does not hold every number")
    make = torch.empty if wire.is_dense else torch.zeros
    numbers = make(n_numbers, dtype=dtype, device=room.device)
    anchor = _anchor(wire, numbers, anchor, bare)
    _coder(wire.coder).mix(numbers, arrays_in(room, wire, n_numbers), wire, 1.0, anchor)
    return numbers


def is_finite(room: Tensor, wire: Wire, n_numbers: int) -> bool:
    """True if the received numbers may be mixed: every number is finite, and with ``topk`` the
    positions ascend and are in range."""
    return _coder(wire.coder).is_sound(arrays_in(room, wire, n_numbers), wire, n_numbers)


@cache
def _coder(name: str) -> Coder:
    return cast(Coder, import_module(f".{name}", __package__))


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


def _anchor(wire: Wire, numbers: Tensor, anchor: Tensor | None, bare: bool) -> Tensor:
    if bare or not wire.needs_anchor:
        return no_anchor(numbers)
    if anchor is None:
        raise ValueError("anchor is missing")
    return anchor
