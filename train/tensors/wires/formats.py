"""One piece of a share, its numbers written into bytes and read back, in any format.

A piece is a run of numbers of one dtype; its room is where they travel, laid out as
`rumor.gossip.wire.formats.Wire` says. Numbers, anchor and room are on one device, contiguous, and
begin at a cache line.
"""

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ....gossip.wire.formats import INT8_BLOCK, Wire
from ....gossip.wire.schema import ALIGNMENT_BYTES
from ..blocks import all_finite, blocks, copy_finite, scratch
from .quantization import (
    are_finite_codes,
    decode_codes,
    decode_halves,
    encode_codes,
    encode_halves,
    rows_of,
)
from .sparsification import (
    are_sound_chunks,
    decode_chunks,
    encode_chunks,
    encode_largest,
    is_sound,
    mix_into,
)

__all__ = ["is_finite", "mix", "no_anchor", "read", "write"]

_T = TypeVar("_T")

_HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def no_anchor(numbers: Tensor) -> Tensor:
    """An anchor of zeros, for what is small beside a model: it travels rounded, as it is.

    Args:
        numbers: What is written or read; of its dtype, device and length is the result, which takes
            no memory.
    """
    return numbers.new_zeros(1).expand(numbers.numel())


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
    """Put numbers into their room.

    Args:
        room: What to fill, padding included: uint8, ``wire.room_bytes(...)`` long.
        numbers: What to write, shape ``(n,)``; float32 and float64 are converted, other dtypes
            travel as they are.
        wire: The format.
        anchor: Like *numbers*; needed where ``wire.needs_anchor``.
        sent: Like *numbers*: what this peer last sent of each; needed by ``topk``, which updates
            it where it writes.
        rng: Decides how ``int8`` rounds, and is not needed by others.
        bare: Whether numbers are written by themselves, so that neither *anchor* nor *sent* is
            needed: ``topk`` takes the largest.

    Returns:
        Whether all that was written is finite. It is not where a number is not, or where a
        difference is too large for the format: float16 ends at 65,504, bfloat16 and int8 do not.

    Raises:
        ValueError: What the format needs is missing; the room is unchanged.
    """
    if wire.is_for_differences and _converts(wire, numbers.dtype):
        room.zero_()
        return encode_chunks(room, numbers, wire)
    first, second = _parts(room, wire, numbers.dtype, numbers.numel(), padded=True)
    if not _converts(wire, numbers.dtype):
        return copy_finite(first, numbers)
    if bare:
        anchor = sent = no_anchor(numbers)
    if wire.name == "topk":
        return encode_largest(first, second, numbers, _given(sent, "sent"), notes=not bare)
    anchor = _given(anchor, "anchor")
    if wire.name == "int8":
        return encode_codes(first, second, numbers, anchor, _given(rng, "rng"))
    return encode_halves(first, numbers, anchor)


def mix(
    numbers: Tensor, room: Tensor, wire: Wire, fraction: float, *, anchor: Tensor | None = None
) -> None:
    """Move numbers toward those in a room, in place: ``x += fraction * (value - x)``.

    With ``topk`` only the numbers that were sent move, and places out of range do no harm.

    Args:
        numbers: Shape ``(n,)``.
        room: What `write` filled, uint8; only read.
        wire: Its format.
        fraction: In [0, 1]; 1 makes *numbers* equal to what arrived.
        anchor: Like *numbers*, that of the writer; needed where ``wire.needs_anchor``.

    Raises:
        ValueError: The anchor is missing; nothing has moved.
    """
    first, second = _parts(room, wire, numbers.dtype, numbers.numel())
    if not _converts(wire, numbers.dtype):
        _toward(numbers, first, fraction)
    elif wire.name == "topk":
        mix_into(numbers, first, second, fraction)
    else:
        anchor = _given(anchor, "anchor")
        for here, base, *coded in _blocks(numbers, anchor, first, second):
            if fraction == 1.0:
                _decode(here, base, *coded)
            else:
                arrived = scratch(here, here.dtype)
                _decode(arrived, base, *coded)
                here.lerp_(arrived, fraction)


