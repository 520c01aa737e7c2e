"""A model as one flat vector, on which the protocol's decisions about values are carried out."""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ...gossip.effects.effects import X
from ...gossip.effects.registers import OnDemand, is_pattern
from ...gossip.errors import LocalProtocolError, TrainingError
from ...gossip.wire.formats import Form
from ...gossip.wire.schema import ALIGNMENT_BYTES, HASH_BYTES, Schema
from .blocks import copy_finite, exchange, is_finite_tensor
from .buffers import Frames, Memory, Payload
from .cuda import CudaQueue, Mark, depart, queue_of, wait
from .layout import Constants, Layout, Part, Plan, plan, resized
from .state import ExtraState
from .wires import formats

__all__ = ["Flats", "PartsOf", "Taken", "Term", "Vector", "is_finite_tensor", "not_finite"]


Flats = tuple[Tensor, ...]
"""One tensor of shape ``(n_padded,)`` per dtype."""

Term = str | tuple[Payload, Form, int]
"""A register; or a payload, staged or this peer's own, its form, and the index of its register."""

_WHOLE = Form()

# Unknown peers may offer shares of any fraction, so the cache of plans is bounded.
_PLANS_MAX = 256


@dataclass(slots=True, eq=False)
class Taken:
    """A snapshot in host memory, or being copied there by a thread or a device."""

    host: Tensor
    """Bytes as they travel: uint8, shape ``(size_bytes,)``."""
    form: Form
    shard: int
    marks: Sequence[Mark] = ()
    """Passed once a device's copy is complete."""
    looks: Sequence[Callable[[], bool]] = ()
    """Then check whether numbers from a device are finite; all others are known to be."""
    is_finite: bool | None = False
    """True once all of it is known to be; None while a device copies it."""
    _written_bytes: float = 0.0
    _written: threading.Condition = field(default_factory=threading.Condition)

    def reach(self, size_bytes: float = math.inf, after_bytes: int = 0) -> None:
        """Note that the first *after_bytes* and *size_bytes* more are there and finite; infinity if
        no more follow."""
        with self._written:
            self._written_bytes = after_bytes + size_bytes
            self._written.notify_all()

    def wait(self, stop_bytes: float = math.inf) -> bool:
        """Wait for the first *stop_bytes* bytes, or for all; return True if they are finite."""
        with self._written:
            self._written.wait_for(lambda: self._written_bytes >= stop_bytes)
            if self._written_bytes < math.inf:
                return True
        if self.is_finite is None:
            wait(self.marks)
            self.is_finite = all(look() for look in self.looks)
            self.looks = ()
        return self.is_finite


class PartsOf(Protocol):
    """Parts of ``x`` in several processes, which copy and mix their own."""

    def take(self, host: Tensor, segment: str, layout: Plan) -> bool | None:
        """Do the work of `Vector.take`; return True if all is finite, None if the parts cannot."""

    def mix(self, payload: Tensor, segment: str, fraction: float, layout: Plan) -> bool:
        """Do the work of `Vector.mix`; return False if the parts cannot."""


