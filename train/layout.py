"""How a module's tensors lie in flat memory: which travel, in what order, at which offset."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from ..gossip.errors import TrainingError
from ..gossip.schema import ALIGNMENT_BYTES, Schema, TensorSpec, itemsize

__all__ = ["Layout", "Placed", "Segment", "flatten"]


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

    Raises:
        ConfigError: There are more shards than the vector has cache lines.
        TrainingError: The module has nothing to share, or a dtype that cannot travel.
    """

    def __init__(self, module: nn.Module, shards: int = 1) -> None:
        shared, local = _sorted_out(module)
        if not shared:
            raise TrainingError("the model has no parameter that requires gradients")
        order = list(dict.fromkeys(tensor.dtype for _, tensor in shared))
        shared.sort(key=lambda item: order.index(item[1].dtype))
        placed = list(_place(shared, local))
        self.schema = Schema(tuple(item.spec for item in placed), shards)
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