def read(
    room: Tensor,
    wire: Wire,
    dtype: torch.dtype,
    n_numbers: int,
    *,
    anchor: Tensor | None = None,
    bare: bool = False,
) -> Tensor:
    """All numbers in a room.

    Args:
        room: What `write` filled, uint8.
        wire: Its format; ``topk`` only where *bare*.
        dtype: Of the numbers.
        n_numbers: How many there are.
        anchor: That of the writer; needed where ``wire.needs_anchor``.
        bare: Whether they were written by themselves, so that *anchor* is not needed, and what
            ``topk`` has left out is 0.

    Returns:
        Shape ``(n_numbers,)``; where they travelled as they are, a view of *room*.

    Raises:
        ValueError: The anchor is missing, or the format does not hold every number.
    """
    if wire.is_for_differences and _converts(wire, dtype):
        return decode_chunks(room, wire, dtype, n_numbers)
    first, second = _parts(room, wire, dtype, n_numbers)
    if not _converts(wire, dtype):
        return first
    if not wire.is_dense:
        if not bare:
            raise ValueError(f"{wire} does not hold every number")
        numbers = torch.zeros(n_numbers, dtype=dtype, device=room.device)
        mix_into(numbers, first, second, 1.0)
        return numbers
    numbers = torch.empty(n_numbers, dtype=dtype, device=room.device)
    anchor = no_anchor(numbers) if bare else _given(anchor, "anchor")
    for here, base, *coded in _blocks(numbers, anchor, first, second):
        _decode(here, base, *coded)
    return numbers


def is_finite(room: Tensor, wire: Wire, dtype: torch.dtype, n_numbers: int) -> bool:
    """Whether what arrived may be mixed: every number is finite, and with ``topk`` the places
    ascend and are all in range.

    Args:
        room: Bytes that come from elsewhere, uint8.
        wire: Their format.
        dtype: Of the numbers.
        n_numbers: How many there are.
    """
    if wire.is_for_differences and _converts(wire, dtype):
        return are_sound_chunks(room, wire, n_numbers)
    first, second = _parts(room, wire, dtype, n_numbers)
    if not _converts(wire, dtype):
        return all_finite(first)
    if wire.name == "topk":
        return is_sound(first, second, n_numbers)
    return are_finite_codes(second) if wire.name == "int8" else all_finite(first)


def _parts(
    room: Tensor, wire: Wire, dtype: torch.dtype, n: int, *, padded: bool = False
) -> tuple[Tensor, Tensor]:
    """The room as tensors: numbers, or halves, or codes, or indices; then scales, or values, or
    none. With *padded*, the bytes after each are zeroed.
    """
    first, second = (dtype, n), (torch.float32, 0)
    if _converts(wire, dtype):
        match wire.name:
            case "int8":
                first, second = (torch.int8, n), (torch.float32, -(-n // INT8_BLOCK))
            case "topk":
                first, second = (torch.int32, wire.kept(n)), (torch.float32, wire.kept(n))
            case _:
                first = _HALVES[wire.name], n
    parts, start = [], 0
    for part_dtype, length in (first, second):
        stop = start + length * part_dtype.itemsize
        parts.append(room[start:stop].view(part_dtype))
        start = -(-stop // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if padded:
            room[stop:start].zero_()
    return parts[0], parts[1]


def _blocks(
    numbers: Tensor, anchor: Tensor, first: Tensor, second: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Block by block: numbers, anchor, and halves, or codes and their scales."""
    row = INT8_BLOCK if second.numel() else 1
    sizes = blocks(numbers.numel(), numbers.device, row)
    parts = [tensor.split(sizes) for tensor in (numbers, anchor, first)]
    if second.numel():
        parts.append(second.split(rows_of(sizes)))
    return zip(*parts, strict=True)


def _decode(out: Tensor, anchor: Tensor, coded: Tensor, scales: Tensor | None = None) -> None:
    if scales is None:
        decode_halves(out, coded, anchor)
    else:
        decode_codes(out, coded, scales, anchor)


def _toward(numbers: Tensor, arrived: Tensor, fraction: float) -> None:
    if fraction == 1.0:
        numbers.copy_(arrived)
    else:
        numbers.lerp_(arrived, fraction)


def _converts(wire: Wire, dtype: torch.dtype) -> bool:
    return wire.converts(_name(dtype))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _given(value: _T | None, name: str) -> _T:
    if value is None:
        raise ValueError(f"{name} is missing")
    return value