class Vector:
    """The shared parameters and buffers of a module, stored in flat tensors.

    The module's tensors become views into one flat tensor per dtype, and keep their identity:
    optimizers made before or after keep working, and their state is untouched.

    Args:
        registers: Vectors that the rule keeps in addition to ``x``. They start as zeros; registers
            that match a pattern are created at first use.
        memory_models_max: Memory that shares may take in addition to the vector, in vectors.
        queues: Returns the queues of the device; None for host memory.
        empty: Allocates the flat tensors and the anchor in memory that processes share.

    Raises:
        ConfigError: Its extra state cannot be sent, or see `Layout`.
        TrainingError: It is on an unknown device, or see `Layout`.
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
        empty: Callable[[int, torch.dtype], Tensor] | None = None,
    ) -> None:
        self.refresh: Callable[[], object] = lambda: None
        """Called under no lock before ``x`` is used: makes a copy of a model in several processes
        current."""
        self.parts: PartsOf | None = None
        """Those processes, which need no ``x`` for most snapshots and mixes."""
        self._empty = empty
        self.version = 0
        """Number of changes of ``x`` by shares, copies and centers."""
        extra = ExtraState(module) if carries_extra_state else None
        self.extra_state = extra if extra else None
        """Extra state that copies carry; None if the module has none or it stays local."""
        self.layout = Layout(
            module,
            shards,
            scattered=scattered,
            own=local,
            extra_state=extra.room if extra else None,
        )
        self.constants = Constants(self.layout)
        """Tensors of the module that do not travel."""
        self.schema: Schema = self.layout.schema
        self._queue = queues(self.layout.device)
        self.flats: Flats = self.layout.lay_out(empty)
        """The vector itself."""
        self._registers = OnDemand(registers, partial(_zeros, self.flats))
        self._registers[X] = self.flats
        for name in registers:
            if not is_pattern(name):
                self._registers[name] = _zeros(self.flats)
        self.anchor_flats: Flats | None = None
        """The anchor that deltas refer to, laid out like `flats`; None if not kept."""
        if keeps_anchor:
            self.keep_anchor()
        self._sent = tuple(flat.clone() for flat in self.flats) if sends_topk else None
        self.size_bytes = sum(flat.nbytes for flat in self.flats)
        """Size of the vector."""
        self.memory = Memory(
            self.size_bytes,
            memory_models_max,
            pinned=self.layout.device.type == "cuda",
            shared=empty is not None,
        )
        """Host memory for shares in flight."""
        kept_max = max(_PLANS_MAX, 2 * self.schema.shards)
        self.plan = lru_cache(kept_max)(partial(plan, self.schema, self.layout.device))
        """Cached `layout.plan` of a form and a shard."""

    @property
    def n_params(self) -> int:
        """Number of shared values, without padding."""
        return sum(placed.tensor.numel() for placed in self.layout.placed)

    @property
    def is_here(self) -> bool:
        """True if the whole vector is in host memory, so that the mixing thread works itself."""
        return self._queue is None

    def compare_frozen(self) -> None:
        """Add hashes of the frozen parameters' current values to the schema.

        Raises:
            TrainingError: A frozen parameter has no values.
        """
        self.schema = replace(self.schema, frozen=self.layout.frozen())

    def anchor(self) -> bytes:
        """Return a hash of ``x``, 16 bytes; that of its starting point identifies a swarm."""
        return _hash(self.flats)

    def keep_anchor(self) -> None:
        """Make the current ``x`` the anchor."""
        if self._empty is None:
            self.anchor_flats = tuple(flat.clone() for flat in self.flats)
            return
        if self.anchor_flats is None:
            self.anchor_flats = tuple(self._empty(flat.numel(), flat.dtype) for flat in self.flats)
        for kept, flat in zip(self.anchor_flats, self.flats, strict=True):
            kept.copy_(flat)

    def forget_sent(self) -> None:
        """Record all current numbers as sent, if that is recorded."""
        # Moves from before a copy or a checkpoint was loaded are of no use to other peers.
        for sent, flat in zip(self._sent or (), self.flats, strict=self._sent is not None):
            sent.copy_(flat)

    def kept_anchor(self) -> bytes:
        """Return what `anchor` returned when the anchor was stored."""
        return _hash(self._anchor())

    def anchor_matches(self, payload: Payload, form: Form, shard: int, expected: bytes) -> bool:
        """True if the anchor in a payload has the hash *expected*; always with several shards."""
        # A shard of the anchor cannot be checked: `kept_anchor` is, once all have been loaded.
        if self.schema.shards > 1:
            return True
        parts = self.plan(form, shard).anchor
        return _hash(payload[part.slot] for part in parts) == expected

    def require_finite(self) -> None:
        """Read all numbers, and raise `TrainingError` unless they are finite."""
        if not all(map(is_finite_tensor, self.flats)):
            raise not_finite(_WHOLE)

    def snapshot(
        self,
        register: str | tuple[str, ...] = X,
        form: Form = _WHOLE,
        shard: int = 0,
        rng: np.random.Generator | None = None,
    ) -> Tensor:
        """Copy a shard as `take` does, and wait for it; return the payload, uint8."""
        host = self.memory.lend(self.plan(form, shard).size_bytes)
        taken = Taken(host, form, shard)
        self.take(taken, register, rng)
        if not taken.wait():
            raise not_finite(form)
        return host

    def take(
        self,
        taken: Taken,
        register: str | tuple[str, ...] = X,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Copy a shard of a register to a host buffer, without waiting for a device.

        Args:
            taken: Where to; another thread may wait for its first bytes.
            register: One register, or as many as the form has.
            rng: Random numbers for the rounding of ``int8``.

        Raises:
            TrainingError: A value is not finite, where that shows at once; or the model's tensors
                are no longer views of the vector.
            LocalProtocolError: The form needs an anchor or sent values that are not kept.
        """
        self.layout.require_in_place()
        host, form = taken.host, taken.form
        layout = self.plan(form, taken.shard)
        names = (register,) if isinstance(register, str) else register
        if len(names) != form.registers:
            raise LocalProtocolError(f"{len(names)} registers in a share of {form.registers}")
        leaving = [
            (part, self._registers[name], name)
            for name, parts in zip(names, layout.registers, strict=True)
            for part in parts
        ]
        leaving += [(part, self._anchor(), "") for part in layout.anchor]
        is_finite, marks, looks = True, list[Mark](), list[Callable[[], bool]]()
        with self._in_order():
            if form.copy:
                self._take_local(host[layout.local])
            for part, flats, name in leaving:
                room, numbers = host[part.slot], part.span.of(flats)
                write = partial(self._write, name, rng, part) if part.converts else None
                if self._queue is not None:
                    mark, look = depart(self._queue, room, numbers, write)
                    marks.append(mark)
                    looks.append(look)
                    continue
                if write is not None:
                    is_finite = write(room, numbers)
                else:
                    is_finite = copy_finite(
                        room.view(part.dtype),
                        numbers,
                        partial(taken.reach, after_bytes=part.slot.start),
                    )
                if not is_finite:
                    break
            marks += self._note()
        if not is_finite:
            wait(marks)  # the caller reuses the buffer after an error
            raise not_finite(form)
        taken.marks, taken.looks, taken.is_finite = marks, looks, None if marks else True
        taken.reach()

    def _take_local(self, room: Tensor) -> None:
        if self.extra_state is not None:
            self.extra_state.pack()
        # Gaps between local buffers must not leak old memory contents.
        room.zero_()
        for tensor, its_room in self._local_rooms(room):
            its_room.copy_(tensor, non_blocking=True)

    def is_finite(self, payload: Payload, form: Form = _WHOLE, shard: int = 0) -> bool:
        """True if all numbers in a received payload are finite, so that it may be mixed."""
        for part in self.plan(form, shard).numbers:
            raw = payload[part.slot]
            if part.converts:
                if not formats.is_finite(raw, part.wire, part.span.high - part.span.low):
                    return False
            elif not is_finite_tensor(raw.view(part.dtype)):
                return False
        return True

    def look(self, raw: Tensor, form: Form, shard: int, start_bytes: int) -> bool | None:
        """True if all numbers in a payload's bytes from *start_bytes* on are finite; None for bytes
        that are converted, or not whole cache lines."""
        layout, stop_bytes = self.plan(form, shard), start_bytes + raw.numel()
        if layout.converts or start_bytes % ALIGNMENT_BYTES or stop_bytes % ALIGNMENT_BYTES:
            return None
        for part in layout.numbers:
            low, high = max(part.slot.start - start_bytes, 0), part.slot.stop - start_bytes
            if low < high and not is_finite_tensor(raw[low:high].view(part.dtype)):
                return False
        return True

    def follow(self) -> None:
        """Treat this thread's current stream as the training stream from now on."""
        if self._queue is not None:
            self._queue.follow()

    def mix(
        self, payload: Payload, fraction: float, form: Form = _WHOLE, shard: int = 0
    ) -> list[Mark]:
        """Move toward a share's first register in place: ``x += fraction * (share - x)``.

        A fraction of 1 makes ``x`` equal to the share, bit for bit, and also loads the other
        contents of a copy. The marks are passed once the payload may be reused.
        """
        with self._in_order():
            for part in self.plan(form, shard).registers[0]:
                numbers = part.span.of(self.flats)
                if part.converts:
                    raw = payload[part.slot].to(numbers.device, non_blocking=True)
                    anchor = self._anchor_of(part)
                    formats.mix(numbers, raw, part.wire, fraction, anchor=anchor)
                else:
                    slot, start = part.slot, 0
                    raws = payload.pieces(slot) if isinstance(payload, Frames) else [payload[slot]]
                    for raw in raws:
                        there = raw.to(numbers.device, non_blocking=True).view(part.dtype)
                        here = numbers[start : start + there.numel()]
                        if fraction == 1.0:
                            here.copy_(there)
                        else:
                            here.lerp_(there, fraction)
                        start += there.numel()
                part.span.put(self.flats, numbers)
            if fraction == 1.0 and form.copy:
                self._take_over(payload, form, shard)
            marks = self._note()
        self._note_change(shard)
        return marks

    def numbers_in(
        self, payload: Payload, form: Form, shard: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the first register of a share that has every number: part by part, its numbers and
        those of ``x``, on one device."""
        for part in self.plan(form, shard).registers[0]:
            with self._in_order():
                yield self._read(part, payload), part.span.of(self.flats)
                # The caller releases the share next, and its memory is reused.
                wait(self._note())

    def combine(self, register: str, terms: Sequence[tuple[float, Term]]) -> list[Mark]:
        """Set ``register = sum of coefficient * term``; without terms, release a register that was
        created on demand. The marks are passed once the payloads have been read."""
        if not terms and self._registers.is_on_demand(register):
            self._registers.pop(register, None)
            return []
        with self._in_order():
            totals = [torch.zeros_like(target) for target in self._registers[register]]
            for coefficient, term in terms:
                if isinstance(term, str):
                    for total, source in zip(totals, self._registers[term], strict=True):
                        total.add_(source, alpha=coefficient)
                    continue
                payload, form, index = term
                for part in self.plan(form).registers[index]:
                    part.span.of(totals).add_(self._read(part, payload), alpha=coefficient)
            for target, total in zip(self._registers[register], totals, strict=True):
                target.copy_(total)
            marks = self._note()
        if register == X:
            self._note_change()
        return marks

    def flats_of(self, register: str) -> Flats:
        """Return the numbers of a register, laid out like `flats`, for reading only."""
        return self._registers[register]

    def exchange(self, register: str, shared: Flats, *, taken: float, given: float) -> None:
        """Exchange a register with a center, see `blocks.exchange`; if a number is not finite,
        raise `TrainingError` and change nothing."""
        if not exchange(self._registers[register], shared, taken=taken, given=given):
            raise not_finite(_WHOLE)
        if register == X and taken:
            self._note_change()

    def _note_change(self, shard: int | None = None) -> None:
        self.version += 1
        self.layout.note_change(shard)

    def _write(
        self, name: str, rng: np.random.Generator | None, part: Part, room: Tensor, numbers: Tensor
    ) -> bool:
        """Fill a slot with converted numbers; False if a number is not finite."""
        anchor, flats = self._anchor_of(part), self._sent
        if part.wire.is_dense or part.bare:
            return formats.write(room, numbers, part.wire, anchor=anchor, rng=rng)
        if flats is None or name != X:
            raise LocalProtocolError(f"what was last sent of {name!r} is not noted")
        sent = part.span.of(flats)
        fits = formats.write(room, numbers, part.wire, anchor=anchor, sent=sent)
        part.span.put(flats, sent)
        return fits

    def _read(self, part: Part, payload: Payload) -> Tensor:
        raw = payload[part.slot].to(self.layout.device, non_blocking=True)
        if not part.converts:
            return raw.view(part.dtype)
        if not (part.wire.is_dense or part.bare):
            raise LocalProtocolError(f"a share in {part.wire} does not hold every number")
        anchor, n_numbers = self._anchor_of(part), part.span.high - part.span.low
        return formats.read(raw, part.wire, part.dtype, n_numbers, anchor=anchor)

    def _take_over(self, payload: Payload, form: Form, shard: int) -> None:
        """Load the other contents of a copy: local buffers, and the anchor if it is kept."""
        layout = self.plan(form, shard)
        for tensor, room in self._local_rooms(payload[layout.local]):
            tensor.copy_(room, non_blocking=True)
        for part in layout.anchor if self.anchor_flats is not None else ():
            _fill(part, self._anchor(), self._read(part, payload))
        if self._sent is not None:
            for part in layout.registers[0]:
                _fill(part, self._sent, part.span.of(self.flats))

    def _local_rooms(self, room: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the local buffers, each with its slot in the room of all."""
        for placed in self.layout.local if room.numel() else ():  # most shards have none
            start = placed.offset_bytes - self.layout.local[0].offset_bytes
            spec, tensor = placed.spec, placed.tensor.detach()
            if tensor.shape != spec.shape:
                raise TrainingError(resized(spec.name, tensor.shape, spec.shape))
            raw = room[start : start + spec.size_bytes]
            yield tensor, raw.view(tensor.dtype).view(tensor.shape)

    def _in_order(self) -> AbstractContextManager[object]:
        """Queue work on the device in order with training, from any thread."""
        return nullcontext() if self._queue is None else self._queue.training()

    def _note(self) -> list[Mark]:
        """Return a mark of the work in order with training so far; none in host memory."""
        return [] if self._queue is None else [self._queue.note()]

    def _anchor(self) -> Flats:
        if self.anchor_flats is None:
            raise LocalProtocolError("the anchor is not kept: make the vector with keeps_anchor")
        return self.anchor_flats

    def _anchor_of(self, part: Part) -> Tensor | None:
        """Return the anchor from which a part's numbers are written as differences, if any."""
        return part.span.of(self._anchor()) if part.wire.needs_anchor and not part.bare else None


def _fill(part: Part, flats: Flats, numbers: Tensor) -> None:
    here = part.span.of(flats)
    here.copy_(numbers)
    part.span.put(flats, here)


# Not a method: a method would keep the vector in a reference cycle until garbage collection.
def _zeros(like: Flats) -> Flats:
    return tuple(torch.zeros_like(flat) for flat in like)


def _hash(parts: Iterable[Tensor]) -> bytes:
    digest = blake2b(digest_size=HASH_BYTES)
    for part in parts:
        digest.update(part.cpu().view(torch.uint8).numpy().data)
    return digest.digest()


def not_finite(form: Form) -> TrainingError:
    """Return the error for a model whose values must not reach another peer."""
    beyond = "" if form.wire == Form().wire else f", or too far from the anchor for {form.wire}"
    return TrainingError(f"a parameter is not finite{beyond}, so nothing is shared: lower the lr")
