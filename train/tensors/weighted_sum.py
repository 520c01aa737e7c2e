"""The weighted average of several peers' models, shard by shard."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from ...gossip.weight import founders
from ...gossip.wire.schema import ALIGNMENT_BYTES, Piece, Schema
from .blocks import is_finite_tensor
from .buffers import Payload

__all__ = ["WeightedSum", "are_finite"]

# Numbers converted to float64 at a time.
_CHUNK: Final = 1 << 18


class WeightedSum:
    """Sums of weight times model, float64 in host memory, and the weights."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.weights = [0] * schema.shards
        """Sum of the weights of each shard, in quanta."""
        self._pieces = [schema.pieces(shard) for shard in range(schema.shards)]
        self._sums = [
            [torch.zeros(piece.n_numbers, dtype=torch.float64, device="cpu") for piece in pieces]
            for pieces in self._pieces
        ]

    def add(self, payloads: Sequence[Payload], weights: Sequence[int]) -> None:
        """Add a model, given as the payloads of its shards in float32, or as copies."""
        for shard, (payload, weight) in enumerate(zip(payloads, weights, strict=True)):
            self._add(shard, _cut(payload, self._pieces[shard]), weight)

    def add_vector(self, vector: Tensor, weights: Sequence[int]) -> None:
        """Add a model, given as the bytes of the whole vector."""
        for shard, weight in enumerate(weights):
            numbers = (_within(vector, piece) for piece in self._pieces[shard])
            self._add(shard, numbers, weight)

    def write_mean(self, vector: Tensor) -> None:
        """Overwrite the bytes of a vector with the average, except in shards without weight. The
        sums are spent."""
        for pieces, sums, weight in zip(self._pieces, self._sums, self.weights, strict=True):
            for piece, total in zip(pieces, sums, strict=True) if weight else ():
                mean = total.div_(founders(weight)).to(getattr(torch, piece.dtype))
                if piece.lines is None:
                    vector[piece.start_bytes : piece.stop_bytes] = mean.view(torch.uint8)
                else:
                    lines = torch.from_numpy(piece.lines).long()
                    vector.view(-1, ALIGNMENT_BYTES)[lines] = mean.view(torch.uint8).view(
                        -1, ALIGNMENT_BYTES
                    )

    def _add(self, shard: int, pieces: Iterator[Tensor], weight: int) -> None:
        self.weights[shard] += weight
        for numbers, total in zip(pieces, self._sums[shard], strict=True):
            for part, there in zip(numbers.split(_CHUNK), total.split(_CHUNK), strict=True):
                there.add_(part.double(), alpha=founders(weight))


def are_finite(schema: Schema, payloads: Sequence[Payload]) -> bool:
    """True if all averaged numbers in the payloads of a model's shards are finite."""
    return all(
        is_finite_tensor(numbers)
        for shard, payload in enumerate(payloads)
        for numbers in _cut(payload, schema.pieces(shard))
    )


def _cut(payload: Payload, pieces: Sequence[Piece]) -> Iterator[Tensor]:
    """Yield the numbers of each piece of a shard, which follow one another in its payload."""
    start = 0
    for piece in pieces:
        yield payload[slice(start, start + piece.size_bytes)].view(getattr(torch, piece.dtype))
        start += piece.size_bytes


def _within(vector: Tensor, piece: Piece) -> Tensor:
    """Return the numbers of a piece in the bytes of the whole vector."""
    raw = vector[piece.start_bytes : piece.stop_bytes]
    if piece.lines is not None:
        lines = torch.from_numpy(piece.lines).long()
        raw = vector.view(-1, ALIGNMENT_BYTES)[lines].view(-1)
    return raw.view(getattr(torch, piece.dtype))
