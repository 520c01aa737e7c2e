"""A model as one flat vector: it carries out what the protocol decides about values."""

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor, nn

from ..gossip.effects import X
from ..gossip.errors import TrainingError
from ..gossip.schema import HASH_BYTES, Schema
from .buffers import BufferPool
from .layout import Layout, Placed

__all__ = ["Vector", "is_finite"]


class Vector:
    """The shared parameters and buffers of a module, laid into flat tensors.

    From construction on, they are views into the flat tensors: an optimizer that was made before
    or after goes on working, and its state is untouched. One flat tensor holds what has one dtype
    and lies on one device.

    Args:
        module: The model. Its tensors keep their identity, shape, dtype and device.
        registers: Vectors that the rule keeps beside ``x``; they start as zeros.

    Raises:
        TrainingError: The module has nothing to share, or a dtype that cannot travel.
    """

    def __init__(self, module: nn.Module, registers: Sequence[str] = ()) -> None:
        layout = Layout(module)
        self.schema: Schema = layout.schema
        self._segments = layout.segments
        self._local = layout.local
        self.flats: tuple[Tensor, ...] = tuple(_flatten(s.tensors) for s in self._segments)
        """The vector itself, one tensor of shape ``(n_padded,)`` per dtype and device."""
        self._registers = {X: self.flats}
        for name in registers:
            self._registers[name] = tuple(torch.zeros_like(flat) for flat in self.flats)
        self._on_gpu = any(flat.is_cuda for flat in self.flats)
        self._arrived: dict[int, Tensor] = {}
        self.staging = BufferPool(pinned=self._on_gpu)
        """Host buffers for shares that arrive."""
        self.snapshots = BufferPool(pinned=self._on_gpu)
        """Host buffers for shares that leave."""

    @property
    def n_params(self) -> int:
        """Numbers that are shared, padding not counted."""
        return sum(placed.tensor.numel() for s in self._segments for placed in s.tensors)

    def anchor(self) -> bytes:
        """Hash of the vector as it is now, 16 bytes: names a swarm by what it starts from."""
        digest = blake2b(digest_size=HASH_BYTES)
        for flat in self.flats:
            digest.update(flat.cpu().view(torch.uint8).numpy().data)
        return digest.digest()

    def snapshot(self, register: str = X, *, copy: bool = False) -> Tensor:
        """Copy a register out to host memory.

        Args:
            register: Which.
            copy: Whether the local buffers follow.

        Returns:
            Bytes as they travel: uint8, shape ``(share_bytes,)`` or ``(copy_bytes,)``.

        Raises:
            TrainingError: A value is not finite, and must never reach another peer; or the
                model's tensors no longer lie in the vector.
        """
        size = self.schema.copy_bytes if copy else self.schema.share_bytes
        self._require_in_place()
        host = self.snapshots.lend(size)
        if copy:
            # What lay in the gaps between local buffers is nobody's business.
            host.zero_()
        for segment, flat in zip(self._segments, self._registers[register], strict=True):
            part = host[segment.start_bytes : segment.stop_bytes].view(flat.dtype)
            part.copy_(flat, non_blocking=True)
        for placed in self._local if copy else ():
            _in_bytes(host, placed).copy_(placed.tensor)
        if self._on_gpu:
            torch.cuda.current_stream().synchronize()
        if not self.is_finite(host):
            raise TrainingError("a parameter is not finite, so nothing is shared: lower the lr")
        return host

    def is_finite(self, share: Tensor) -> bool:
        """Whether all shared numbers in a host buffer are finite."""
        return all(
            is_finite(share[segment.start_bytes : segment.stop_bytes].view(segment.dtype))
            for segment in self._segments
        )

    @torch.no_grad()
    def mix(self, share: Tensor, fraction: float, *, copy: bool = False) -> None:
        """Move toward a share in place: ``x += fraction * (share - x)``.

        Args:
            share: A staged share, host memory, uint8.
            fraction: In [0, 1]; 1 makes ``x`` equal to the share, bit for bit.
            copy: Whether the share brings local buffers, which are taken over at fraction 1.
        """
        for index, flat in enumerate(self.flats):
            arrived = self._on_device(share, index)
            if fraction == 1.0:
                flat.copy_(arrived)
            else:
                flat.lerp_(arrived, fraction)
        for placed in self._local if copy and fraction == 1.0 else ():
            placed.tensor.copy_(_in_bytes(share, placed))

    @torch.no_grad()
    def combine(self, register: str, terms: Sequence[tuple[float, str | Tensor]]) -> None:
        """Set ``register = sum of coefficient * term``.

        Args:
            register: What to set.
            terms: Coefficients, and names of registers or staged shares.
        """
        for index, target in enumerate(self._registers[register]):
            total = torch.zeros_like(target)
            for coefficient, term in terms:
                if isinstance(term, str):
                    total.add_(self._registers[term][index], alpha=coefficient)
                else:
                    total.add_(self._on_device(term, index), alpha=coefficient)
            target.copy_(total)

    def _require_in_place(self) -> None:
        for segment, flat in zip(self._segments, self.flats, strict=True):
            for placed in segment.tensors:
                offset = placed.offset_bytes - segment.start_bytes
                if placed.tensor.data_ptr() != flat.data_ptr() + offset:
                    raise TrainingError(
                        f"{placed.spec.name} was moved or converted after the peer was made: "
                        f"call model.to(...) before Peer(model)"
                    )

    def _on_device(self, share: Tensor, index: int) -> Tensor:
        """A share's part for one flat tensor, on the device of that tensor."""
        segment, flat = self._segments[index], self.flats[index]
        part = share[segment.start_bytes : segment.stop_bytes].view(flat.dtype)
        if not flat.is_cuda:
            return part
        # One landing place for each flat tensor, made once: no allocation per message.
        landing = self._arrived.get(index)
        if landing is None:
            landing = self._arrived[index] = torch.empty_like(flat)
        landing.copy_(part, non_blocking=True)
        # The host buffer is lent again as soon as this share is mixed.
        torch.cuda.current_stream().synchronize()
        return landing


def is_finite(numbers: Tensor) -> bool:
    """Whether all *numbers* are finite, at the speed of a sum.

    One that is not finite makes the sum so; the exact look is only needed where it overflowed.
    """
    wide = torch.float64 if numbers.dtype == torch.float64 else torch.float32
    if bool(torch.isfinite(numbers.sum(dtype=wide))):
        return True
    return bool(torch.isfinite(numbers).all())


def _flatten(tensors: Sequence[Placed]) -> Tensor:
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


def _in_bytes(host: Tensor, placed: Placed) -> Tensor:
    """The room of one tensor in a host buffer, in its own dtype and shape."""
    start = placed.offset_bytes
    raw = host[start : start + placed.spec.size_bytes]
    return raw.view(placed.tensor.dtype).view(placed.tensor.shape)
