"""What a model looks like from outside: names, shapes and dtypes, in order."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import zip_longest
from math import prod

__all__ = ["ALIGNMENT_BYTES", "HASH_BYTES", "Schema", "TensorSpec", "itemsize"]

HASH_BYTES = 16

# Matrix kernels may round differently on addresses that are not cache lines, and a one-peer run
# must equal plain SGD in every bit.
ALIGNMENT_BYTES = 64

_ITEMSIZE = {
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


def itemsize(dtype: str) -> int | None:
    """Bytes of one number of *dtype*, or None for a dtype that cannot travel."""
    return _ITEMSIZE.get(dtype)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    shared: bool = True
    """Mixed with every share; False for what only a copy carries, such as integer buffers."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its numbers, without padding."""
        return prod(self.shape) * _ITEMSIZE[self.dtype]

    @property
    def room_bytes(self) -> int:
        """Bytes it takes in a flat vector, padded to whole cache lines."""
        return -(-self.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}" + ("" if self.shared else " (local)")


@dataclass(frozen=True)
class Schema:
    """Every tensor that travels: shared ones first, then those of a copy."""

    tensors: tuple[TensorSpec, ...]

    @cached_property
    def hash(self) -> bytes:
        """Names the schema: peers of one swarm have the same, 16 bytes."""
        text = "\n".join(str(tensor) for tensor in self.tensors)
        return blake2b(text.encode(), digest_size=HASH_BYTES).digest()

    @cached_property
    def share_bytes(self) -> int:
        """Bytes of a share, which holds the shared tensors only."""
        return _room(tensor for tensor in self.tensors if tensor.shared)

    @cached_property
    def copy_bytes(self) -> int:
        """Bytes of a copy, which holds all tensors."""
        return _room(self.tensors)

    def difference(self, other: "Schema") -> str | None:
        """Name the first tensor in which *other* differs, or None where nothing does.

        >>> mine = Schema((TensorSpec("weight", (2, 3), "float32"),))
        >>> mine.difference(Schema((TensorSpec("weight", (2, 4), "float32"),)))
        'tensor 0 is weight (2, 3) float32 here and weight (2, 4) float32 there'
        """
        for index, (ours, theirs) in enumerate(zip_longest(self.tensors, other.tensors)):
            if ours != theirs:
                return f"tensor {index} is {ours or 'absent'} here and {theirs or 'absent'} there"
        return None


def _room(tensors: Iterable[TensorSpec]) -> int:
    return sum(tensor.room_bytes for tensor in tensors)
