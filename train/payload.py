"""Where everything lies in the bytes of a share, and in which flat tensor it belongs."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from ..gossip.errors import TrainingError
from ..gossip.schema import Piece, Schema
from ..gossip.wire import INT8_BLOCK, Form, Wire, parse_wire
from . import formats
from .finite import is_finite
from .layout import Segment

__all__ = ["SLICE_SIZE", "Part", "Plan", "plan"]

SLICE_SIZE: Final = 1 << 19
"""Numbers that are mixed at a time where training shall not wait for a whole share: some 0.2 ms."""


class Part(NamedTuple):
    """Numbers of one flat tensor, and the room that they have in a payload."""

    flat: int
    """Which flat tensor."""
    low: int
    """First of its numbers."""
    high: int
    """One beyond its last."""
    start_bytes: int
    """Where the room begins in a payload."""
    stop_bytes: int
    """Where it ends, padding included."""
    dtype: torch.dtype
    """Of the numbers."""
    wire: Wire | None
    """In what format they lie there; None for as they are."""

    def of(self, flats: Sequence[Tensor]) -> Tensor:
        """The numbers themselves, as a view."""
        return flats[self.flat][self.low : self.high]

    def room(self, payload: Tensor) -> Tensor:
        """The room, as a view: uint8."""
        return payload[self.start_bytes : self.stop_bytes]

    def is_finite(self, payload: Tensor) -> bool:
        """Whether all that a payload brings for it is finite."""
        room = self.room(payload)
        if self.wire is None:
            return is_finite(room.view(self.dtype))
        return formats.is_finite(room, self.wire, self.dtype, self.high - self.low)

    def slices(self, payload: Tensor) -> Iterator[tuple["Part", Tensor]]:
        """Cut it into neighboring parts of `SLICE_SIZE` numbers, each with its bytes.

        What ``topk`` sends of a part is one slice: it is little.
        """
        n_numbers = self.high - self.low
        whole = n_numbers <= SLICE_SIZE or not (self.wire is None or self.wire.is_dense)
        if whole:
            yield self, self.room(payload)
            return
        for start in range(0, n_numbers, SLICE_SIZE):
            stop = min(start + SLICE_SIZE, n_numbers)
            part = self._replace(low=self.low + start, high=self.low + stop)
            yield part, _cut(self, payload, start, stop)

    def moved(self, offset_bytes: int) -> "Part":
        """The same numbers, in a room that lies so much further on."""
        start, stop = self.start_bytes + offset_bytes, self.stop_bytes + offset_bytes
        return self._replace(start_bytes=start, stop_bytes=stop)


class Plan(NamedTuple):
    """How a payload is made up: the numbers, what a copy brings besides, the anchor's part."""

    parts: tuple[Part, ...]
    local_bytes: tuple[int, int]
    """Where the local buffers begin and end; equal where there are none."""
    anchor: tuple[Part, ...]
    size_bytes: int

    @property
    def is_native(self) -> bool:
        """Whether all numbers lie in it as they are."""
        return all(part.wire is None for part in self.parts)

    def between(self, start_bytes: int, stop_bytes: int) -> Iterator[tuple[Part, int, int]]:
        """The parts that lie, in part, between two places, and what of their rooms does."""
        for part in (*self.parts, *self.anchor):
            low, high = max(part.start_bytes, start_bytes), min(part.stop_bytes, stop_bytes)
            if low < high:
                yield part, low, high


def plan(schema: Schema, segments: Sequence[Segment], form: Form, shard: int) -> Plan:
    """Lay out the payload of one shard.

    Args:
        schema: What is cut into shards.
        segments: Where its flat tensors lie in the vector.
        form: What the payload consists of.
        shard: Which.

    Raises:
        TrainingError: Numbers of one dtype are to be converted that lie on several devices.
    """
    wire, pieces = parse_wire(form.wire), schema.pieces(shard)
    parts = tuple(_parts(pieces, segments, wire))
    stop = parts[-1].stop_bytes
    has_local = form.copy and shard == 0
    local = stop, stop + (schema.copy_bytes - schema.share_bytes if has_local else 0)
    anchor = tuple(_parts(pieces, segments, parse_wire(Form().wire))) if form.anchor else ()
    moved = tuple(part.moved(local[1]) for part in anchor)
    return Plan(parts, local, moved, form.size_bytes(schema, shard))


def _parts(pieces: Sequence[Piece], segments: Sequence[Segment], wire: Wire) -> Iterator[Part]:
    start = 0
    for piece in pieces:
        dtype: torch.dtype = getattr(torch, piece.dtype)
        size = dtype.itemsize
        room = wire.room_bytes(piece.dtype, piece.n_numbers, size)
        used = wire if wire.converts(piece.dtype) else None
        runs = list(_runs(piece, segments))
        if used is not None and len(runs) > 1:
            raise TrainingError(
                f"the model's {piece.dtype} tensors lie on several devices: only wire=float32 "
                f"can carry them"
            )
        at = start
        for index, low, high in runs:
            stop = at + (room if used is not None else high - low)
            begin = segments[index].start_bytes
            numbers = (low - begin) // size, (high - begin) // size
            yield Part(index, *numbers, at, stop, dtype, used)
            at = stop
        start += room


def _runs(piece: Piece, segments: Sequence[Segment]) -> Iterator[tuple[int, int, int]]:
    """The piece's bytes in the vector, segment by segment."""
    for index, segment in enumerate(segments):
        low = max(piece.start_bytes, segment.start_bytes)
        high = min(piece.stop_bytes, segment.stop_bytes)
        if low < high:
            yield index, low, high


def _cut(part: Part, payload: Tensor, start: int, stop: int) -> Tensor:
    """The bytes of some of a part's numbers; *start* is a multiple of `SLICE_SIZE`."""
    room = part.room(payload)
    if part.wire is None:
        return room[start * part.dtype.itemsize : stop * part.dtype.itemsize]
    if part.wire.name != "int8":
        return room[2 * start : 2 * stop]
    # Scales lie behind all codes, so the bytes of a slice have to be brought together.
    n_numbers = stop - start
    used = torch.empty(part.wire.room_bytes("float32", n_numbers, 4), dtype=torch.uint8)
    scales = room[-(-(part.high - part.low) // 64) * 64 :]
    behind = used[-(-n_numbers // 64) * 64 :]
    first = 4 * (start // INT8_BLOCK)
    count = 4 * -(-n_numbers // INT8_BLOCK)
    used[:n_numbers] = room[start:stop]
    behind[:count] = scales[first : first + count]
    return used
