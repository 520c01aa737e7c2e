"""A model as one flat vector: it carries out what the protocol decides about values."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor, nn

from ...gossip.effects.effects import X
from ...gossip.effects.registers import OnDemand, is_pattern
from ...gossip.errors import LocalProtocolError
from ...gossip.wire.formats import Form
from ...gossip.wire.schema import ALIGNMENT_BYTES, HASH_BYTES, Schema
from .blocks import all_finite, exchange, is_finite_tensor
from .buffers import BufferPool, Memory, SnapshotCopy, messages_keep_pages, not_finite
from .cuda import (
    CudaQueue,
    DeviceArrival,
    DeviceSnapshot,
    Mark,
    Marks,
    device_copies,
    queue_of,
)
from .frames import Payload
from .layout import Constants, Layout, Part, Plan, plan
from .state import ExtraState
from .wires import formats

__all__ = ["Flats", "Term", "Vector", "is_finite_tensor"]


Flats = tuple[Tensor, ...]
"""One tensor of shape ``(n_padded,)`` per dtype and device."""

Term = str | tuple[Payload, Form] | tuple[Payload, Form, int]
"""A register; a payload, staged or of one's own, and what it consists of; the same, and which of
its registers counts in place of the first."""

_WHOLE = Form()


_PLANS_MAX = 256


class Vector:
    """The shared parameters and buffers of a module, laid into flat tensors.

    From construction on, they are views into the flat tensors: an optimizer that was made before
    or after goes on working, and its state is untouched. One flat tensor holds what has one dtype
    and lies on one device.

    Args:
        module: The model. Its tensors keep their identity, shape, dtype and device.
        registers: Vectors that the rule keeps beside ``x``; they start as zeros, and those that a
            pattern stands for, when they are first used.
        shards: Into how many pieces the vector is cut.
        scattered: Whether each piece has lines from all over it, see `Schema`.
        local: Names of tensors, or of modules of tensors, that shares do not have, only copies.
        carries_extra_state: Whether copies have the extra state of modules, too.
        keeps_anchor: Whether to keep what ``x`` is now as the anchor.
        sends_topk: Whether to note what was last sent of each number.
        memory_models_max: How much memory shares may take beside the vector, in vectors.
        queues: Opens the queues of a device; None for host memory.

    Raises:
        ConfigError: There are more shards than the vector has cache lines, or the module has
            nothing by a name in *local*, or extra state that cannot travel.
        TrainingError: The module has nothing to share, or a dtype that cannot travel, or lies on
            a device that is not known.
    """

    def __init__(
        self,
        module: nn.Module,
        registers: Sequence[str] = (),
        *,
        shards: int = 1,
        scattered: bool = False,
        local: Collection[str] = (),
        carries_extra_state: bool = False,
        keeps_anchor: bool = False,
        sends_topk: bool = False,
        memory_models_max: float = math.inf,
        queues: Callable[[torch.device], CudaQueue | None] = queue_of,
    ) -> None:
        extra = ExtraState(module) if carries_extra_state else None
        self.extra_state = extra if extra else None
        """Extra state that copies carry; None where the module has none, or it stays here."""
        self.layout = Layout(
            module,
            shards,
            scattered=scattered,
            own=local,
            extra_state=extra.room if extra else None,
        )
        """Where its tensors lie."""
        self.constants = Constants(self.layout)
        """Tensors of the module that do not travel."""
        self.schema: Schema = self.layout.schema
        placed = *self.layout.placed, *self.layout.local
        self._device_copies = device_copies(
            ((p.tensor.device, p.spec.room_bytes) for p in placed), queues
        )
        self._on_devices = [copies for copies in self._device_copies.values() if copies is not None]
        self.flats: Flats = self.layout.lay_out()
        """The vector itself."""
        self._registers = OnDemand(registers, partial(_zeros, self.flats))
        self._registers[X] = self.flats
        for name in registers:
            if not is_pattern(name):
                self._registers[name] = _zeros(self.flats)
        self.anchor_flats: Flats | None = None
        """What deltas refer to, laid out like `flats`; None where it is not kept."""
        if keeps_anchor:
            self.keep_anchor()
        self._sent = tuple(flat.clone() for flat in self.flats) if sends_topk else None
        self._plans: dict[tuple[Form, int], Plan] = {}
        pinned = any(flat.is_cuda for flat in self.flats)
        # Each payload is held, so that no other object can have its number.
        self._ahead: dict[int, tuple[Payload, dict[tuple[int, int], DeviceArrival]]] = {}
        self.memory = Memory(sum(flat.nbytes for flat in self.flats), memory_models_max)
        """Counts the host memory of shares on their way."""
        self.staging = BufferPool(pinned=pinned, memory=self.memory, kind="staged")
        """Host buffers for shares that arrive."""
        self.snapshots = BufferPool(pinned=pinned, memory=self.memory, kind="snapshots")
        """Host buffers for shares that leave."""

    @property
    def n_params(self) -> int:
        """Numbers that are shared, padding not counted."""
        return sum(placed.tensor.numel() for placed in self.layout.placed)

    @property
    def is_here(self) -> bool:
        """Whether all of it lies in host memory, so that whoever mixes does the work itself."""
        return not self._on_devices

    def compare_frozen(self) -> None:
        """Let the schema tell frozen parameters apart, by their values as they are now.

        Raises:
            TrainingError: One has no values.
        """
        self.schema = replace(self.schema, frozen=self.layout.frozen())

    def anchor(self) -> bytes:
        """Hash of the vector as it is now, 16 bytes: names a swarm by what it starts from."""
        return _hash(self.flats)

    def keep_anchor(self) -> None:
        """Take what ``x`` is now for the anchor."""
        self.anchor_flats = tuple(flat.clone() for flat in self.flats)

    @torch.no_grad()
    def forget_sent(self) -> None:
        """Take all numbers as they are now for sent, where that is noted.

        What they differed by before they became those of a copy, or of a checkpoint, is nothing to
        tell others.
        """
        for sent, flat in zip(self._sent or (), self.flats, strict=self._sent is not None):
            sent.copy_(flat)

    def kept_anchor(self) -> bytes:
        """Hash of the anchor that is kept: what `anchor` was when it was taken, 16 bytes.

        Raises:
            LocalProtocolError: None is kept.
        """
        return _hash(self._anchor())

    def anchor_matches(self, payload: Payload, form: Form, shard: int, expected: bytes) -> bool:
        """Whether the anchor that a payload brings is the one of this name.

        With several shards each brings a part of it, of which that cannot be told, and the answer
        is True: compare `kept_anchor` once all have been taken over.
        """
        if self.schema.shards > 1:
            return True
        parts = self.plan(form, shard).anchor
        return _hash(raw for part in parts for _, raw in part.pieces(payload)) == expected

    def require_finite(self) -> None:
        """Make sure that all numbers are finite, at the price of reading them.

        Raises:
            TrainingError: One is not.
        """
        if not all(map(all_finite, self.flats)):
            raise not_finite(_WHOLE)

    def plan(self, form: Form, shard: int = 0) -> Plan:
        """Where everything lies in a payload of one shard.

        Raises:
            TrainingError: Numbers of one dtype are to be converted that lie on several devices.
        """
        found = self._plans.get((form, shard))
        if found is None:
            # Strangers may offer shares of any fraction.
            if len(self._plans) >= max(_PLANS_MAX, 2 * self.schema.shards):
                self._plans.clear()
            found = self._plans[form, shard] = plan(self.schema, self.layout.segments, form, shard)
        return found

    def snapshot(
        self,
        register: str | tuple[str, ...] = X,
        form: Form = _WHOLE,
        shard: int = 0,
        rng: np.random.Generator | None = None,
    ) -> Tensor:
        """Copy a shard of a register out to host memory, and wait until it is there.

        Args:
            register: Which; as many as the form says.
            form: What the payload consists of.
            shard: Which.
            rng: Decides how ``int8`` rounds.

        Returns:
            Bytes as they travel: uint8, shape ``(form.size_bytes(schema, shard),)``.

        Raises:
            TrainingError: A value is not finite, and must never reach another peer; or the
                model's tensors no longer lie in the vector.
        """
        host = self.snapshots.lend(self.plan(form, shard).size_bytes)
        try:
            if not self.take(host, register, form, shard, rng).wait():
                raise not_finite(form)
        except BaseException:
            self.snapshots.take_back(host)
            raise
        return host

    @torch.no_grad()
    def take(
        self,
        host: Tensor,
        register: str | tuple[str, ...] = X,
        form: Form = _WHOLE,
        shard: int = 0,
        rng: np.random.Generator | None = None,
        written: Callable[[int], None] | None = None,
    ) -> DeviceSnapshot:
        """Copy a shard of a register out to a given host buffer; does not wait for a device.

        Args:
            host: Where to, uint8, as long as the payload.
            register: Which; as many as the form says.
            form: What the payload consists of.
            shard: Which.
            rng: Decides how ``int8`` rounds.
            written: Told now and then how many bytes are there, all of them finite.

        Returns:
            What to wait for where the register lies on a device.

        Raises:
            TrainingError: As `snapshot` does, where that shows at once.
            LocalProtocolError: What the form needs is not kept.
        """
        self.layout.require_in_place()
        layout = self.plan(form, shard)
        copy = SnapshotCopy(host, self._device_copies.__getitem__, written)
        names = (register,) if isinstance(register, str) else register
        if len(names) != form.registers:
            raise LocalProtocolError(f"{len(names)} registers in a share of {form.registers}")
        with self._in_order():
            for index, name in enumerate(names):
                flats, write = self._registers[name], partial(self._write, name, rng)
                copy.add(layout.of_register(index), flats, write)
            if layout.local_bytes[0] < layout.local_bytes[1]:
                if self.extra_state is not None:
                    self.extra_state.pack()
                copy.add_local(layout.local_bytes, self.layout.local)
            if layout.anchor:
                copy.add(layout.anchor, self._anchor(), None)
        return copy.taken(form)

    def is_finite(self, payload: Payload, form: Form = _WHOLE, shard: int = 0) -> bool:
        """Whether all numbers in a payload that came are finite, and may be mixed."""
        layout = self.plan(form, shard)
        return all(part.is_finite(payload) for part in (*layout.parts, *layout.anchor))

    def holds_frames(self, form: Form, shard: int = 0) -> bool:
        """Whether a payload is to be mixed from the messages in which it came, see `Frames`: its
        numbers lie in it as they are, all flat tensors in host memory, and messages in memory that
        is used again. Fresh pages cost more than the copy that is saved."""
        return self.is_here and messages_keep_pages() and self.plan(form, shard).is_native

    def look(self, raw: Tensor, form: Form, shard: int, start_bytes: int) -> bool | None:
        """Whether all numbers in some bytes of a payload are finite.

        Args:
            raw: The bytes, uint8.
            form: What the payload consists of.
            shard: Which.
            start_bytes: Where in the payload they begin.

        Returns:
            None where that cannot be told of a part: the numbers are in another format, or the
            bytes are not made of cache lines.
        """
        layout, stop_bytes = self.plan(form, shard), start_bytes + raw.numel()
        if not layout.is_native or start_bytes % ALIGNMENT_BYTES or stop_bytes % ALIGNMENT_BYTES:
            return None
        first = layout.parts[0]
        if first.start_bytes <= start_bytes and stop_bytes <= first.stop_bytes:
            # As almost always: models have one dtype.
            return is_finite_tensor(raw.view(first.dtype))
        return all(
            is_finite_tensor(raw[low - start_bytes : high - start_bytes].view(part.dtype))
            for part, low, high in layout.between(start_bytes, stop_bytes)
        )

    def bring(self, payload: Payload, form: Form, shard: int) -> Mark:
        """Let a staged share begin its way to the devices before it is mixed, read or combined.

        Args:
            payload: All of it, host memory, uint8; `forget` it before it is used again.
            form: What it consists of.
            shard: Which.

        Returns:
            When as much of the payload as was taken along is read.
        """
        layout, ahead = self.plan(form, shard), {}
        for part in (*layout.parts, *layout.anchor):
            copies = self._device_copies[self.flats[part.flat].device]
            arrival = None if copies is None else copies.bring(part.room(payload))
            if arrival is not None:
                ahead[part.start_bytes, part.stop_bytes] = arrival
        self._ahead[id(payload)] = payload, ahead
        return Marks([arrival.mark for arrival in ahead.values()])

    def forget(self, payload: Payload) -> None:
        """Let go of what was brought of a payload, if anything was."""
        _, ahead = self._ahead.pop(id(payload), (payload, {}))
        for arrival in ahead.values():
            copies = self._device_copies[arrival.raw.device]
            assert copies is not None
            copies.release(arrival)

    def follow(self) -> None:
        """Take the streams that are current on this thread for those that train, from now on."""
        for copies in self._on_devices:
            copies.queue.follow()

    @torch.no_grad()
    def mix(self, payload: Payload, fraction: float, form: Form = _WHOLE, shard: int = 0) -> Mark:
        """Move toward a share in place: ``x += fraction * (share - x)``, its first register.

        Args:
            payload: A staged share, in host memory; only read.
            fraction: In [0, 1]; 1 makes ``x`` equal to the share, bit for bit, and takes over
                what a copy brings besides.
            form: What it consists of.
            shard: Which.

        Returns:
            When the payload is read, so that its memory may be used again.
        """
        marks = []
        with self._in_order():
            for part in self.plan(form, shard).of_register(0):
                for piece, raw in part.pieces(payload):
                    with self._arrived(piece, raw, payload) as arrival:
                        self._mix(piece, arrival.raw, fraction)
                        marks.append(arrival.mark)
            if fraction == 1.0 and form.copy:
                marks += self._take_over(payload, form, shard)
        self.layout.note_change(shard)
        return Marks(marks)

    def numbers_in(
        self, payload: Payload, form: Form, shard: int
    ) -> Iterator[tuple[Tensor, Tensor, Part]]:
        """Read a staged share that has every number, part by part; its first register.

        Yields:
            Numbers of the share, those of ``x`` in their place and on the same device, and where
            that is: `Part.of` finds it in any other `Flats`.
        """
        for part in self.plan(form, shard).of_register(0):
            for piece, raw in part.pieces(payload):
                with torch.no_grad(), self._arrived(piece, raw, payload) as arrival:
                    yield self._read(piece, arrival.raw), piece.of(self.flats), piece
                    # Whoever reads a share gives it back, and its memory is used again.
                    arrival.mark.synchronize()

    @torch.no_grad()
    def combine(self, register: str, terms: Sequence[tuple[float, Term]]) -> Mark:
        """Set ``register = sum of coefficient * term``.

        Args:
            register: What to set; one that exists on demand is let go where there are no terms.
            terms: Coefficients, and registers or payloads of whole vectors.

        Returns:
            When the payloads are read.
        """
        marks: list[Mark] = []
        if not terms and self._registers.is_on_demand(register):
            self._registers.pop(register, None)
            return Marks(marks)
        with self._in_order():
            totals = [torch.zeros_like(target) for target in self._registers[register]]
            for coefficient, term in terms:
                if isinstance(term, str):
                    for total, source in zip(totals, self._registers[term], strict=True):
                        total.add_(source, alpha=coefficient)
                    continue
                payload, form = term[:2]
                index = term[2] if len(term) == 3 else 0
                for part in self.plan(form).of_register(index):
                    for piece, raw in part.pieces(payload):
                        with self._arrived(piece, raw, payload) as arrival:
                            values = self._read(piece, arrival.raw)
                            piece.of(totals).add_(values, alpha=coefficient)
                            marks.append(arrival.mark)
            for target, total in zip(self._registers[register], totals, strict=True):
                target.copy_(total)
        if register == X:
            self.layout.note_change()
        return Marks(marks)

    def flats_of(self, register: str) -> Flats:
        """The numbers of a register, laid out like `flats`; read them."""
        return self._registers[register]

    def exchange(self, register: str, shared: Flats, *, taken: float, given: float) -> None:
        """Exchange a register with a segment; see `effects.Exchange`.

        Args:
            register: Which.
            shared: The segment's numbers, laid out like `flats`, as `blocks.exchange` wants them.
            taken: How far the register goes toward the segment.
            given: How far the segment goes toward the register.

        Raises:
            TrainingError: A number is not finite; nothing was changed.
        """
        if not exchange(self._registers[register], shared, taken=taken, given=given):
            raise not_finite(_WHOLE)
        if register == X and taken:
            self.layout.note_change()

    def _write(
        self,
        register: str,
        rng: np.random.Generator | None,
        part: Part,
        room: Tensor,
        numbers: Tensor,
    ) -> bool:
        """Fill a room in another format; False where something is not finite."""
        assert part.wire is not None
        sent = None
        if not (part.wire.is_dense or part.bare):
            if self._sent is None or register != X:
                raise LocalProtocolError(f"what was last sent of {register!r} is not noted")
            sent = part.of(self._sent)
        anchor, bare = self._anchor_of(part), part.bare
        given = {"anchor": anchor, "sent": sent}
        fits = formats.write(room, numbers, part.wire, **given, rng=rng, bare=bare)
        if sent is not None:
            assert self._sent is not None
            part.put(self._sent, sent)
        return fits

    def _mix(self, part: Part, raw: Tensor, fraction: float) -> None:
        numbers = part.of(self.flats)
        if part.wire is not None:
            formats.mix(numbers, raw, part.wire, fraction, anchor=self._anchor_of(part))
        elif fraction == 1.0:
            numbers.copy_(raw.view(part.dtype))
        else:
            numbers.lerp_(raw.view(part.dtype), fraction)
        part.put(self.flats, numbers)

    def _read(self, part: Part, raw: Tensor) -> Tensor:
        if part.wire is None:
            return raw.view(part.dtype)
        anchor, n_numbers = self._anchor_of(part), part.of(self.flats).numel()
        return formats.read(raw, part.wire, part.dtype, n_numbers, anchor=anchor, bare=part.bare)

    def _take_over(self, payload: Payload, form: Form, shard: int) -> Iterator[Mark]:
        """What a copy brings beside the numbers: local buffers, and the anchor where it is kept."""
        layout = self.plan(form, shard)
        start, stop = layout.local_bytes
        for placed in self.layout.local if start < stop else ():
            offset = start + placed.offset_bytes - self.layout.local[0].offset_bytes
            placed.tensor.copy_(placed.room(payload, offset), non_blocking=True)
            copies = self._device_copies[placed.tensor.device]
            if copies is not None:
                yield copies.queue.note()
        for part in layout.anchor if self.anchor_flats is not None else ():
            for piece, raw in part.pieces(payload):
                with self._arrived(piece, raw, payload) as arrival:
                    _fill(piece, self._anchor(), arrival.raw.view(piece.dtype))
                    yield arrival.mark
        if self._sent is not None:
            for part in layout.of_register(0):
                _fill(part, self._sent, part.of(self.flats))

    def _in_order(self) -> AbstractContextManager[object]:
        """Work on devices in order with training, whichever thread this is."""
        if self.is_here:
            return nullcontext()
        queued = ExitStack()
        for copies in self._on_devices:
            queued.enter_context(copies.queue.training())
        return queued

    def _arrived(
        self, part: Part, raw: Tensor, payload: Payload
    ) -> AbstractContextManager[DeviceArrival]:
        """The bytes of a part of a payload on the device where it is to be mixed."""
        copies = self._device_copies[self.flats[part.flat].device]
        if copies is None:
            return nullcontext(DeviceArrival(raw))
        _, ahead = self._ahead.get(id(payload), (payload, {}))
        return copies.landed(raw, ahead.get((part.start_bytes, part.stop_bytes)))

    def _anchor(self) -> Flats:
        if self.anchor_flats is None:
            raise LocalProtocolError("the anchor is not kept: make the vector with keeps_anchor")
        return self.anchor_flats

    def _anchor_of(self, part: Part) -> Tensor | None:
        """What the numbers of a part are written as differences from, if from anything."""
        if part.wire is None or not part.wire.needs_anchor or part.bare:
            return None
        return part.of(self._anchor())


def _fill(part: Part, flats: Flats, numbers: Tensor) -> None:
    here = part.of(flats)
    here.copy_(numbers)
    part.put(flats, here)


# Not a method, which would keep the vector, and so itself, for as long as anything collects cycles.
def _zeros(like: Flats) -> Flats:
    return tuple(torch.zeros_like(flat) for flat in like)


def _hash(parts: Iterable[Tensor]) -> bytes:
    digest = blake2b(digest_size=HASH_BYTES)
    for part in parts:
        digest.update(part.cpu().view(torch.uint8).numpy().data)
    return digest.digest()
