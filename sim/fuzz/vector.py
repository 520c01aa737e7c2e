"""A vector of four numbers and one local buffer, so that values really travel and mix."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...gossip.effects import effects as fx
from ...gossip.effects.registers import OnDemand, is_pattern
from ...gossip.types import ShareId, SharePart, SnapshotId
from ...gossip.wire.formats import Form, Wire, parse_wire
from ...gossip.wire.schema import ALIGNMENT_BYTES, Schema, TensorSpec
from .violation import Violation

__all__ = [
    *("SCHEMA", "SIZE", "Payload", "Taken", "Values", "Vector", "decoded", "encoded", "schema_of"),
]

Values = NDArray[np.float64]

Payload = bytearray | memoryview

SIZE = 4


def schema_of(size: int, shards: int = 1, *, scattered: bool = False) -> Schema:
    """Make a schema of *size* numbers that are mixed, and one number that only copies carry."""
    shared = TensorSpec("x", (size,), "float64")
    return Schema((shared, TensorSpec("local", (1,), "float64", shared=False)), shards, scattered)


SCHEMA = schema_of(SIZE)


_Places = slice | NDArray[Any]


def _places(schema: Schema, shard: int, size: int) -> _Places:
    """Return which of *size* numbers belong to a shard, eight in a cache line."""
    if not schema.scattered:
        start, stop = schema.shard_bounds(shard)
        return slice(start // 8, min(stop // 8, size))
    places: NDArray[Any] = (8 * schema.lines(shard)[:, None] + np.arange(8)).reshape(-1)
    return places[places < size]


class Taken(NamedTuple):
    """A snapshot of a peer's own vector."""

    payload: Payload
    form: Form


