"""The weighted average of several peers' models, shard by shard."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from ...gossip.weight import founders
from ...gossip.wire.schema import Piece, Schema
from .blocks import is_finite_tensor
from .buffers import Payload
from .layout import spans_of

__all__ = ["WeightedSum", "are_finite"]

_CPU: Final = torch.device("cpu")

# Numbers converted to float64 at a time.
_CHUNK: Final = 1 << 18


class WeightedSum:
    """Sums of weight times model, float64 in host memory, and the weights."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.weights = [0] * schema.shards
        """Sum of the weights of each shard, in quanta."""
        self._spans = [spans_of(schema, shard, _CPU) for shard in range(schema.shards)]
        self._sums = [
            torch.zeros(run.n_numbers, dtype=torch.float64, device=_CPU) for run in schema.runs
        ]

    def add(self, payloads: Sequence[Payload], weights: Sequence[int]) -> None:
        """Add a model, given as the payloads of its shards in float32, or as copies."""
        for shard, (payload, weight) in enumerate(zip(payloads, weights, strict=True)):
            self._add(shard, _cut(payload, self.schema.pieces(shard)), weight)

    def add_vector(self, vector: Tensor, weights: Sequence[int]) -> None:
        """Add a model, given as the bytes of the whole vector."""
        flats = self.flats(vector)
        for shard, weight in enumerate(weights):
            self._add(shard, (span.of(flats) for span in self._spans[shard]), weight)

    def write_mean(self, vector: Tensor) -> None:
        """Overwrite the bytes of a vector with the average, except in shards without weight. The
        sums are spent."""
        flats = self.flats(vector)
        for spans, weight in zip(self._spans, self.weights, strict=True):
            for span in spans if weight else ():
                numbers = span.of(flats)
                numbers.copy_(span.of(self._sums).div_(founders(weight)))
                span.put(flats, numbers)

    def flats(self, vector: Tensor) -> list[Tensor]:
        """Return the numbers of each dtype in the bytes of the whole vector."""
        return [
            vector[run.start_bytes : run.stop_bytes].view(getattr(torch, run.dtype))
            for run in self.schema.runs
        ]

    def _add(self, shard: int, pieces: Iterator[Tensor], weight: int) -> None:
        self.weights[shard] += weight
        for numbers, span in zip(pieces, self._spans[shard], strict=True):
            total = span.of(self._sums)
            for part, there in zip(numbers.split(_CHUNK), total.split(_CHUNK), strict=True):
                there.add_(part.double(), alpha=founders(weight))
            span.put(self._sums, total)


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
