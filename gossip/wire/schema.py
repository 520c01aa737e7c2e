"""A model's schema: names, shapes and dtypes of its tensors, in order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import groupby, zip_longest
from math import prod
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..types import stream
from .fields import OPTIONAL, U32, Check, FieldError, each, integer, record, text

__all__ = [
    "ALIGNMENT_BYTES",
    "HASH_BYTES",
    "ITEMSIZES",
    "SHARDS_MAX",
    "FrozenTensor",
    "Piece",
    "Schema",
    "TensorSpec",
]

HASH_BYTES = 16

SHARDS_MAX = 1 << 14

# Matrix kernels may round differently at addresses not aligned to cache lines, and a one-peer run
# must equal plain SGD in every bit.
ALIGNMENT_BYTES = 64

ITEMSIZES: Final = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one number of each dtype that can be sent."""


def _dtype(value: Any) -> str:
    if type(value) is not str or value not in ITEMSIZES:
        raise FieldError("a dtype that can travel")
    return value


_TensorName = Annotated[str, text(1, 1024)]
_Shape = Annotated[tuple[int, ...], each(integer(0, 2**48), 32)]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model."""

    name: _TensorName
    shape: _Shape
    dtype: Annotated[str, Check(_dtype)]
    shared: bool = True
    """Mixed with every share; False for tensors that only a copy carries: integer buffers."""
    order: Annotated[tuple[int, ...], each(integer(0, 31), 32), OPTIONAL] = ()
    """Axes of more than one element, from the outermost in memory to the innermost, if not in that
    order already; ``(0, 2, 3, 1)`` is channels last."""
    aliases: Annotated[tuple[_TensorName, ...], each(text(1, 1024), 1 << 16), OPTIONAL] = field(
        default=(), compare=False
    )
    """Other names of a tied tensor, for a reader without the module."""

    @property
    def axes(self) -> tuple[int, ...]:
        order = self.order or tuple(range(len(self.shape)))
        return *order, *(axis for axis in range(len(self.shape)) if axis not in order)

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * ITEMSIZES[self.dtype]

    @property
    def room_bytes(self) -> int:
        """Bytes it takes in a flat vector, padded to whole cache lines."""
        return -(-self.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def __str__(self) -> str:
        order = f" in memory order {self.order}" if self.order else ""
        return f"{self.name} {self.shape} {self.dtype}{order}" + ("" if self.shared else " (local)")


@dataclass(frozen=True, slots=True)
class FrozenTensor:
    """A parameter that is neither trained nor sent, and must be the same at all peers."""

    name: _TensorName
    shape: _Shape
    dtype: Annotated[str, text(1, 64)]
    checksum: Annotated[int, integer(0, U32)]

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype} of checksum {self.checksum:08x}"


class Piece(NamedTuple):
    """A run of the vector of one dtype, or cache lines picked from it, padding included."""

    dtype: str
    start_bytes: int
    stop_bytes: int
    lines: NDArray[Any] | None = None
    """Indices of the vector's cache lines, ascending; None for all between start and stop."""

    @property
    def size_bytes(self) -> int:
        if self.lines is not None:
            return len(self.lines) * ALIGNMENT_BYTES
        return self.stop_bytes - self.start_bytes

    @property
    def n_numbers(self) -> int:
        return self.size_bytes // ITEMSIZES[self.dtype]


