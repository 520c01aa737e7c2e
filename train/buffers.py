"""Host memory for shares on their way: made once, used again."""

import torch
from torch import Tensor

from ..gossip.codec import Buffer

__all__ = ["BufferPool", "as_frame"]


class BufferPool:
    """Lends buffers of bytes; what is handed back is lent again.

    Args:
        pinned: Whether a GPU will copy from or to them, which wants page-locked memory.
        kept_max: Buffers kept for later; more than that are freed.
    """

    def __init__(self, *, pinned: bool, kept_max: int = 8) -> None:
        self._pinned = pinned
        self._kept_max = kept_max
        self._kept: list[Tensor] = []

    def lend(self, size_bytes: int) -> Tensor:
        """A buffer whose content is of no meaning; uint8, shape ``(size_bytes,)``."""
        for index, buffer in enumerate(self._kept):
            if buffer.numel() == size_bytes:
                return self._kept.pop(index)
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=self._pinned)

    def take_back(self, buffer: Tensor) -> None:
        """Keep a buffer that nobody reads or writes any more."""
        if len(self._kept) < self._kept_max:
            self._kept.append(buffer)


def as_frame(buffer: Tensor, start_bytes: int, size_bytes: int) -> Buffer:
    """Part of a host buffer, not copied, as bytes that a socket can send."""
    return buffer.numpy().data[start_bytes : start_bytes + size_bytes]
