"""Layout of a module's tensors in flat memory: which are sent, in what order and at which offset;
and whether the others have changed."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.nn.parameter import is_lazy
from torch.utils.dlpack import from_dlpack

from ...gossip.errors import TrainingError
from ...gossip.wire.formats import NATIVE, Form, Wire, parse_wire
from ...gossip.wire.schema import (
    ALIGNMENT_BYTES,
    ITEMSIZES,
    FrozenTensor,
    Piece,
    Schema,
    TensorSpec,
)
from ..model import (
    NamedTensor,
    frozen_tensors,
    memory_order,
    parts_of,
    plain_names,
    sort_out,
    tied_names,
)
from .blocks import blocks, scratch

__all__ = [
    "EXTRA_STATE",
    "Bits",
    "Constants",
    "Layout",
    "Part",
    "Placed",
    "Plan",
    "Span",
    "bits_of",
    "plan",
    "resized",
    "spans_of",
]


class Placed(NamedTuple):
    """A tensor of a module, and the position of its bytes in a share."""

    spec: TensorSpec
    tensor: Tensor
    offset_bytes: int
    start: int
    """Index of its first number in the flat tensor, if it is shared."""
    aliases: Mapping[str, Tensor] = MappingProxyType({})
    """Other tensors of the module in the same memory, by name; they must stay there."""
    strides: tuple[int, ...] | None = None
    """Strides that the tensor had at first; None for contiguous ones, if it had gaps or overlaps.
    """

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the module at this position."""
        return self.tensor, *self.aliases.values()

    @property
    def place(self) -> slice:
        """Its numbers in the flat tensor."""
        # Not by the tensor itself, which a script may have converted or resized.
        return slice(self.start, self.start + math.prod(self.spec.shape))

    def view(self, numbers: Tensor) -> Tensor:
        """Return a view of its place in the last axis of *numbers*, with the tensor's shape and
        strides."""
        found = numbers[..., self.place]
        plain = found.view((*found.shape[:-1], *self.spec.shape))
        if self.strides is None or plain.stride() == (*found.stride()[:-1], *self.strides):
            return plain
        strides = *found.stride()[:-1], *self.strides
        return found.as_strided(plain.shape, strides, found.storage_offset())


