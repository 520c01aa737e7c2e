"""A whole model in memory that the processes of a group share.

The leader's protocol works on this model as on any other. The processes copy their parts of the
real model into it before it is read, and take them back after it has changed. No collective
operation moves numbers, so the processes of two peers may hold their models in different parts.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ....gossip.errors import TrainingError
from ...model import inner_module, is_plain, named_tensors
from ...tensors.layout import Bits, Layout, bits_of
from ...tensors.shared_memory import Attachments, Segments
from .detection import is_spread, require_placed

__all__ = ["Parts", "Place", "SharedModel", "open_part"]

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
        """Return the tensor, a view of its segment."""
        numbers = segment.view(self.dtype)
        start = numbers.storage_offset() + self.offset_bytes // self.dtype.itemsize
        return numbers.as_strided(self.shape, self.stride, start)


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
                pair = _Pair(place, local.detach(), blocks, writes)
            else:
                pair = _Pair(place, tensor.detach(), [], self._leads)
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

    def whole(self, segments: Sequence[Tensor]) -> Tensor:
        """Return the part within segments."""
        whole = self.place.of(segments[self.place.segment])
        for block in self.blocks:
            whole = whole.narrow(*block)
        return whole


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


def _form(tensor: Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    """Return shape and strides of a whole tensor."""
    if is_spread(tensor):
        return tensor.shape, torch.empty(tensor.shape, dtype=tensor.dtype, device="meta").stride()
    return tensor.shape, torch.empty_like(tensor, device="meta").stride()


def _room_bytes(tensor: Tensor) -> int:
    size_bytes = tensor.numel() * tensor.dtype.itemsize
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
