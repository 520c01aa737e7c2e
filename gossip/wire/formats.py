"""The number formats of a share: their sizes, and what else a share carries.

The vector reads and writes the values, see `rumor.train.tensors.wires`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, Protocol

from ..errors import ConfigError
from ..specs.parameter import Parameter
from ..specs.spec import make
from .fields import OPTIONAL, Check, FieldError, integer, text
from .schema import ALIGNMENT_BYTES, ITEMSIZES, Schema

__all__ = [
    *("CHUNK", "INT8_BLOCK", "NATIVE", "REGISTERS_MAX", "WIRES"),
    *("BFloat16", "Float16", "Float32", "Form", "Fraction", "Int8", "TopK", "TopK2Bit", "Wire"),
    "parse_wire",
]

CHUNK: Final = 4096
"""Numbers in a chunk, of which ``topk2bit`` takes the largest; an index takes 12 bits."""

INT8_BLOCK: Final = 1024
"""Numbers that share a scale."""

NATIVE: Final = "float32"
"""The format that leaves a model's numbers as they are."""

REGISTERS_MAX: Final = 16

# Remote peers may ask for any fraction, so the cache is bounded.
_SIZES_MAX: Final = 4096

# Narrower dtypes are sent as they are in every format.
_CONVERTED: Final = ("float32", "float64")

Fraction = Annotated[
    float,
    Parameter("part of all numbers that one share carries.", above=0, high=1, is_bare=True),
]


class Wire(Protocol):
    """A format for a share's float32 and float64 numbers; other dtypes are sent as they are."""

    name: str
    is_native: bool = False
    """True if numbers arrive unchanged."""
    coder: str = ""
    """The module of `rumor.train.tensors.wires` that writes and reads it."""
    fraction: float = 1.0
    is_dense: bool = True
    """True if a share carries every number."""
    is_for_differences: bool = False
    """True if it suits only bare differences (`Form.bare`) under rules that make up for losses."""
    is_random: bool = False
    needs_anchor: bool = False
    """True if a receiver must know the anchor to read it."""

    def parts(self, n_numbers: int) -> tuple[tuple[str, int], ...]:
        """Return the dtype and length of each array that encodes *n_numbers*, in wire order."""
        return ((self.name, n_numbers),)

    def kept(self, n_numbers: int) -> int:
        """Return how many of *n_numbers* are sent, at least one."""
        return n_numbers

    def converts(self, dtype: str) -> bool:
        """True if the format converts numbers of *dtype*."""
        return not self.is_native and dtype in _CONVERTED

    def room_bytes(self, dtype: str, n_numbers: int) -> int:
        """Return the bytes of *n_numbers* on the wire, each array padded to whole cache lines."""
        if not self.converts(dtype):
            return _padded(n_numbers * ITEMSIZES[dtype])
        return sum(_padded(ITEMSIZES[kind] * length) for kind, length in self.parts(n_numbers))

    def __str__(self) -> str:
        return self.name if self.is_dense else f"{self.name}:{self.fraction:g}"


class Float32(Wire):
    """As the model holds them."""

    name, is_native = NATIVE, True


class BFloat16(Wire):
    """The difference from the anchor in half the bytes."""

    name, coder, needs_anchor = "bfloat16", "halves", True


class Float16(Wire):
    """The difference from the anchor in half the bytes, up to 65,504."""

    name, coder, needs_anchor = "float16", "halves", True


class Int8(Wire):
    """The difference from the anchor in a quarter of the bytes, rounded at random."""

    name, coder, needs_anchor, is_random = "int8", "int8", True, True

    def parts(self, n_numbers: int) -> tuple[tuple[str, int], ...]:
        # Codes, then a scale for each block.
        return ("int8", n_numbers), ("float32", -(-n_numbers // INT8_BLOCK))


class TopK(Wire):
    """The numbers that have moved most since they were last sent."""

    name, coder, is_dense = "topk", "topk", False

    def __init__(self, fraction: Fraction) -> None:
        self.fraction = fraction

    def kept(self, n_numbers: int) -> int:
        return min(n_numbers, max(1, ceil(self.fraction * n_numbers)))

    def parts(self, n_numbers: int) -> tuple[tuple[str, int], ...]:
        # Indices, then the numbers there.
        return ("int32", self.kept(n_numbers)), ("float32", self.kept(n_numbers))


class TopK2Bit(TopK):
    """The largest in 2 bits each, all others 0; for choco and sparseloco.

    In each `CHUNK`, the largest numbers become a sign and one of two sizes. The format is for
    differences, where a rule keeps what was left out, see ``Form.bare``.
    """

    name, coder, is_for_differences = "topk2bit", "topk2bit", True

    def kept(self, n_numbers: int) -> int:
        whole, rest = divmod(n_numbers, CHUNK)
        return whole * super().kept(CHUNK) + super().kept(rest)

    def parts(self, n_numbers: int) -> tuple[tuple[str, int], ...]:
        # Indices within each chunk, two of 12 bits in three bytes; codes, four in a byte; two sizes
        # for each chunk.
        kept = self.kept(n_numbers)
        places, codes, chunks = -(-kept // 2), -(-kept // 4), -(-n_numbers // CHUNK)
        return ("uint8", 3 * places), ("uint8", codes), ("float32", 2 * chunks)


WIRES: Final[Mapping[str, Callable[..., Wire]]] = MappingProxyType(
    {kind.name: kind for kind in (Float32, BFloat16, Float16, Int8, TopK, TopK2Bit)}
)
"""All formats, by the name that users type."""


@lru_cache(maxsize=64)
def parse_wire(text: str) -> Wire:
    """Parse a format as users type it.

    Raises:
        ConfigError: The format does not exist, or its fraction is out of range.

    >>> parse_wire("topk:0.01").fraction
    0.01
    """
    return make("wire", text, WIRES)


_TYPED: Final = text(1, 32)


def _wire(value: Any) -> str:
    name: str = _TYPED.read(value)
    try:
        parse_wire(name)
    except ConfigError:
        raise FieldError("a format that can travel") from None
    return name


class Form(NamedTuple):
    """The contents of one share."""

    wire: Annotated[str, Check(_wire)] = NATIVE
    copy: bool = False
    """True if a newcomer can adopt it whole: the bytes of local buffers follow those of shard 0."""
    anchor: bool = False
    """True if the same part of the anchor follows, unconverted."""
    registers: Annotated[int, integer(1, REGISTERS_MAX), OPTIONAL] = 1
    """Number of registers it carries; only the first one is a difference from the anchor."""
    bare: Annotated[bool, OPTIONAL] = False
    """True for vectors small compared with a model: written without the anchor, and under ``topk``
    the largest, all others being 0."""

    def needs_anchor(self) -> bool:
        return not self.bare and parse_wire(self.wire).needs_anchor

    def size_bytes(self, schema: Schema, shard: int) -> int:
        """Return the bytes of such a share of one shard."""
        # Not lru_cache: hashing a schema visits all its tensors.
        size = schema.sizes.get((self, shard))
        if size is not None:
            return size
        wire, size = parse_wire(self.wire), 0
        for piece in schema.pieces(shard):
            size += self.registers * wire.room_bytes(piece.dtype, piece.n_numbers)
            if self.anchor:
                size += piece.size_bytes
        if self.copy and shard == 0:
            size += schema.copy_bytes - schema.share_bytes
        if len(schema.sizes) >= _SIZES_MAX:
            schema.sizes.clear()
        schema.sizes[self, shard] = size
        return size


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
