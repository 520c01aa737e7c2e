"""Shares in flight: written from the workers' rows in their wire format, and mixed into them.

A slot holds what a live peer would have sent, byte for byte, and it is written and read by the same
functions, so that a simulated worker gets the same numbers in every bit.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...gossip.effects.effects import X
from ...gossip.effects.registers import OnDemand
from ...gossip.types import PeerId, stream
from ...gossip.wire.formats import NATIVE, Wire, parse_wire
from ...gossip.wire.schema import Schema
from ...train.tensors.blocks import exchange, no_anchor, squared_distance, widened
from ...train.tensors.layout import spans_of
from ...train.tensors.wires import formats
from ..kernel import program
from ..kernel.faults.forgeries import Vector
from .cores import ONE_CORE, Threads

__all__ = [
    *("EachRow", "Parts", "PerWorker", "Rows", "Shares", "WholeShares"),
    *("mix", "rows_of"),
]

Parts = tuple[Tensor, ...]
"""One flat tensor for each dtype of the model."""


class PerWorker(dict[int, Parts]):
    """A register on demand: zeros for each worker that asks for it."""

    def __init__(self, like: "WorkerRows") -> None:
        super().__init__()
        self._like = like

    def __missing__(self, worker: int) -> Parts:
        made = self[worker] = tuple(torch.zeros_like(part) for part in self._like[worker])
        return made


class EachRow:
    """A register's rows, one by one; their tensors are made on first use."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._each: list[Parts] = []

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, worker: int) -> Parts:
        if not self._each:
            self._each = list(zip(*(part.unbind(0) for part in self.parts), strict=True))
        return self._each[worker]


WorkerRows = EachRow | PerWorker
"""One register of all workers."""

Rows = OnDemand[WorkerRows]
"""All registers."""


def rows_of(registers: Mapping[str, Parts], names: Iterable[str] = ()) -> Rows:
    """Return each worker's vectors, by register."""
    rows = Rows(names, lambda: PerWorker(rows[X]))
    for name, parts in registers.items():
        rows[name] = EachRow(parts)
    return rows


_SHARES_MIN: Final = 64
_GROWTH: Final = 1.5

# In place of a slot's place.
_NONE_YET: Final = -1
_RELEASED: Final = -2  # as in `row_kernels`


