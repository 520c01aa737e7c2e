"""In what form numbers travel: how many bytes they take, and what else goes along.

Only sizes are known here, so that every peer can tell from its own schema how long a share must
be. Values are written and read by the vector.
"""

from functools import lru_cache
from math import ceil
from typing import Annotated, Any, Final, NamedTuple

from ..errors import ConfigError
from ..types import frozen
from .fields import OPTIONAL, Check, FieldError, integer, text
from .schema import ALIGNMENT_BYTES, Schema

__all__ = [
    *("CHUNK", "INT8_BLOCK", "NATIVE", "REGISTERS_MAX", "WIRES"),
    *("Form", "Wire", "parse_wire"),
]

WIRES: Final = ("float32", "bfloat16", "float16", "int8", "topk", "topk2bit")
"""Names of the formats; the last two take a fraction."""

CHUNK: Final = 4096
"""Numbers of which ``topk2bit`` takes the largest, so that a place takes 12 bits."""

INT8_BLOCK: Final = 1024
"""Numbers that share a scale."""

NATIVE: Final = "float32"
"""The format in which a share holds the numbers as the model does."""

REGISTERS_MAX: Final = 16
"""Most registers that one share carries."""

# Strangers may ask for any fraction.
_SIZES_MAX: Final = 4096

# What is no wider than this already travels as it is in any format.
_CONVERTED: Final = ("float32", "float64")


@frozen
class Wire:
    """A format for the numbers of a share. Models of other dtypes than float32 and float64 travel
    as they are in any of them.

    ``float32``: as the model holds them. ``bfloat16``, ``float16``: the difference from the
    anchor. ``int8``: the same, with a scale for each block of `INT8_BLOCK` numbers, rounded up or
    down by chance so that the mean is right. ``topk``: only so many numbers, those that have moved
    most since they were last sent; the others wait for their turn. ``topk2bit``: the largest of
    each `CHUNK`, each rounded to one of two sizes with a sign; all others are 0. That is for
    differences, of which a rule keeps what was left out, see ``Form.bare``.
    """

    name: str
    fraction: float = 1.0
    """The part of all numbers that one share carries, in (0, 1]."""

    @property
    def is_native(self) -> bool:
        """Whether numbers arrive exactly as they were."""
        return self.name == NATIVE

    @property
    def is_dense(self) -> bool:
        """Whether every number is there."""
        return self.name not in ("topk", "topk2bit")

    @property
    def is_for_differences(self) -> bool:
        """Whether it can only carry what is written by itself, and made up for later."""
        return self.name == "topk2bit"

    @property
    def needs_anchor(self) -> bool:
        """Whether a receiver must know the anchor to read it."""
        return self.name in ("bfloat16", "float16", "int8")

    def converts(self, dtype: str) -> bool:
        """Whether numbers of *dtype* do not travel as they are."""
        return not self.is_native and dtype in _CONVERTED

    def kept(self, n_numbers: int) -> int:
        """How many of *n_numbers* travel, at least one."""
        if self.is_dense:
            return n_numbers
        if self.name == "topk2bit":
            whole, rest = divmod(n_numbers, CHUNK)
            return whole * _part_of(self.fraction, CHUNK) + _part_of(self.fraction, rest)
        return _part_of(self.fraction, n_numbers)

    def room_bytes(self, dtype: str, n_numbers: int, itemsize: int) -> int:
        """Bytes of so many numbers on the wire, padded to whole cache lines.

        ``int8`` puts the codes first, then a float32 scale for each block; ``topk`` the indices,
        int32, then the values, float32; ``topk2bit`` the places in each chunk, 12 bits, then the
        codes, 2 bits, then two float32 for each chunk. Each of these is padded by itself.
        """
        if not self.converts(dtype):
            return _padded(n_numbers * itemsize)
        if self.name == "int8":
            return _padded(n_numbers) + _padded(4 * -(-n_numbers // INT8_BLOCK))
        if self.name == "topk":
            return 2 * _padded(4 * self.kept(n_numbers))
        if self.name == "topk2bit":
            kept = self.kept(n_numbers)
            levels = 8 * -(-n_numbers // CHUNK)
            return _padded(3 * -(-kept // 2)) + _padded(-(-kept // 4)) + _padded(levels)
        return _padded(2 * n_numbers)

    def __str__(self) -> str:
        return self.name if self.is_dense else f"{self.name}:{self.fraction:g}"


@lru_cache(maxsize=64)
def parse_wire(text: str) -> Wire:
    """Read a format as people type it.

    Raises:
        ConfigError: There is no such format, or its fraction is out of range.

    >>> parse_wire("topk:0.01").fraction
    0.01
    """
    name, colon, rest = text.partition(":")
    if name not in WIRES or bool(colon) != name.startswith("topk"):
        plain = ", ".join(WIRES[:-2])
        raise ConfigError(
            f"wire is {text!r}: it must be {plain}, topk:FRACTION or topk2bit:FRACTION"
        )
    if not colon:
        return Wire(name)
    try:
        fraction = float(rest)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise ConfigError(f"wire is {text!r}: the fraction of {name} must be in (0, 1]")
    return Wire(name, fraction)


def _wire(value: Any) -> str:
    name: str = text(1, 32).read(value)
    try:
        parse_wire(name)
    except ConfigError:
        raise FieldError("a format that can travel") from None
    return name


class Form(NamedTuple):
    """What one share consists of."""

    wire: Annotated[str, Check(_wire)] = NATIVE
    """The format, as people type it."""
    copy: bool = False
    """Whether a newcomer shall be able to take it over whole: the bytes of local buffers follow
    those of shard 0."""
    anchor: bool = False
    """Whether the same part of the anchor follows, as it is."""
    registers: Annotated[int, integer(1, REGISTERS_MAX), OPTIONAL] = 1
    """How many registers it carries, one after another. Formats that need the anchor write the
    first as its difference from that, and those behind it, which are small beside a model, as
    they are."""
    bare: Annotated[bool, OPTIONAL] = False
    """Whether the numbers are written by themselves: without the anchor where they are rounded, and
    under ``topk`` those that are largest, all others being 0. For what is small beside a model."""

    def needs_anchor(self) -> bool:
        """Whether a receiver must know the anchor to read it."""
        return not self.bare and parse_wire(self.wire).needs_anchor

    def size_bytes(self, schema: Schema, shard: int) -> int:
        """Bytes of such a share of one shard."""
        # Not lru_cache: a schema's hash takes all its tensors.
        found = schema.sizes.get((self, shard))
        if found is None:
            if len(schema.sizes) >= _SIZES_MAX:
                schema.sizes.clear()
            found = schema.sizes[self, shard] = _size_bytes(self, schema, shard)
        return found


def _size_bytes(form: Form, schema: Schema, shard: int) -> int:
    wire, pieces = parse_wire(form.wire), schema.pieces(shard)
    size = 0
    for piece in pieces:
        size += form.registers * wire.room_bytes(piece.dtype, piece.n_numbers, piece.itemsize)
    if form.copy and shard == 0:
        size += schema.copy_bytes - schema.share_bytes
    if form.anchor:
        size += sum(piece.size_bytes for piece in pieces)
    return size


def _part_of(fraction: float, n_numbers: int) -> int:
    return min(n_numbers, max(1, ceil(fraction * n_numbers)))


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