@dataclass(frozen=True)
class Schema:
    """All tensors that are sent, shared ones first, then those of a copy; and their shards."""

    tensors: Annotated[tuple[TensorSpec, ...], each(record(TensorSpec), 1 << 16)]
    shards: Annotated[int, integer(1, SHARDS_MAX)] = 1
    """Number of shards of nearly equal size that the vector is cut into."""
    scattered: Annotated[bool, OPTIONAL] = False
    """True if each shard holds cache lines from all over the vector, picked at random."""
    frozen: Annotated[tuple[FrozenTensor, ...], each(record(FrozenTensor), 1 << 16), OPTIONAL] = ()
    """Parameters not sent that must be the same at all peers; empty if they are not compared."""

    def __post_init__(self) -> None:
        if self.shards == 1:
            return
        shards_max = max(1, self.share_bytes // ALIGNMENT_BYTES)
        if not 1 <= self.shards <= shards_max:
            raise ConfigError(
                f"shards is {self.shards}: it must be from 1 to {shards_max} for a vector of "
                f"{self.share_bytes} bytes; rules that cut it themselves have a parameter fraction"
            )

    @cached_property
    def hash(self) -> bytes:
        """Hash of the schema, 16 bytes; the same at all peers of a swarm."""
        text = "\n".join(str(tensor) for tensor in self.tensors)
        if self.shards > 1:
            text += f"\nshards {self.shards}" + (" scattered" if self.scattered else "")
        text += "".join(f"\nfrozen {tensor}" for tensor in self.frozen)
        return blake2b(text.encode(), digest_size=HASH_BYTES).digest()

    @cached_property
    def share_bytes(self) -> int:
        """Bytes of the whole vector, which holds the shared tensors only."""
        return _size_bytes(tensor for tensor in self.tensors if tensor.shared)

    @cached_property
    def copy_bytes(self) -> int:
        return _size_bytes(self.tensors)

    def shard_bounds(self, shard: int) -> tuple[int, int]:
        """Return where a shard begins and ends in the vector, in bytes; whole cache lines."""
        # The bounds of scattered shards count lines in the order in which they were drawn.
        n_lines = self.share_bytes // ALIGNMENT_BYTES
        start, stop = n_lines * shard // self.shards, n_lines * (shard + 1) // self.shards
        return start * ALIGNMENT_BYTES, stop * ALIGNMENT_BYTES

    def lines(self, shard: int) -> NDArray[Any]:
        """Return the cache lines of a shard, ascending: int32, shape ``(n_lines,)``."""
        start, stop = (bound // ALIGNMENT_BYTES for bound in self.shard_bounds(shard))
        if not self.scattered:
            return np.arange(start, stop, dtype=np.int32)
        return np.sort(self._drawn[start:stop])

    @cached_property
    def shards_of(self) -> dict[str, tuple[int, ...]]:
        """Shards of each mixed tensor, by its name; if scattered, all shards."""
        found, start = {}, 0
        bounds = [self.shard_bounds(shard) for shard in range(self.shards)]
        for tensor in self.tensors:
            if tensor.shared:
                stop = start + tensor.room_bytes
                inside = [low < stop and start < high for low, high in bounds]
                every = self.scattered and self.shards > 1
                found[tensor.name] = tuple(k for k, yes in enumerate(inside) if yes or every)
                start = stop
        return found

    def pieces(self, shard: int = 0) -> tuple[Piece, ...]:
        """Return a shard as runs of one dtype, in the order in which they are sent."""
        if self.scattered and self.shards > 1:
            return tuple(self._picked(self.lines(shard)))
        low, high = self.shard_bounds(shard)
        return tuple(
            Piece(run.dtype, max(low, run.start_bytes), min(high, run.stop_bytes))
            for run in self.runs
            if run.start_bytes < high and low < run.stop_bytes
        )

    @cached_property
    def sizes(self) -> dict[object, int]:
        """Cache of `Form.size_bytes`."""
        return {}

    @cached_property
    def _drawn(self) -> NDArray[Any]:
        # The seed is fixed, so that the order is the same at every peer.
        return stream(0, "swarm", f"shards:{self.shards}").permutation(
            np.arange(self.share_bytes // ALIGNMENT_BYTES, dtype=np.int32)
        )

    def _picked(self, lines: NDArray[Any]) -> Iterator[Piece]:
        for run in self.runs:
            start, stop = run.start_bytes, run.stop_bytes
            ends = np.searchsorted(lines, (start // ALIGNMENT_BYTES, stop // ALIGNMENT_BYTES))
            inside = lines[slice(*ends)]
            if len(inside):
                yield Piece(run.dtype, start, stop, inside)

    @cached_property
    def runs(self) -> tuple[Piece, ...]:
        """Runs of one dtype, which together are the vector."""
        runs, start = [], 0
        shared = (tensor for tensor in self.tensors if tensor.shared)
        for dtype, run in groupby(shared, key=lambda tensor: tensor.dtype):
            stop = start + _size_bytes(run)
            runs.append(Piece(dtype, start, stop))
            start = stop
        return tuple(runs)

    def difference(self, other: "Schema") -> str | None:
        """Describe the first difference from *other*; None if they are equal.

        >>> mine = Schema((TensorSpec("weight", (2, 3), "float32"),))
        >>> mine.difference(Schema((TensorSpec("weight", (2, 4), "float32"),)))
        'tensor 0 is weight (2, 3) float32 here and weight (2, 4) float32 there'
        """
        shared = {each.name: each.shared for each in other.tensors}
        for ours in self.tensors:
            if shared.get(ours.name, ours.shared) != ours.shared:
                here, there = ("averaged", "local") if ours.shared else ("local", "averaged")
                return (
                    f"{ours.name} is {here} here and {there} there: give all peers the same local; "
                    "of a buffer whose numbers are not all finite yet, as before a model's first "
                    "batch, run one batch through the model before Peer(model) at all"
                )
        for index, (ours, theirs) in enumerate(zip_longest(self.tensors, other.tensors)):
            if ours != theirs:
                what = f"tensor {index} is {ours or 'absent'} here and {theirs or 'absent'} there"
                if ours and theirs and replace(ours, order=theirs.order) == theirs:
                    what += "; give all peers' models one memory format"
                return what
        if self.shards != other.shards:
            return f"it is cut into {self.shards} shards here and {other.shards} there"
        if self.scattered != other.scattered:
            here, there = ("scattered" if each.scattered else "whole" for each in (self, other))
            return f"its shards are {here} here and {there} there"
        if bool(self.frozen) != bool(other.frozen):
            here, there = ("compared" if each.frozen else "not compared" for each in (self, other))
            return (
                f"frozen parameters are {here} here and {there} there: give frozen_may_differ to "
                "all peers or to none"
            )
        for mine, its in zip_longest(self.frozen, other.frozen):
            if mine != its:
                return (
                    f"a frozen parameter is {mine or 'absent'} here and {its or 'absent'} "
                    "there: load the same one at all peers, or give frozen_may_differ to all"
                )
        return None


def _size_bytes(tensors: Iterable[TensorSpec]) -> int:
    return sum(tensor.room_bytes for tensor in tensors)