class Layout:
    """Which tensors of *module* are sent, and their positions.

    Parameters that require gradients and finite floating-point buffers are shared, dtype by dtype
    in the module's order, under their plain names. Other buffers, and what *own* names, are local:
    only a copy carries them, and *extra_state*. Frozen parameters, and buffers that the module does
    not save, are never sent. *shards* and *scattered* are those of `Schema`.

    Raises:
        ConfigError: There are more shards than cache lines, or a name in *own* matches nothing in
            the module.
        TrainingError: The module has nothing to share, a tensor that cannot be sent, lazy modules
            that have not seen a batch, parameters that overlap in memory, or tensors on several
            devices.
    """

    def __init__(
        self,
        module: nn.Module,
        shards: int = 1,
        *,
        scattered: bool = False,
        own: Collection[str] = (),
        extra_state: Tensor | None = None,
    ) -> None:
        self.module = module
        shared, local = sort_out(module, own)
        if not shared:
            what = "requires gradients and is not local" if own else "requires gradients"
            raise TrainingError(f"the model has no parameter that {what}")
        if extra_state is not None:
            local.append(NamedTensor(EXTRA_STATE, extra_state, {}))
        order = list(dict.fromkeys(named.tensor.dtype for named in shared))
        shared.sort(key=lambda named: order.index(named.tensor.dtype))
        placed = list(_place(shared, local, tied_names(module)))
        self.schema = Schema(tuple(item.spec for item in placed), shards, scattered)
        self.local: tuple[Placed, ...] = tuple(item for item in placed if not item.spec.shared)
        self.placed: tuple[Placed, ...] = tuple(item for item in placed if item.spec.shared)
        """All shared tensors, in order."""
        devices = sorted({str(item.tensor.device) for item in placed})
        if len(devices) > 1:
            raise TrainingError(
                f"the model lies on {' and '.join(devices)}: move all of it to one device, by "
                "model.to(...), before Peer(model)"
            )
        self.device: torch.device = placed[0].tensor.device
        """Device of all tensors that are sent or copied."""
        grouped = groupby(self.placed, key=lambda item: item.tensor.dtype)
        self.groups: tuple[tuple[Placed, ...], ...] = tuple(tuple(items) for _, items in grouped)
        """Shared tensors of each dtype, which one flat tensor holds: one of `Schema.runs`."""
        self._within = [tensor for each in self.placed for tensor in each.tensors]
        self._flats: tuple[Tensor, ...] = ()
        self._places: list[tuple[int, int]] = []

    @property
    def travelling(self) -> tuple[Tensor, ...]:
        """The module's tensors that are sent or copied, including all tied ones."""
        return *self._within, *(placed.tensor for placed in self.local)

    def lay_out(self, empty: Callable[[int, torch.dtype], Tensor] | None) -> tuple[Tensor, ...]:
        """Move the tensors of each dtype into one flat tensor, of which they become views with the
        same strides; *empty*, if given, allocates it in host memory, as zeros."""
        flats = []
        for run in self.schema.runs:
            dtype: torch.dtype = getattr(torch, run.dtype)
            if empty is not None:
                flats.append(empty(run.n_numbers, dtype))
            else:
                flats.append(torch.zeros(run.n_numbers, dtype=dtype, device=self.device))
        views = self.tensors(flats)
        for placed in self.placed:
            view = views[placed.spec.name].copy_(placed.tensor.detach())
            for tensor in placed.tensors:
                tensor.data = view
        self._flats, self._places = tuple(flats), self._now()
        return self._flats

    def note_change(self, shard: int | None = None) -> None:
        """Report to autograd that the numbers of one shard, or of all, have changed."""
        # Backward refuses a tensor whose version changed after the forward pass. Views made by
        # `.data =` do not notice a change of the flat tensor by themselves.
        for placed in self.placed:
            if shard is None or shard in self.schema.shards_of[placed.spec.name]:
                increment_version(placed.tensors)

    def part(self) -> None:
        """Give each tensor its own storage again, at the same address; tied ones stay tied."""
        found = self.tensors(self._flats)
        for placed in self.placed:
            view = found[placed.spec.name]
            # The new storage keeps the flat tensor's memory alive.
            alone = from_dlpack(view).as_strided(view.shape, view.stride())
            for tensor in placed.tensors:
                # A tensor that was moved or assigned has its own numbers.
                if tensor.data_ptr() == view.data_ptr():
                    tensor.data = alone

    def require_in_place(self) -> None:
        """Raise `TrainingError` unless the tensors are still views of the flat tensors."""
        if self._now() == self._places:
            return
        found = self.tensors(self._flats)
        for placed in self.placed:
            view = found[placed.spec.name]
            for name, tensor in {placed.spec.name: placed.tensor, **placed.aliases}.items():
                # Tensor.share_memory_() moves the whole storage, and so the flat tensor too.
                if tensor.shape != view.shape or tensor.data_ptr() != view.data_ptr():
                    raise TrainingError(_parted(name, tensor, view))
        self._places = self._now()

    def _now(self) -> list[tuple[int, int]]:
        # `resize_` may leave a tensor in its place, where it then reaches into others.
        return [(tensor.data_ptr(), tensor.numel()) for tensor in self._within]

    def frozen(self) -> tuple[FrozenTensor, ...]:
        """Return the frozen parameters with their current values; see `frozen_tensors`."""
        return frozen_tensors(self.module, frozenset(map(Tensor.data_ptr, self.travelling)))

    def tensors(self, flats: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the shared tensors, by name, as views into *flats*."""
        return {
            placed.spec.name: placed.view(flat)
            for group, flat in zip(self.groups, flats, strict=True)
            for placed in group
        }

    def state_dict(self, flats: Sequence[Tensor]) -> dict[str, Any]:
        """Return a copy of the module's state dict, with the numbers of *flats*."""
        found = self.tensors(flats)
        # One tensor may have several names.
        places = {_where(placed.tensor): found[placed.spec.name] for placed in self.placed}
        return {
            name: places.get(_where(value), value).detach().clone()
            if isinstance(value, Tensor)
            else value
            for name, value in self.module.state_dict().items()
        }


def _parted(name: str, tensor: Tensor, view: Tensor) -> str:
    """Word the error for a tensor that is no longer the view that was made for it."""
    if tensor.device != view.device or tensor.dtype != view.dtype:
        here, before = (f"{each.dtype} on {each.device}" for each in (tensor, view))
        return (
            f"{name} was moved or converted after the peer was made, from {before} to {here}: call "
            "model.to(...) before Peer(model)"
        )
    if tensor.shape != view.shape:
        return resized(name, tensor.shape, view.shape)
    return (
        f"{name} was given other memory after the peer was made, as by .data = ..., by "
        "vector_to_parameters, flatten_parameters() or a second Peer(model): write into it with "
        f"{name}.copy_(...) under torch.no_grad(), which keeps the memory that peers average"
    )


def resized(name: str, shape: Sequence[int], before: Sequence[int]) -> str:
    """Word the error for a tensor of another shape than when the peer was made."""
    return (
        f"{name} was resized after the peer was made, from {(*before,)} to {(*shape,)}: let it "
        "have its last shape before Peer(model), as by running a batch through the model"
    )


def _where(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _place(
    shared: Iterable[NamedTensor],
    local: Iterable[NamedTensor],
    tied: Mapping[str, tuple[str, ...]],
) -> Iterator[Placed]:
    offset, starts = 0, Counter[str]()
    for is_shared, items in ((True, shared), (False, local)):
        for name, tensor, aliases in items:
            dtype = str(tensor.dtype).removeprefix("torch.")
            size = ITEMSIZES.get(dtype)
            if size is None or ALIGNMENT_BYTES % size:
                raise TrainingError(f"{name} is {dtype}, which {_ADVICE[is_shared]}")
            order = memory_order(tensor) or () if is_shared else ()
            names = tied.get(name, ())
            spec = TensorSpec(name, tuple(tensor.shape), dtype, is_shared, order, names)
            strides = None if memory_order(tensor) is None else tensor.stride()
            yield Placed(spec, tensor, offset, starts[dtype], aliases, strides)
            offset += spec.room_bytes
            starts[dtype] += spec.room_bytes // size


EXTRA_STATE: Final = "_extra_state"
"""Name in a schema of the extra state of all modules, packed."""

_ADVICE: Final = {
    True: "cannot be averaged: train real numbers, such as torch.view_as_real(...) of complex ones",
    False: "cannot be sent: register the buffer with persistent=False, so that each peer makes its "
    "own, or keep real numbers in it, such as torch.view_as_real(...) of complex ones",
}


class Span(NamedTuple):
    """Consecutive numbers of one flat tensor, or cache lines picked from it."""

    flat: int
    """Index of the flat tensor."""
    low: int
    high: int
    """Indices of the first number, and past the last; with `lines`, among those in them."""
    per_line: int
    """Numbers in a cache line."""
    lines: Tensor | None = None
    """Indices of cache lines of the flat tensor, int64, on its device; None if consecutive."""

    def of(self, flats: Sequence[Tensor]) -> Tensor:
        """Return the numbers, along the last axis, in tensors that lie as the flat ones do: a view,
        or a copy if they are scattered, which `put` writes back."""
        flat = flats[self.flat]
        if self.lines is None:
            return flat[..., self.low : self.high]
        return self._as_lines(flat).index_select(-2, self.lines).flatten(-2)

    def put(self, flats: Sequence[Tensor], numbers: Tensor) -> None:
        """Write back the numbers that `of` returned, after changing them."""
        if self.lines is not None:
            self._as_lines(flats[self.flat]).index_copy_(-2, self.lines, self._as_lines(numbers))

    def _as_lines(self, numbers: Tensor) -> Tensor:
        # A sum in float64 has as many numbers in a line as the model.
        return numbers.view(*numbers.shape[:-1], -1, self.per_line)


def spans_of(schema: Schema, shard: int, device: torch.device) -> tuple[Span, ...]:
    """Return where a shard is in the flat tensors of a vector, one for each of `Schema.runs`, in
    the order in which it is sent."""
    spans, starts = [], [run.start_bytes for run in schema.runs]
    for piece in schema.pieces(shard):
        index = bisect_right(starts, piece.start_bytes) - 1
        low, lines = (piece.start_bytes - starts[index]) // ITEMSIZES[piece.dtype], None
        if piece.lines is not None:
            found = piece.lines.astype(np.int64) - starts[index] // ALIGNMENT_BYTES
            lines = torch.from_numpy(found).to(device)
        per_line = ALIGNMENT_BYTES // ITEMSIZES[piece.dtype]
        spans.append(Span(index, low, low + piece.n_numbers, per_line, lines))
    return tuple(spans)


class Part(NamedTuple):
    """Numbers of one flat tensor, and their slot in a payload."""

    span: Span
    slot: slice
    """Bytes of the payload, padding included."""
    dtype: torch.dtype
    wire: Wire
    """Format of the numbers in the payload."""
    converts: bool
    """False if the format leaves numbers of this dtype unchanged."""
    bare: bool = False
    """True if written as absolute values, False as differences from the anchor."""


class Plan(NamedTuple):
    """Layout of a payload: the numbers of each register in turn, then the local buffers of a copy
    and its part of the anchor."""

    registers: tuple[tuple[Part, ...], ...]
    local: slice
    """Bytes of the local buffers; empty without any."""
    anchor: tuple[Part, ...]
    numbers: tuple[Part, ...]
    """All parts that are numbers: those of the registers, then of the anchor."""
    converts: bool
    """True if any of them is converted."""
    size_bytes: int


def plan(schema: Schema, device: torch.device, form: Form, shard: int = 0) -> Plan:
    """Lay out the payload of one shard of a vector on a device."""
    wire, stop = parse_wire(form.wire), 0
    pieces = [*zip(schema.pieces(shard), spans_of(schema, shard, device), strict=True)]
    registers: list[tuple[Part, ...]] = []
    for register in range(form.registers):
        registers.append(_parts(pieces, wire, stop, bare=form.bare or register > 0))
        stop = registers[-1][-1].slot.stop
    has_local = form.copy and shard == 0
    local = slice(stop, stop + (schema.copy_bytes - schema.share_bytes if has_local else 0))
    native = parse_wire(NATIVE)
    anchor = _parts(pieces, native, local.stop) if form.anchor else ()
    numbers = *chain.from_iterable(registers), *anchor
    return Plan(
        registers=tuple(registers),
        local=local,
        anchor=anchor,
        numbers=numbers,
        converts=any(map(attrgetter("converts"), numbers)),
        size_bytes=form.size_bytes(schema, shard),
    )


def _parts(
    pieces: Sequence[tuple[Piece, Span]], wire: Wire, start: int, *, bare: bool = False
) -> tuple[Part, ...]:
    """Return the parts of one register, in slots from *start* on."""
    parts: list[Part] = []
    for piece, span in pieces:
        converts = wire.converts(piece.dtype)
        room = wire.room_bytes(piece.dtype, piece.n_numbers) if converts else piece.size_bytes
        slot = slice(start, start + room)
        parts.append(Part(span, slot, getattr(torch, piece.dtype), wire, converts, bare))
        start = slot.stop
    return tuple(parts)


_WORD_BYTES = 8

Bits = tuple[object, ...]
"""Shape, dtype and a hash of a tensor's bytes."""


class Constants:
    """Frozen parameters, and buffers that the module does not save."""

    def __init__(self, layout: Layout) -> None:
        self._module = layout.module
        self._travelling = {id(tensor) for tensor in layout.travelling}
        self._first: dict[str, Bits] = {}

    def frozen(self) -> dict[str, Tensor]:
        """Return the parameters that have values, by plain name."""
        return self._named(self._module.named_parameters())

    def buffers(self) -> dict[str, Tensor]:
        """Return the buffers that have values, by plain name."""
        return self._named(self._module.named_buffers())

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Read tensors; return those whose bits, shape or dtype differ from the first call."""
        found = {}
        for name, tensor in tensors.items():
            bits = bits_of(tensor)
            if self._first.setdefault(name, bits) != bits:
                found[name] = tensor
        return found

    def replace(self, name: str, value: Tensor) -> bool:
        """Restore a tensor from a checkpoint; False if the module no longer has it."""
        here = {**self.frozen(), **self.buffers()}.get(name)
        if here is None:
            return False
        if here.shape == value.shape and here.dtype == value.dtype:
            here.copy_(value)
        else:
            here.data = value.to(here.device)
        return True

    def _named(self, named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        plain = plain_names(self._module)
        return {plain(name): tensor for name, tensor in named if self._is_constant(tensor)}

    def _is_constant(self, tensor: Tensor) -> bool:
        # A parameter that was unfrozen is reported as another error.
        is_trained = isinstance(tensor, nn.Parameter) and tensor.requires_grad
        has_none = tensor.is_meta or tensor.is_quantized or tensor.is_nested or is_lazy(tensor)
        return not (is_trained or has_none or id(tensor) in self._travelling)


def bits_of(tensor: Tensor) -> Bits:
    """Return a hash of a tensor, computed as fast as its device reads it."""
    sums, tail = [], []
    for part in parts_of(tensor):
        raw = part.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        n_words = raw.numel() // _WORD_BYTES
        tail += raw[n_words * _WORD_BYTES :].tolist()
        if raw.storage_offset() % _WORD_BYTES:
            raw = raw.clone()
        words = raw[: n_words * _WORD_BYTES].view(torch.int64)
        for block in words.split(blocks(n_words, words.device)):
            # Distinct odd factors, so that words in another order give another sum.
            factors = torch.arange(len(block), dtype=torch.int64, device=block.device)
            factors.mul_(2).add_(1).mul_(0x5851F42D4C957F2D)
            sums.append(torch.mul(block, factors, out=scratch(block, torch.int64)).sum())
    whole = torch.stack(sums).tolist() if sums else []
    return tuple(tensor.shape), tensor.dtype, *tail, *whole
