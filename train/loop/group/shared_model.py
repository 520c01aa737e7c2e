"""A whole model in memory that the processes of a group share.

The leader's protocol works on this model as on any other. The processes copy their parts of the
real model into it before it is read, and take them back after it has changed. No collective
operation moves numbers, so the processes of two peers may hold their models in different parts.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ....gossip.errors import TrainingError
from ....gossip.wire.formats import parse_wire
from ...model import inner_module, is_plain, named_tensors
from ...tensors.blocks import Given, is_finite_tensor, no_anchor, overflowing_sum
from ...tensors.buffers import IDLE_S
from ...tensors.layout import Bits, Layout, Plan, bits_of
from ...tensors.shared_memory import Attachments, Segments
from ...tensors.wires import halves
from .detection import is_spread, require_placed

__all__ = ["OwnParts", "Parts", "Place", "Run", "Share", "SharedModel", "open_part"]

_ALIGNMENT_BYTES: Final = 64

Use = Literal["shared", "local", "constant"]
"""Sent in every share; sent in copies or kept in checkpoints; never sent."""


class Place(NamedTuple):
    """The place of a whole tensor in shared memory."""

    name: str
    use: Use
    segment: int
    offset_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def of(self, segment: Tensor) -> Tensor:
        """Return the tensor, a view of its segment, or of another with as many numbers."""
        numbers = segment.view(self.dtype) if segment.dtype == torch.uint8 else segment
        start = numbers.storage_offset() + self.offset_bytes // self.dtype.itemsize
        return numbers.as_strided(self.shape, self.stride, start)

    @property
    def gap(self) -> slice:
        """The segment's numbers between this tensor and the next."""
        low = self.offset_bytes // self.dtype.itemsize + math.prod(self.shape)
        line = _ALIGNMENT_BYTES // self.dtype.itemsize
        return slice(low, -(-low // line) * line)


class Run(NamedTuple):
    """All numbers of a segment within a share."""

    segment: int
    start_bytes: int
    stop_bytes: int
    dtype: torch.dtype
    """In the share."""
    n_numbers: int
    """Without padding."""
    wire: str
    """Format of the share, if it converts them; else empty."""
    anchor: int
    """Segment of the anchor from which they are written as differences, -1 for none."""


class Share(NamedTuple):
    """A share in memory that all processes can open."""

    segment: str
    size_bytes: int
    runs: tuple[Run, ...]
    fraction: float
    payload: Tensor | None = None
    """Its memory, in the process that has opened it."""


class SharedModel:
    """The leader's whole model, in segments that the other processes open.

    *model* is its part of the real one, and *own* names what is `PeerConfig.local`.
    """

    def __init__(self, model: nn.Module, own: Collection[str]) -> None:
        self._segments = Segments()
        self.segments: list[Tensor] = []
        """Memory of all whole tensors: uint8."""
        self._own = own
        self._made: dict[object, Tensor] = {}
        self._modules: dict[int, nn.Module] = {}
        kept = [t for name, t in named_tensors(model).items() if not self._is_trained(name, t)]
        self._free = self._allocate(_ALIGNMENT_BYTES + sum(map(_room_bytes, kept)))
        self.module = self._copy(model, "")
        """A module with the real one's names, shapes and order, but without its computation."""

    def empty(self, size: int, dtype: torch.dtype) -> Tensor:
        """Allocate zeros for the vector."""
        return self._allocate(size * dtype.itemsize).view(dtype)

    def names(self) -> list[tuple[str, int]]:
        """Return the name and size of each segment, by which another process opens it."""
        return [(self._segments.name_of(each), each.numel()) for each in self.segments]

    def places(self, layout: Layout) -> list[Place]:
        """Return the place of each tensor, once the vector has moved the shared ones."""
        uses: dict[str, Use] = {placed.spec.name: "local" for placed in layout.local}
        uses |= {placed.spec.name: "shared" for placed in layout.placed}
        aliases = {name for placed in layout.placed for name in placed.aliases}
        found = []
        for name, tensor in named_tensors(self.module).items():
            other: Use = "constant" if isinstance(tensor, nn.Parameter) else "local"
            if name not in aliases and (where := self._where(tensor)) is not None:
                shape, stride = tuple(tensor.shape), tensor.stride()
                use = uses.get(name, other)
                found.append(Place(name, use, *where, tensor.dtype, shape, stride))
        return found

    def _where(self, tensor: Tensor) -> tuple[int, int] | None:
        for index, segment in enumerate(self.segments if tensor.numel() else ()):
            offset = tensor.data_ptr() - segment.data_ptr()
            if 0 <= offset < segment.numel():
                return index, offset
        return None

    def _allocate(self, size_bytes: int) -> Tensor:
        self.segments.append(self._segments.make(size_bytes, pinned=True))
        return self.segments[-1]

    def _is_trained(self, name: str, tensor: Tensor) -> bool:
        """True if the vector allocates a tensor's memory, as it is trained and shared."""
        is_own = any(f"{name}.".startswith(f"{each}.") for each in self._own)
        return isinstance(tensor, nn.Parameter) and tensor.requires_grad and not is_own

    def _copy(self, module: nn.Module, path: str) -> nn.Module:
        module = inner_module(module)
        if id(module) in self._modules:
            return self._modules[id(module)]
        has_more = type(module).get_extra_state is not nn.Module.get_extra_state
        copy = self._modules[id(module)] = _WithExtraState(module) if has_more else nn.Module()
        for name, parameter in module._parameters.items():
            whole: Any = None if parameter is None else self._whole(path + name, parameter)
            copy.register_parameter(name, whole)
        for name, buffer in module._buffers.items():
            whole = None if buffer is None else self._whole(path + name, buffer)
            is_saved = name not in module._non_persistent_buffers_set
            copy.register_buffer(name, whole, persistent=is_saved)
        for name, child in module._modules.items():
            if child is not None:
                copy.add_module(name, self._copy(child, f"{path}{name}."))
        return copy

    def _whole(self, name: str, tensor: Tensor) -> Tensor:
        """Return the whole tensor of which this process has a part or a copy."""
        if id(tensor) in self._made:
            return self._made[id(tensor)]
        if is_spread(tensor):
            require_placed(name, tensor)
        elif is_lazy(tensor) or tensor.is_meta or not is_plain(tensor):
            return tensor
        key: object = id(tensor)
        if tensor.numel() and not is_spread(tensor):
            key = tensor.data_ptr(), tensor.shape, tensor.stride()
        if key in self._made:
            whole = self._made[key].detach()  # tied by memory
        elif self._is_trained(name, tensor):
            # Read once, by the vector: these zeros take no memory.
            zeros = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            whole = zeros.as_strided(*_form(tensor))
        else:
            room = _room_bytes(tensor)
            here, self._free = self._free[:room], self._free[room:]
            numbers = here.view(tensor.dtype)
            whole = numbers.as_strided(*_form(tensor), numbers.storage_offset())
            if not is_spread(tensor):
                # The vector averages finite buffers only.
                whole.copy_(tensor)
        if isinstance(tensor, nn.Parameter):
            whole = nn.Parameter(whole, requires_grad=tensor.requires_grad)
        self._made[id(tensor)] = self._made[key] = whole
        return whole


def open_part(name: str, size_bytes: int) -> Tensor:
    """Open a segment of the leader, or raise `TrainingError`."""
    segment = Attachments(writable=True, pinned=True).open(name, size_bytes)
    if segment is None:
        raise TrainingError("the memory of rank 0 of this peer cannot be opened: has it ended?")
    return segment


class _WithExtraState(nn.Module):
    """A stand-in for a module of the leader with extra state."""

    def __init__(self, real: nn.Module) -> None:
        super().__init__()
        # A list keeps it from becoming a child module.
        self._real = [real]

    def get_extra_state(self) -> Any:
        return self._real[0].get_extra_state()

    def set_extra_state(self, state: Any) -> None:
        self._real[0].set_extra_state(state)


class Parts:
    """The tensors of the real model in this process, each with its part of a whole one.

    If several processes hold copies of a part, the first in its mesh writes it. The leader writes
    plain tensors, such as buffers and all parameters of a `DistributedDataParallel`.
    """

    def __init__(
        self, model: nn.Module, places: Sequence[Place], segments: Sequence[Tensor], *, leads: bool
    ) -> None:
        self._model, self.segments, self._leads = model, segments, leads
        self._places = {place.name: place for place in places}
        self._known = {*named_tensors(model)}
        self._constants: dict[str, Bits] = {}
        # For all other plain tensors, the leader's values count.
        ddp = [m for m in model.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
        alike = {id(parameter) for each in ddp for parameter in each.parameters()}
        self._alike = {name for name, t in named_tensors(model).items() if id(t) in alike}
        self._shares = Attachments(writable=True, pinned=True)

    @torch.no_grad()
    def write(self, *, everything: bool = False) -> None:
        """Copy this process's parts into the whole model: all, or those that training changes.

        Raises:
            TrainingError: A tensor is missing, new, or of another shape.
        """
        for pair in self._pairs():
            if pair.writes and (everything or pair.place.use != "constant"):
                pair.whole(self.segments).copy_(pair.part, non_blocking=True)
        self._synchronize()

    @torch.no_grad()
    def read(self, *, everything: bool = False) -> None:
        """Copy parts of the whole model, all or the shared ones, into the real model."""
        for pair in self._pairs():
            if everything or pair.place.use == "shared":
                pair.part.copy_(pair.whole(self.segments), non_blocking=True)
        self._synchronize()

    @torch.no_grad()
    def write_plain(self) -> None:
        """Copy the leader's plain tensors that may differ elsewhere, such as buffers, into the
        whole model, from where all processes mix them."""
        for pair in self._pairs("shared"):
            if not pair.is_alike:
                pair.whole(self.segments).copy_(pair.part, non_blocking=True)
        self._synchronize()

    @torch.no_grad()
    def take(self, share: Share) -> bool:
        """Copy this process's parts to a share; return True if all of them are finite."""
        rooms, looks, is_finite = self._rooms(share), list[tuple[Tensor, Tensor]](), True
        if self._leads:
            # Old memory contents must not leak.
            for run in share.runs:
                rooms[run.segment][run.n_numbers :] = 0
        runs = {run.segment: run for run in share.runs}
        for pair in self._pairs("shared"):
            run = runs[pair.place.segment]
            if self._leads:
                rooms[run.segment][pair.place.gap] = 0
            if not pair.writes:
                continue
            room, numbers = pair.whole(rooms), pair.part.reshape(-1)
            if run.wire:
                made = torch.empty_like(numbers, dtype=run.dtype)
                given = Given(self._base(pair, run), None, None)
                is_finite &= halves.write([made], numbers, parse_wire(run.wire), given)
                room.copy_(made.view(room.shape), non_blocking=True)
            else:
                room.copy_(pair.part, non_blocking=True)
                looks.append((overflowing_sum(numbers), numbers))
        self._synchronize()
        # The sum may overflow although all numbers are finite.
        return is_finite and all(
            bool(torch.isfinite(total)) or is_finite_tensor(numbers) for total, numbers in looks
        )

    @torch.no_grad()
    def mix(self, share: Share) -> None:
        """Move this process's parts toward a share."""
        rooms, runs = self._rooms(share), {run.segment: run for run in share.runs}
        for pair in self._pairs("shared"):
            run = runs[pair.place.segment]
            if not (self._leads or pair.is_alike):
                pair.part.copy_(pair.whole(self.segments), non_blocking=True)
            numbers = pair.part.reshape(-1)
            there = pair.whole(rooms).reshape(-1).to(numbers.device, non_blocking=True)
            if run.wire:
                wire, base = parse_wire(run.wire), self._base(pair, run)
                halves.mix(numbers, [there], wire, share.fraction, base)
            elif share.fraction == 1.0:
                numbers.copy_(there)
            else:
                numbers.lerp_(there, share.fraction)
            if numbers.data_ptr() != pair.part.data_ptr():
                pair.part.copy_(numbers.view(pair.part.shape))
        self._synchronize()

    def _base(self, pair: "_Pair", run: Run) -> Tensor:
        """Return what a part's numbers are written as differences from."""
        if run.anchor < 0:
            return no_anchor(pair.part.reshape(-1))
        anchor = pair.cut(pair.place.of(self.segments[run.anchor]))
        return anchor.reshape(-1).to(pair.part.device)

    def _rooms(self, share: Share) -> dict[int, Tensor]:
        """Return the numbers of each segment in a share."""
        payload = share.payload
        if payload is None:
            self._shares.forget_gone(IDLE_S)
            payload = self._shares.open(share.segment, share.size_bytes)
        if payload is None:
            raise TrainingError("the memory of a share cannot be opened")
        return {
            run.segment: payload[run.start_bytes : run.stop_bytes].view(run.dtype)
            for run in share.runs
        }

    def require_constant(self) -> None:
        """Read frozen parameters, and raise `TrainingError` if they differ from the first call."""
        for place, part, *_ in self._pairs("constant"):
            bits = bits_of(part)
            if self._constants.setdefault(place.name, bits) != bits:
                raise TrainingError(
                    f"{place.name} is frozen, and was changed after the peer started: name it "
                    "in PeerConfig(local=...) at all peers, or set frozen_may_differ"
                )

    def _pairs(self, use: Use | None = None) -> Iterator["_Pair"]:
        """Iterate over this process's parts that are not empty: all, or those of one use."""
        for module in self._model.modules():
            # FSDP2 may have left parameters gathered: they are copies, and would hide what is read.
            if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
                module.reshard()  # type: ignore[operator]
        named = named_tensors(self._model)
        for name, tensor in named.items():
            if tensor.requires_grad and name not in self._known:
                raise TrainingError(f"{name} was added after the peer was made")
        for name, place in self._places.items():
            if name not in named or tuple(named[name].shape) != place.shape:
                raise TrainingError(f"{name} was taken away or replaced after the peer was made")
            if use is not None and place.use != use:
                continue
            tensor = named[name]
            if is_spread(tensor):
                local, blocks, writes = _own(tensor)
                pair = _Pair(place, local.detach(), blocks, writes, is_alike=True)
            else:
                is_alike = name in self._alike
                pair = _Pair(place, tensor.detach(), [], self._leads, is_alike)
            if pair.part.numel():
                yield pair

    def _synchronize(self) -> None:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()


Block = tuple[int, int, int]
"""Dimension, start and length of what a process has of a tensor."""


class _Pair(NamedTuple):
    """A part of a tensor, and where it is in the whole one."""

    place: Place
    part: Tensor
    blocks: list[Block]
    """Cuts of the whole tensor, one after another."""
    writes: bool
    """True if this process writes it, if several have it."""
    is_alike: bool
    """True if training keeps it alike in all processes that have it."""

    def cut(self, whole: Tensor) -> Tensor:
        """Return the part of a whole tensor."""
        for block in self.blocks:
            whole = whole.narrow(*block)
        return whole

    def whole(self, segments: Sequence[Tensor] | Mapping[int, Tensor]) -> Tensor:
        """Return the part within segments."""
        return self.cut(self.place.of(segments[self.place.segment]))


def _own(spread: Any) -> tuple[Tensor, list[Block], bool]:
    """Return this process's numbers of a DTensor, where they are, and whether it writes them."""
    mesh, is_first, blocks, sizes = spread.device_mesh, True, list[Block](), [*spread.shape]
    at = zip(mesh.get_coordinate(), mesh.shape, spread.placements, strict=True)
    for index, count, placement in at:
        if placement.is_replicate():
            is_first &= index == 0
        else:
            # Each process has as many rows as the first, as long as there are some.
            rows = sizes[placement.dim]
            size = -(-rows // count)
            low = min(rows, index * size)
            sizes[placement.dim] = min(size, rows - low)
            blocks.append((placement.dim, low, sizes[placement.dim]))
    return spread.to_local(), blocks, is_first


class OwnParts:
    """The leader's way to have all processes copy and mix their parts of a share: its own *parts*
    itself, the others as `RankGroup.ask_for_parts` does."""

    def __init__(self, parts: Parts, ask: Callable[..., list[Any] | None]) -> None:
        self._parts, self._ask = parts, ask

    def take(self, host: Tensor, segment: str, layout: Plan) -> bool | None:
        """See `PartsOf.take`."""
        share = self._share(host, segment, layout)
        if share is None:
            return None
        found = self._ask("take", share, share._replace(payload=host))
        return None if found is None else all(found)

    def mix(self, payload: Tensor, segment: str, fraction: float, layout: Plan) -> bool:
        """See `PartsOf.mix`."""
        share = self._share(payload, segment, layout, fraction)
        if share is None:
            return False
        own, before = share._replace(payload=payload), self._parts.write_plain
        return self._ask("mix", share, own, before) is not None

    def _share(
        self, host: Tensor, segment: str, layout: Plan, fraction: float = 1.0
    ) -> Share | None:
        """Describe a share to all processes; None if it has something else than all numbers of the
        model, each in a place of its own."""
        (parts, *more), runs = layout.registers, list[Run]()
        if not segment or more or layout.anchor or layout.local.start < layout.local.stop:
            return None
        for part in parts:
            size = self._parts.segments[1 + part.span.flat].numel() // part.dtype.itemsize
            if part.span.lines is not None or part.span.high - part.span.low != size:
                return None
            dtype, wire, anchor = part.dtype, "", -1
            if part.converts:
                dtype, wire = getattr(torch, part.wire.name), part.wire.name
                if part.wire.coder != "halves":
                    return None
                if part.wire.needs_anchor and not part.bare:
                    anchor = 1 + len(parts) + part.span.flat
            start, stop = part.slot.start, part.slot.stop
            # The first segment is that of what no share carries.
            runs.append(Run(1 + part.span.flat, start, stop, dtype, size, wire, anchor))
        return Share(segment, host.numel(), tuple(runs), fraction)


def _form(tensor: Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    """Return shape and strides of a whole tensor."""
    if is_spread(tensor):
        return tensor.shape, torch.empty(tensor.shape, dtype=tensor.dtype, device="meta").stride()
    return tensor.shape, torch.empty_like(tensor, device="meta").stride()


def _room_bytes(tensor: Tensor) -> int:
    size_bytes = tensor.numel() * tensor.dtype.itemsize
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
