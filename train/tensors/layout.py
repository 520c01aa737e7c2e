"""How a module's tensors lie in flat memory: which travel, in what order, at which offset."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ...gossip.errors import TrainingError
from ...gossip.wire.formats import INT8_BLOCK, Form, Wire, parse_wire
from ...gossip.wire.schema import ALIGNMENT_BYTES, Piece, Schema, TensorSpec, itemsize
from . import formats
from .blocks import is_finite_tensor

__all__ = [
    "SLICE_SIZE",
    "Layout",
    "Part",
    "Placed",
    "Plan",
    "Run",
    "Runs",
    "Segment",
    "as_text",
    "flatten",
    "from_text",
    "plan",
    "runs_of",
    "with_aliases",
]


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """One tensor of a module and where its bytes lie in a share."""

    spec: TensorSpec
    tensor: Tensor
    offset_bytes: int

    @property
    def stop_bytes(self) -> int:
        """Where its room ends, padding included."""
        return self.offset_bytes + self.spec.room_bytes

    def room(self, host: Tensor, offset_bytes: int) -> Tensor:
        """The bytes from an offset on as this tensor's values, in its dtype and shape."""
        raw = host[offset_bytes : offset_bytes + self.spec.size_bytes]
        return raw.view(self.tensor.dtype).view(self.tensor.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Neighboring shared tensors of one dtype on one device: what one flat tensor can hold."""

    tensors: tuple[Placed, ...]

    @property
    def start_bytes(self) -> int:
        """Where it begins in a share."""
        return self.tensors[0].offset_bytes

    @property
    def stop_bytes(self) -> int:
        """Where it ends in a share."""
        return self.tensors[-1].stop_bytes

    @property
    def dtype(self) -> torch.dtype:
        """Of all its tensors."""
        return self.tensors[0].tensor.dtype

    @property
    def device(self) -> torch.device:
        """Of all its tensors."""
        return self.tensors[0].tensor.device


class Layout:
    """Which tensors of *module* travel, and where.

    Shared are parameters that require gradients and floating buffers that are finite, dtype by
    dtype in the module's order. Other buffers are local: only a copy carries them. Frozen
    parameters, and buffers that the module does not save, do not travel at all.

    Args:
        module: Whose tensors.
        shards: Into how many pieces the vector is cut.
        scattered: Whether each piece has lines from all over it.

    Raises:
        ConfigError: There are more shards than the vector has cache lines.
        TrainingError: The module has nothing to share, a dtype that cannot travel, or lazy
            modules that have seen no batch.
    """

    def __init__(self, module: nn.Module, shards: int = 1, *, scattered: bool = False) -> None:
        shared, local = _sorted_out(module)
        if not shared:
            raise TrainingError("the model has no parameter that requires gradients")
        order = list(dict.fromkeys(tensor.dtype for _, tensor in shared))
        shared.sort(key=lambda item: order.index(item[1].dtype))
        placed = list(_place(shared, local))
        self.schema = Schema(tuple(item.spec for item in placed), shards, scattered)
        self.local = tuple(item for item in placed if not item.spec.shared)
        grouped = groupby(
            (item for item in placed if item.spec.shared),
            key=lambda item: (item.tensor.dtype, item.tensor.device),
        )
        self.segments = tuple(Segment(tuple(items)) for _, items in grouped)


def flatten(tensors: Sequence[Placed]) -> Tensor:
    """Lay tensors into one flat tensor, of which they become views."""
    first = tensors[0]
    itemsize = first.tensor.element_size()
    room = (tensors[-1].stop_bytes - first.offset_bytes) // itemsize
    flat = torch.zeros(room, dtype=first.tensor.dtype, device=first.tensor.device)
    for placed in tensors:
        start = (placed.offset_bytes - first.offset_bytes) // itemsize
        tensor = placed.tensor
        view = flat[start : start + tensor.numel()].view(tensor.shape)
        view.copy_(tensor.detach())
        tensor.data = view
    return flat


def _sorted_out(
    module: nn.Module,
) -> tuple[list[tuple[str, Tensor]], list[tuple[str, Tensor]]]:
    saved = set(module.state_dict().keys())
    parameters = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    buffers = [(name, b) for name, b in module.named_buffers() if name in saved]
    lazy = next((name for name, tensor in [*parameters, *buffers] if is_lazy(tensor)), None)
    if lazy is not None:
        raise TrainingError(
            f"{lazy} has no shape yet, as its module is a lazy one: run one batch through the "
            "model first, model(inputs)"
        )
    averaged = [(name, b) for name, b in buffers if _is_averaged(b)]
    local = [(name, b) for name, b in buffers if not _is_averaged(b)]
    return [*parameters, *averaged], local


def _is_averaged(buffer: Tensor) -> bool:
    # A mask of -inf is no statistic: its average with another's is NaN.
    return buffer.is_floating_point() and bool(torch.isfinite(buffer).all())


def _place(
    shared: Iterable[tuple[str, Tensor]], local: Iterable[tuple[str, Tensor]]
) -> Iterator[Placed]:
    offset = 0
    for is_shared, items in ((True, shared), (False, local)):
        for name, tensor in items:
            spec = _spec(name, tensor, is_shared)
            yield Placed(spec, tensor, offset)
            offset += spec.room_bytes


def _spec(name: str, tensor: Tensor, shared: bool) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    size = itemsize(dtype)
    if size is None or ALIGNMENT_BYTES % size:
        raise TrainingError(f"{name} is {dtype}, which cannot be shared")
    return TensorSpec(name, tuple(tensor.shape), dtype, shared)


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
    bare: bool = False
    """Whether the numbers are written by themselves: those of the first register, unless the form
    says so, are written as their difference from the anchor."""
    register: int = 0
    """Of which of the registers in the payload, in their order."""
    lines: Tensor | None = None
    """Which cache lines of the flat tensor, int64, on its device; `low` and `high` then count in
    them. None where they are neighbors."""

    def of(self, flats: Sequence[Tensor]) -> Tensor:
        """The numbers themselves: a view, or a copy where they are scattered, see `put`."""
        flat = flats[self.flat]
        if self.lines is None:
            return flat[self.low : self.high]
        return _as_lines(flat).index_select(0, self.lines).view(-1)

    def put(self, flats: Sequence[Tensor], numbers: Tensor) -> None:
        """Write back what `of` gave, changed."""
        if self.lines is not None:
            there = _as_lines(flats[self.flat])
            there.index_copy_(0, self.lines, numbers.view(-1, there.shape[1]))

    def room(self, payload: Tensor) -> Tensor:
        """The room, as a view: uint8."""
        return payload[self.start_bytes : self.stop_bytes]

    def is_finite(self, payload: Tensor) -> bool:
        """Whether all that a payload brings for it is finite."""
        room = self.room(payload)
        if self.wire is None:
            return is_finite_tensor(room.view(self.dtype))
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
            low, high = self.low + start, self.low + stop
            per_line = ALIGNMENT_BYTES // self.dtype.itemsize
            lines = None if self.lines is None else self.lines[start // per_line : stop // per_line]
            part = self._replace(low=low, high=high, lines=lines)
            yield part, _cut(self, payload, start, stop)

    def moved(self, offset_bytes: int) -> "Part":
        """The same numbers, in a room that lies so much further on."""
        start, stop = self.start_bytes + offset_bytes, self.stop_bytes + offset_bytes
        return self._replace(start_bytes=start, stop_bytes=stop)


class Plan(NamedTuple):
    """How a payload is made up: the numbers of one register after another, what a copy brings
    besides, the anchor's part."""

    parts: tuple[Part, ...]
    local_bytes: tuple[int, int]
    """Where the local buffers begin and end; equal where there are none."""
    anchor: tuple[Part, ...]
    size_bytes: int

    @property
    def is_native(self) -> bool:
        """Whether all numbers lie in it as they are."""
        return all(part.wire is None for part in self.parts)

    def of_register(self, index: int) -> tuple[Part, ...]:
        """The parts of one of the registers."""
        return tuple(part for part in self.parts if part.register == index)

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
    alone = tuple(_parts(pieces, segments, wire))
    stop = alone[-1].stop_bytes
    parts = tuple(
        part.moved(register * stop)._replace(register=register, bare=form.bare or register > 0)
        for register in range(form.registers)
        for part in alone
    )
    stop *= form.registers
    has_local = form.copy and shard == 0
    local = stop, stop + (schema.copy_bytes - schema.share_bytes if has_local else 0)
    anchor = tuple(_parts(pieces, segments, parse_wire(Form().wire))) if form.anchor else ()
    moved = tuple(part.moved(local[1]) for part in anchor)
    return Plan(parts, local, moved, form.size_bytes(schema, shard))


def _as_lines(flat: Tensor) -> Tensor:
    return flat.view(-1, ALIGNMENT_BYTES // flat.element_size())


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
        for index, low, high, lines in runs:
            stop = at + (room if used is not None else high - low)
            yield Part(index, low // size, high // size, at, stop, dtype, used, lines=lines)
            at = stop
        start += room


def _runs(
    piece: Piece, segments: Sequence[Segment]
) -> Iterator[tuple[int, int, int, Tensor | None]]:
    """The piece's bytes in each segment, counted from where that begins, or its lines there."""
    for index, segment in enumerate(segments):
        begin = segment.start_bytes
        low = max(piece.start_bytes, begin)
        high = min(piece.stop_bytes, segment.stop_bytes)
        if low >= high:
            continue
        if piece.lines is None:
            yield index, low - begin, high - begin, None
            continue
        ends = np.searchsorted(piece.lines, (low // ALIGNMENT_BYTES, high // ALIGNMENT_BYTES))
        lines = piece.lines[slice(*ends)].astype(np.int64) - begin // ALIGNMENT_BYTES
        if len(lines):
            found = torch.from_numpy(lines).to(segment.device)
            yield index, 0, len(lines) * ALIGNMENT_BYTES, found


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


class Run(NamedTuple):
    """Numbers of one tensor, flattened, that lie in one shard."""

    start: int
    stop: int
    shard: int


Runs = Mapping[str, tuple[Run, ...]]
"""By tensor; in order, and together all of it."""


def runs_of(schema: Schema) -> Runs:
    """Lay the shards of a vector over its tensors."""
    owners = np.empty(schema.share_bytes // ALIGNMENT_BYTES, np.int32)
    for shard in range(schema.shards):
        owners[schema.lines(shard)] = shard
    found, line = {}, 0
    for tensor in schema.tensors:
        if not tensor.shared:
            continue
        n_numbers, n_lines = prod(tensor.shape), tensor.room_bytes // ALIGNMENT_BYTES
        per_line = ALIGNMENT_BYTES * n_numbers // tensor.size_bytes if n_numbers else 1
        here = owners[line : line + n_lines]
        starts = np.flatnonzero(np.diff(here, prepend=-1))
        stops = [*(starts[1:] * per_line).tolist(), n_numbers]
        each = zip((starts * per_line).tolist(), stops, here[starts].tolist(), strict=False)
        found[tensor.name] = tuple(Run(*run) for run in each)
        line += n_lines
    return found


def with_aliases(runs: Runs, model: nn.Module) -> Runs:
    """Let every name of a tied parameter have the runs of the one that is shared."""
    state = model.state_dict()
    by_place = {state[name].data_ptr(): several for name, several in runs.items() if name in state}
    found = dict(runs)
    for name, tensor in state.items():
        if name not in found and tensor.data_ptr() in by_place:
            found[name] = by_place[tensor.data_ptr()]
    return found


def as_text(runs: Runs) -> str:
    """Runs as a word for the header of a file."""
    return json.dumps(runs, separators=(",", ":"))


def from_text(text: str) -> Runs:
    """Read what `as_text` wrote.

    Raises:
        ValueError: It is something else.
    """
    try:
        found = {name: tuple(Run(*run) for run in runs) for name, runs in json.loads(text).items()}
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no runs of shards: {error}") from None
    for name, runs in found.items():
        place = 0
        for run in runs:
            whole = all(type(number) is int for number in run)
            if not (whole and run.start == place <= run.stop and run.shard >= 0):
                raise ValueError(f"no runs of shards: those of {name} are not in order")
            place = run.stop
    return found