class WholeShares:
    """Shares in one block of memory, each in a place of its own until its slot is released.

    Args:
        x: The workers' vectors, float32 or float64, on the CPU, axes ``(worker, number)``.
        threads: Threads that share the columns; their number changes no bit.
    """

    def __init__(self, x: Tensor, threads: Threads) -> None:
        self._x = x.numpy()
        self._block = np.empty((_SHARES_MIN, x.shape[1]), self._x.dtype)
        # Slots count from the first that may still be used; machine code looks them up in arrays.
        self._first_slot = 0
        self._places = np.full(_SHARES_MIN, _NONE_YET, np.int64)
        self._free = np.zeros(_SHARES_MIN, np.int64)
        self._n_free = self._n_places = 0
        self._threads = threads

    def carry_out(self, rows: NDArray[np.int64], fractions: NDArray[np.float64]) -> None:
        """Execute a `Level`'s snapshots, mixes and releases in order; skip other operations."""
        from .row_kernels import carry_out, find_places

        self._reach(int(rows[:, 3].max()), len(rows))
        rows = rows.copy()
        lists = self._places, self._free, self._n_free, self._n_places
        self._n_free, self._n_places = find_places(rows, self._first_slot, *lists)
        self._make_room()
        n, free = self._x.shape[1], self._threads.free
        cuts = [n * at // free // 16 * 16 for at in range(free)] + [n]
        given = self._x, self._block, rows, fractions.astype(self._x.dtype)
        self._threads.share(lambda part: carry_out(*given, *part), [*pairwise(cuts)])

    def snapshot(self, slot: int, worker: int) -> None:
        self._reach(slot, 1)
        if self._n_free:
            self._n_free -= 1
            place = self._free[self._n_free]
        else:
            place, self._n_places = self._n_places, self._n_places + 1
        self._places[slot - self._first_slot] = place
        self._make_room()
        self._block[place] = self._x[worker]

    def share(self, slot: int) -> Tensor:
        """Return the share in a slot: a view, valid until the next snapshot."""
        return torch.from_numpy(self._block[self._places[slot - self._first_slot]])

    def release(self, slot: int) -> None:
        at = slot - self._first_slot
        self._free[self._n_free], self._places[at] = self._places[at], _RELEASED
        self._n_free += 1

    def _reach(self, slot: int, n: int) -> None:
        """Make room for slots up to this one, and for *n* more free shares."""
        if self._n_places + n > len(self._free):
            self._free = np.pad(self._free, (0, self._n_places + n))
        if slot - self._first_slot < len(self._places):
            return
        in_use = self._places != _RELEASED
        n_over = int(in_use.argmax()) if in_use.any() else len(in_use)
        kept = self._places[n_over:]
        self._first_slot += n_over
        n_slots = 2 * max(len(kept), slot + 1 - self._first_slot)
        self._places = np.pad(kept, (0, n_slots - len(kept)), constant_values=_NONE_YET)

    def _make_room(self) -> None:
        had = len(self._block)
        if self._n_places > had:
            # This is rare, as both blocks exist while one is copied; untouched pages cost nothing.
            block = np.empty((int(_GROWTH * self._n_places), self._block.shape[1]), self._x.dtype)
            block[:had] = self._block
            self._block = block


def mix(numbers: Tensor, arrived: Tensor, fraction: float) -> None:
    """``numbers += fraction * (arrived - numbers)``, both flat and of one dtype."""
    if fraction == 1.0:
        numbers.copy_(arrived)
    elif numbers.device.type == "cpu" and numbers.dtype in (torch.float32, torch.float64):
        # This is the kernel of `WholeShares`, whatever else a level asks for.
        from .row_kernels import mix as mix_row

        row: Any = numbers.numpy()
        mix_row(row, arrived.numpy(), row.dtype.type(fraction))
    else:
        numbers.lerp_(arrived, fraction)


class _Room(NamedTuple):
    """Buffer of one share."""

    shard: int
    wire: Wire
    parts: Parts  # numbers of each span, or bytes if they are converted; one register after another
    converted: tuple[bool, ...]  # which parts are sent in another form
    bare: bool  # true if numbers are written without an anchor
    free: "list[_Room]"  # list that it belongs to when it is not in use


def _read(room: _Room, at: int, anchor: Tensor, *, bare: bool) -> Tensor:
    part = room.parts[at]
    if not room.converted[at]:
        return part
    base = None if bare else anchor
    return formats.read(part, room.wire, anchor.dtype, len(anchor), anchor=base)


class Shares:
    """Slots, and the workers' rows that they are written from and mixed into.

    Args:
        schema: Layout of one worker's vector, and how it is cut.
        rows: Each worker's vector by register, padded as a live one is.
        anchor: What lossy formats refer to.
        seed: The run's seed: with the ids, it selects the random numbers of rounding.
        locals: Values that only a copy carries, axes ``(worker, *shape)``.
    """

    def __init__(
        self,
        schema: Schema,
        rows: Rows,
        anchor: Parts,
        ids: Sequence[PeerId] = (),
        seed: int = 0,
        locals: Parts = (),
        threads: Threads = ONE_CORE,
    ) -> None:
        self._rows = rows
        self._anchor = tuple(part.clone() for part in anchor)
        self._ids = ids
        self._seed = seed
        self._locals = locals
        device = anchor[0].device
        self._spans = [spans_of(schema, shard, device) for shard in range(schema.shards)]
        self._pieces = [schema.pieces(shard) for shard in range(schema.shards)]
        self._is_cut = schema.shards > 1
        self._is_scattered = self._is_cut and schema.scattered
        self._rooms: dict[int, _Room] = {}
        self._copies: dict[int, Parts] = {}
        self._free: defaultdict[object, list[_Room]] = defaultdict(list)
        self._sent: dict[int, Parts] = {}
        self._segments: dict[int, Parts] = {}
        """Vectors that all workers of a machine share."""
        self._whole: WholeShares | None = None
        # One part, in a format that numpy knows; others, or on another device, go row by row.
        is_known = len(anchor) == 1 and anchor[0].dtype in (torch.float32, torch.float64)
        if is_known and anchor[0].device.type == "cpu" and not (self._is_cut or locals):
            x = rows[X]
            assert isinstance(x, EachRow)
            self._whole = WholeShares(x.parts[0], threads)
        self.refreshed: Callable[[int, program.Operation], None] | None = None
        """Called once a worker's ``x`` has been combined, copied from a share, or reset."""
        self.begin_again: Callable[[program.Keep | program.Start], None] | None = None
        """Executes checkpoints and restarts of workers, if they can restart."""

    def carry_out_level(self, level: program.Level) -> list[int]:
        """Execute a level's operations after its steps; see `carry_out`."""
        whole = self._whole
        is_whole = not (level.rare or self._rooms or level.rows[:, 2].any())
        if whole is None or not is_whole or self.refreshed is not None:
            return self.carry_out(level.operations)
        if len(level.rows):
            whole.carry_out(level.rows, level.fractions)
        return []

    def carry_out(self, operations: Iterable[program.Operation]) -> list[int]:
        """Execute operations in order; return workers whose values do not fit into the format."""
        unfit = []
        for operation in operations:
            match operation:
                case program.Mix():
                    self._mix(operation)
                case program.Snapshot():
                    if not self._snap(operation):
                        unfit.append(operation.worker)
                case program.Release():
                    self._let_go(operation.slot)
                case program.Forge():
                    self._forge(operation)
                case program.Combine():
                    self._combine(operation)
                case program.Exchange():
                    self._exchange(operation)
                case program.Keep() | program.Start():
                    assert self.begin_again is not None
                    self.begin_again(operation)
                    if isinstance(operation, program.Start):
                        # A new process does not know what the previous one has sent.
                        self._sent.pop(operation.worker, None)
            if self.refreshed is not None:
                match operation:
                    case program.Combine(register=register) if register == X:
                        self.refreshed(operation.worker, operation)
                    case program.Mix(fraction=1.0) | program.Start():
                        self.refreshed(operation.worker, operation)
        return unfit

    @torch.no_grad()
    def distance(self, worker: int, slot: int) -> float:
        """Return the distance of a slot's first register from its shard of a worker's ``x``."""
        room = self._room(slot)
        numbers = self._part(self._rows[X][worker], room.shard)
        anchors = self._part(self._anchor, room.shard)
        squares = [
            squared_distance(_read(room, at, anchor, bare=room.bare), row)
            for at, (row, anchor) in enumerate(zip(numbers, anchors, strict=True))
        ]
        return math.sqrt(math.fsum(squares))

    def _snap(self, operation: program.Snapshot) -> bool:
        worker, cut = operation.worker, operation.cut
        if cut == program.WHOLE and self._whole is not None:
            self._whole.snapshot(operation.slot, worker)
            return True
        room = self._take_room(operation.slot, cut)
        if cut.form.copy:
            self._copies[operation.slot] = tuple(part[worker].clone() for part in self._locals)
        if isinstance(cut.register, str):
            numbers = self._part(self._rows[cut.register][worker], cut.shard)
        else:
            each = [self._part(self._rows[name][worker], cut.shard) for name in cut.register]
            numbers = tuple(part for parts in each for part in parts)
        return self._write(operation, room, numbers)

    def _forge(self, operation: program.Forge) -> None:
        """Write a forgery; values that do not fit into the format become infinite."""
        cut, forgery = operation.cut, operation.forgery
        room = self._take_room(operation.slot, cut)

        def told(worker: int) -> Vector:
            rows = self._part(self._rows[X][worker], cut.shard)
            return torch.cat([part.double().flatten() for part in rows]).cpu().numpy()

        honest = [told(worker) for worker in forgery.honest]
        own, target = told(operation.worker), told(forgery.target)
        lie = torch.from_numpy(forgery.of(own, target, np.reshape(honest, (-1, len(own)))))
        rows = self._part(self._rows[X][operation.worker], cut.shard)
        each = zip(lie.split([row.numel() for row in rows]), rows, strict=True)
        numbers = tuple(part.to(row) for part, row in each)
        id = operation.slot  # for rounding: each forgery has its own random numbers
        self._write(program.Snapshot(operation.worker, operation.slot, cut, id), room, numbers)

    def _write(self, operation: program.Snapshot, room: _Room, numbers: Parts) -> bool:
        wire, fits = room.wire, True
        worker, shard = operation.worker, room.shard
        rng = None
        if wire.is_random:
            rng = stream(self._seed, self._ids[worker], f"rounding:{operation.id}")
        anchors = self._part(self._anchor, shard)
        # Registers after the first are written without an anchor.
        anchors += tuple(no_anchor(part) for part in numbers[len(anchors) :])
        sents: Sequence[Tensor | None] = [None] * len(numbers)
        bare = room.bare
        if not (wire.is_dense or bare):
            sents = self._part(self._sent_by(worker), shard)
        each = zip(room.parts, numbers, anchors, sents, room.converted, strict=True)
        for part, row, anchor, sent, converted in each:
            if not converted:
                part.copy_(row)
            else:
                given = {"anchor": None if bare else anchor, "sent": sent}
                fits &= formats.write(part, row, wire, **given, rng=rng)
        if not (wire.is_dense or bare):
            self._put(self._sent_by(worker), shard, [each for each in sents if each is not None])
        return fits

    def _mix(self, operation: program.Mix) -> None:
        worker, slot, fraction = operation
        room, row = self._room(slot), self._rows[X][worker]
        numbers = self._part(row, room.shard)
        anchors = self._part(self._anchor, room.shard)
        # In a copy that carries registers, the first is x.
        each = zip(numbers, room.parts, anchors, room.converted, strict=False)
        for here, part, anchor, converted in each:
            if converted:
                formats.mix(here, part, room.wire, fraction, anchor=anchor)
            else:
                mix(here, part, fraction)
        self._put(row, room.shard, numbers)
        if fraction == 1.0 and slot in self._copies:
            for part, arrived in zip(self._locals, self._copies[slot], strict=True):
                part[worker].copy_(arrived)

    def _exchange(self, operation: program.Exchange) -> None:
        row = self._rows[operation.register][operation.worker]
        if operation.fresh:
            kept = tuple(part.to(widened(part), copy=True) for part in row)
            self._segments[operation.segment] = kept
        held = self._segments[operation.segment]
        # If a number is not finite nothing happens, as live: its worker stops.
        exchange(row, held, taken=operation.taken, given=operation.given)

    def _combine(self, operation: program.Combine) -> None:
        rows = self._rows[operation.register]
        if not operation.terms and isinstance(rows, PerWorker):
            rows.pop(operation.worker, None)
            return
        for index, target in enumerate(rows[operation.worker]):
            total = torch.zeros_like(target)
            for coefficient, term in operation.terms:
                if isinstance(term, str):
                    source = self._rows[term][operation.worker][index]
                else:
                    slot, register = term
                    room, anchor = self._room(slot), self._anchor[index]
                    at = register * len(self._anchor) + index
                    source = _read(room, at, anchor, bare=room.bare or register > 0)
                total.add_(source, alpha=coefficient)
            target.copy_(total)

    def _let_go(self, slot: int) -> None:
        room = self._rooms.pop(slot, None)
        if room is None:
            assert self._whole is not None
            self._whole.release(slot)
            return
        room.free.append(room)
        if self._copies:
            self._copies.pop(slot, None)

    def _part(self, row: Parts, shard: int) -> Parts:
        if not self._is_cut:
            return row
        return tuple(span.of(row) for span in self._spans[shard])

    def _put(self, row: Parts, shard: int, numbers: Sequence[Tensor]) -> None:
        """Write back a changed result of `_part` that is not a view."""
        if self._is_scattered:
            for span, part in zip(self._spans[shard], numbers, strict=True):
                span.put(row, part)

    def _sent_by(self, worker: int) -> Parts:
        """Return what a worker has last sent of each number: at first, the initial values."""
        sent = self._sent.get(worker)
        if sent is None:
            sent = self._sent[worker] = tuple(part.clone() for part in self._anchor)
        return sent

    def _room(self, slot: int) -> _Room:
        room = self._rooms.get(slot)
        if room is None:
            assert self._whole is not None
            parts = (self._whole.share(slot),)
            room = _Room(0, parse_wire(NATIVE), parts, (False,), bare=False, free=[])
        return room

    def _take_room(self, slot: int, cut: program.Cut) -> _Room:
        form = cut.form
        free = self._free[form.wire, cut.shard, form.registers, form.bare]
        room = self._rooms[slot] = free.pop() if free else self._make_room(cut, free)
        return room

    def _make_room(self, cut: program.Cut, free: list[_Room]) -> _Room:
        form, wire = cut.form, parse_wire(cut.form.wire)
        pieces = self._pieces[cut.shard] * form.registers
        parts = []
        for piece, span in zip(pieces, self._spans[cut.shard] * form.registers, strict=True):
            like = self._anchor[span.flat]
            size = wire.room_bytes(piece.dtype, piece.n_numbers)
            raw = torch.empty(size, dtype=torch.uint8, device=like.device)
            parts.append(raw if wire.converts(piece.dtype) else raw.view(like.dtype))
        converted = tuple(wire.converts(piece.dtype) for piece in pieces)
        return _Room(cut.shard, wire, tuple(parts), converted, form.bare, free)