class Vector:
    """The values of one incarnation: its registers, and its outgoing and incoming shares.

    Args:
        values: The initial model, float64, shape ``(size,)``.
        registers: Further registers of the rule; all zeros at first.

    Attributes:
        snapshots: Snapshots not released yet.
        staged: Shares that have come.
        parts: Which numbers belong to each shard.
    """

    def __init__(
        self, values: Values, registers: Sequence[str] = (), schema: Schema = SCHEMA
    ) -> None:
        self.schema = schema
        self.registers = OnDemand(registers, lambda: np.zeros(len(values)))
        for name in registers:
            if not is_pattern(name):
                self.registers[name] = np.zeros(len(values))
        self.registers[fx.X] = values.copy()
        self.local = values[:1].copy()
        self.parts = [_places(schema, shard, len(values)) for shard in range(schema.shards)]
        self.snapshots: dict[SnapshotId, Taken] = {}
        self.staged: dict[ShareId, Payload] = {}
        self._forms: dict[ShareId, Form] = {}
        self._sent = 0

    def apply(self, effect: fx.Effect, message: bytes = b"") -> None:
        """Apply an effect to the values, with the bytes that came with its message."""
        match effect:
            case fx.Snapshot(id, register, form, shard):
                _require(id not in self.snapshots, "a snapshot's number was used twice")
                payload = bytearray(self._bytes_of(register, form, shard))
                self.snapshots[id] = Taken(payload, form)
            case fx.Release(snapshot, abandoned):
                released = self.snapshots.pop(snapshot).payload
                # NaN, as reused memory would be. An abandoned one may still be read.
                if not abandoned:
                    released[:] = b"\xff" * len(released)
            case fx.Stage():
                self._stage(effect, message)
            case fx.Mix(share, fraction, form):
                self._mix(self.staged[share], fraction, form, share.shard)
                self._drop(share)
            case fx.Combine(register, ()) if self.registers.is_on_demand(register):
                self.registers.pop(register, None)
            case fx.Combine(register, terms):
                values = (factor * self._values_of(term) for factor, term in terms)
                self.registers[register] = sum(values, np.zeros(len(self.x)))
            case fx.Drop(share):
                self._drop(share)

    @property
    def x(self) -> Values:
        """The model."""
        return self.registers[fx.X]

    def exchange(self, effect: fx.Exchange, shared: Values) -> None:
        """Exchange a register with a segment, both in place."""
        values = self.registers[effect.register]
        apart = values - shared
        moved = shared.copy() if effect.taken == 1.0 else values - effect.taken * apart
        self.registers[effect.register] = moved
        shared += effect.given * apart

    def frame_of(self, send: fx.Send) -> bytes:
        """Cut the frame of a message out of its snapshot."""
        size = send.envelope.frame_bytes
        if send.snapshot is None or size == 0:
            return b""
        payload = self.snapshots[send.snapshot].payload
        frame = payload[send.start_bytes : send.start_bytes + size]
        _require(len(frame) == size, "a frame beyond the end of its snapshot")
        return bytes(frame)

    def attach(self, attach: fx.Attach, memory: Payload) -> None:
        """Stage a share in place, as the memory of its sender."""
        _require(len(memory) == attach.size_bytes, "memory that is not as long as its share")
        self.staged[attach.share] = memoryview(memory).toreadonly()
        self._forms[attach.share] = attach.form

    def is_finite(self, inspect: fx.Inspect) -> bool:
        """True if all registers of a staged share are finite."""
        parts = range(self._forms[inspect.share].registers)
        each = [self.staged_values(inspect.share, part) for part in parts]
        return bool(np.isfinite(each).all())

    def measured(self, effect: fx.Measure) -> dict[ShareId, float]:
        """Return how far shares that are still staged are from their shard of the model."""
        staged = [share for share in effect.shares if share in self.staged]
        x = {share: self.x[self.parts[share.shard]] for share in staged}
        return {s: float(np.linalg.norm(self.staged_values(s) - x[s])) for s in staged}

    def staged_values(self, share: ShareId, register: int = 0) -> Values:
        """Return the numbers of a staged share."""
        return self._numbers(self.staged[share], self._forms[share], share.shard, register)

    def _stage(self, effect: fx.Stage, message: bytes) -> None:
        size, start = effect.size_bytes, effect.offset_bytes
        self._forms[effect.share] = effect.form
        room = self.staged.setdefault(effect.share, bytearray(size))
        end = start + len(message)
        _require(isinstance(room, bytearray), "a frame of a share that is read from memory")
        _require(0 <= start <= end <= len(room) == size, "a frame outside its share")
        room[start:end] = message

    def _drop(self, share: ShareId) -> None:
        self.staged.pop(share, None)
        self._forms.pop(share, None)

    def _mix(self, payload: Payload, fraction: float, form: Form, shard: int) -> None:
        values, part, x = self._numbers(payload, form, shard), self.parts[shard], self.x.copy()
        x[part] = values if fraction == 1.0 else x[part] + fraction * (values - x[part])
        self.registers[fx.X] = x
        if fraction == 1.0 and form.copy and shard == 0:
            low, high = self.schema.shard_bounds(0)
            start = form.registers * (high - low)
            self.local = np.frombuffer(payload, np.float64, 1, start).copy()

    def _values_of(self, term: str | ShareId | SharePart | SnapshotId) -> Values:
        if isinstance(term, str):
            return self.registers[term]
        if isinstance(term, int):
            taken = self.snapshots[term]
            return self._numbers(taken.payload, taken.form, 0)
        share, register = SharePart.of(term)
        return self._numbers(self.staged[share], self._forms[share], 0, register)

    def _numbers(self, payload: Payload, form: Form, shard: int, register: int = 0) -> Values:
        # The size of a share of one register, copied or not: further registers begin there.
        start = register * Form(form.wire).size_bytes(self.schema, shard)
        mine = self.x[self.parts[shard]]
        others = np.zeros(len(mine)) if form.bare else mine
        return decoded(parse_wire(form.wire), bytes(payload[start:]), others)

    def _bytes_of(self, register: str | tuple[str, ...], form: Form, shard: int) -> bytes:
        start, stop = self.schema.shard_bounds(shard)
        shared = b""
        for name in (register,) if isinstance(register, str) else register:
            room = np.zeros((stop - start) // 8)
            values = self.registers[name][self.parts[shard]]
            room[: len(values)] = values
            shared += encoded(parse_wire(form.wire), room, None if form.bare else self._sent)
        self._sent += 1
        if form.copy and shard == 0:
            shared += self.local.tobytes()
        # The anchor, if included, is all zeros.
        return shared.ljust(form.size_bytes(self.schema, shard), b"\0")


def encoded(wire: Wire, values: Values, turn: int | None) -> bytes:
    """Encode float64 numbers, as many as a shard has room for, as differences from an anchor of
    zeros. Of ``topk`` each number gets its *turn*; None sends the largest."""
    if wire.is_native:
        return values.tobytes()
    if wire.name == "float16":
        return _padded(values.astype(np.float16).tobytes())
    if wire.name == "bfloat16":
        return _padded((values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes())
    if wire.name == "int8":
        scale = np.float32(np.abs(values).max() / 127)
        codes = np.rint(np.nan_to_num(values / (float(scale) or 1.0))).astype(np.int8)
        return _padded(codes.tobytes()) + _padded(scale.tobytes())
    kept = wire.kept(len(values))
    if turn is None:
        places = np.sort(np.argsort(-np.abs(values), kind="stable")[:kept])
    else:
        places = (turn * kept + np.arange(kept)) % len(values)
    numbers = values[places].astype(np.float32)
    return _padded(places.astype(np.int32).tobytes()) + _padded(numbers.tobytes())


def decoded(wire: Wire, payload: bytes, mine: Values) -> Values:
    """Decode what `encoded` wrote, and perhaps more; missing numbers are the receiver's own."""
    n = len(mine)
    if wire.is_native:
        return np.frombuffer(payload, np.float64, n).copy()
    if wire.name == "float16":
        return np.frombuffer(payload, np.float16, n).astype(np.float64)
    if wire.name == "bfloat16":
        words = np.frombuffer(payload, "<u2", n).astype(np.uint32) << 16
        return words.view(np.float32).astype(np.float64)
    if wire.name == "int8":
        # A share this short has its codes in one cache line.
        scale = np.frombuffer(payload, np.float32, 1, ALIGNMENT_BYTES)[0]
        return np.frombuffer(payload, np.int8, n).astype(np.float64) * float(scale)
    values = mine.copy()
    room = mine.shape[0] + (-n) % (ALIGNMENT_BYTES // 8)
    kept = wire.kept(room)
    places = np.frombuffer(payload, np.int32, kept)
    numbers = np.frombuffer(payload, np.float32, kept, len(_padded(bytes(4 * kept))))
    inside = places < n
    values[places[inside]] = numbers[inside]
    return values


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT_BYTES)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation("order", what)
