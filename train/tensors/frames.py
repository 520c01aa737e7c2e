"""A share as its frames were received: kept as the messages that they are, and not copied."""

from bisect import bisect_right
from collections.abc import Iterator

import torch
from torch import Tensor

from ...gossip.wire.codec import Buffer

__all__ = ["Frames", "Payload", "as_tensor"]


# More than any dtype that travels wants.
_ALIGNMENT_BYTES = 8


class Frames:
    """The bytes of one share, in messages of ZeroMQ.

    Each message lives as long as it is held here, or a tensor views it. One thread adds; once all
    frames are there, any may read.

    Args:
        size_bytes: Of the share.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._starts: list[int] = []
        self._frames: dict[int, Tensor] = {}

    def numel(self) -> int:
        """How many bytes the share has, as of a tensor of them."""
        return self._size_bytes

    def add(self, start_bytes: int, frame: Tensor) -> None:
        """Keep a frame, as `as_tensor` gives it.

        Args:
            start_bytes: Where it begins in the share.
            frame: It must not change while it is kept.
        """
        if start_bytes not in self._frames:
            self._starts.insert(bisect_right(self._starts, start_bytes), start_bytes)
        self._frames[start_bytes] = frame

    def __getitem__(self, place: slice) -> Tensor:
        """Bytes of the share, uint8: a view where they lie in one frame, or else a copy.

        Args:
            place: From where to where, both given; all of it has come.
        """
        pieces = list(self.pieces(place.start, place.stop))
        if not pieces:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def pieces(self, start_bytes: int, stop_bytes: int) -> Iterator[Tensor]:
        """Views that together are the bytes from one place to another, in order; uint8."""
        index = bisect_right(self._starts, start_bytes) - 1
        while start_bytes < stop_bytes:
            first = self._starts[index]
            piece = self._frames[first][start_bytes - first : stop_bytes - first]
            yield piece
            start_bytes += piece.numel()
            index += 1


def as_tensor(frame: Buffer) -> Tensor:
    """View a frame that was received as uint8; copied only where its numbers lie unaligned."""
    raw = torch.frombuffer(frame, dtype=torch.uint8)
    # A short message lies in a buffer with others, at any address.
    return raw.clone() if raw.data_ptr() % _ALIGNMENT_BYTES else raw


Payload = Tensor | Frames
"""What a share consists of: uint8, shape ``(size_bytes,)``."""
