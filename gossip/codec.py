"""Messages as bytes: a checked msgpack header, and at most one raw frame beside it.

The first part of a message is ``magic, version, crc32, header``; the second, where there is one,
is the frame. The header is a flat array whose every field is checked for type and range against
the tables below, and both parts are under a checksum (the frame's is XXH3, which is as fast as
memory), so that no damaged message is ever taken for another. Extension types, maps and trailing
bytes are refused.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

import msgpack
import xxhash

from .clock import ROWS_TOLD_MAX
from .errors import ConfigError, DecodeError, IncompatiblePeer, LocalProtocolError
from .messages import (
    HEARTBEAT_MAX,
    STEPS_MAX,
    Ack,
    Ask,
    Body,
    Chunk,
    ClockRow,
    Describe,
    End,
    Envelope,
    Grant,
    Hello,
    Leave,
    Member,
    Offer,
    Pending,
    Phase,
    Push,
    Query,
    Refer,
)
from .schema import HASH_BYTES, Schema, TensorSpec, itemsize
from .wire import Form, parse_wire

__all__ = [
    "FRAME_BYTES_MAX",
    "HEADER_BYTES_MAX",
    "VERSION",
    "Buffer",
    "checksum",
    "decode",
    "decode_header",
    "encode",
    "encoded_bytes",
]

Buffer = bytes | bytearray | memoryview

VERSION = 3

HEADER_BYTES_MAX = 1 << 20
"""Largest first part, in bytes: a roster of some 10,000 peers, or a schema of as many tensors."""

FRAME_BYTES_MAX = 4 << 20
"""Largest second part, in bytes."""

SHARDS_MAX = 1 << 14
"""Most pieces that a vector is cut into."""

REFERRED_MAX = 64
"""Most donors that one message names."""

SEGMENT_LENGTH_MAX = 128
"""Longest name of a place in shared memory."""

_PREFIX: Final = struct.Struct("<3sBI")
_MAGIC: Final = b"RMR"
_U64: Final = 2**64 - 1
_U63: Final = 2**63 - 1
_U32: Final = 2**32 - 1

Check = Callable[[Any], Any]
"""Turns one field of a header into its value, or raises _Bad."""


class _Bad(Exception):
    """A field is not what it must be."""


def _integer(low: int, high: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _Bad(f"an integer in [{low}, {high}]")
        return value

    return check


def _text(length_min: int, length_max: int) -> Check:
    def check(value: Any) -> str:
        if type(value) is not str or not length_min <= len(value) <= length_max:
            raise _Bad(f"text of {length_min} to {length_max} characters")
        if not value.isprintable():
            raise _Bad("printable text")
        return value

    return check


def _octets(*lengths: int) -> Check:
    def check(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise _Bad(f"bytes of length {lengths}")
        return value

    return check


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _Bad("true or false")
    return value


def _each(check: Check, count_max: int) -> Check:
    def check_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) > count_max:
            raise _Bad(f"an array of at most {count_max}")
        return tuple(check(item) for item in value)

    return check_all


def _fields(value: Any, table: dict[str, Check]) -> dict[str, Any]:
    if type(value) is not tuple or len(value) != len(table):
        raise _Bad(f"an array of {len(table)}")
    found = {}
    for (name, check), item in zip(table.items(), value, strict=True):
        try:
            found[name] = check(item)
        except _Bad as bad:
            raise _Bad(f"{name} must be {bad}") from None
    return found


_COUNT = _integer(0, _U63)
_SEQ = _integer(1, _U63)
_PEER = _text(1, 64)

_MEMBER: dict[str, Check] = {
    "id": _PEER,
    "incarnation": _integer(1, _U63),
    "heartbeat": _integer(0, HEARTBEAT_MAX),
    "phase": lambda value: Phase(_integer(0, max(Phase))(value)),
    "step": _integer(0, STEPS_MAX),
    "addresses": _each(_text(1, 256), 16),
    "anchored": _flag,
    "host": _octets(0, HASH_BYTES),
}


def _member(value: Any) -> Member:
    return Member(**_fields(value, _MEMBER))


def _clock_row(value: Any) -> ClockRow:
    peer, steps = _fields(value, {"peer": _PEER, "steps": _integer(0, STEPS_MAX)}).values()
    return peer, steps


def _dtype(value: Any) -> str:
    if type(value) is not str or itemsize(value) is None:
        raise _Bad("a dtype that can travel")
    return value


_TENSOR: dict[str, Check] = {
    "name": _text(1, 1024),
    "shape": _each(_integer(0, 2**48), 32),
    "dtype": _dtype,
    "shared": _flag,
}


_SCHEMA: dict[str, Check] = {
    "tensors": _each(lambda item: TensorSpec(**_fields(item, _TENSOR)), 1 << 16),
    "shards": _integer(1, SHARDS_MAX),
}


def _schema(value: Any) -> Schema:
    try:
        return Schema(**_fields(value, _SCHEMA))
    except ConfigError as error:
        raise _Bad(f"a vector that can be cut so: {error}") from None


def _wire(value: Any) -> str:
    text: str = _text(1, 32)(value)
    try:
        parse_wire(text)
    except ConfigError:
        raise _Bad("a format that can travel") from None
    return text


_FORM: dict[str, Check] = {"wire": _wire, "copy": _flag, "anchor": _flag}


def _form(value: Any) -> Form:
    return Form(**_fields(value, _FORM))


_OFFER: dict[str, Check] = {
    "seq": _SEQ,
    "escrow": _COUNT,
    "size_bytes": _COUNT,
    "frame_bytes": _integer(0, FRAME_BYTES_MAX),
    "eager_bytes": _COUNT,
    "form": _form,
    "segment": _text(0, SEGMENT_LENGTH_MAX),
    "epoch": _COUNT,
    "round": _COUNT,
    "note": _COUNT,
    "step": _COUNT,
}

# The number of a message on the wire is its place in this table: append, never insert.
_BODIES: tuple[tuple[type[Body], dict[str, Check]], ...] = (
    (
        Hello,
        {
            "members": _each(_member, 1 << 14),
            "clock": _each(_clock_row, ROWS_TOLD_MAX),
            "rooted": _flag,
            "reply": _flag,
        },
    ),
    (Describe, {"schema": _schema}),
    (Ask, {"anchor": _flag}),
    (Push, _OFFER),
    (Offer, _OFFER),
    (Grant, {"seq": _SEQ, "credit_bytes": _COUNT}),
    (Chunk, {"seq": _SEQ, "index": _integer(0, _U32), "offset_bytes": _COUNT}),
    (End, {"seq": _SEQ}),
    (Ack, {"seq": _SEQ, "accepted": _COUNT, "credit_bytes": _COUNT}),
    (Query, {"seq": _SEQ}),
    (Pending, {"seq": _SEQ}),
    (Leave, {"gone": _flag}),
    (Refer, {"donors": _each(_member, REFERRED_MAX)}),
)
# One for all: making a packer costs as much as packing with it.
_PACKER = msgpack.Packer()
_KINDS = {body: kind for kind, (body, _) in enumerate(_BODIES)}

_ENVELOPE: dict[str, Check] = {
    "swarm": _octets(0, HASH_BYTES),
    "schema": _octets(HASH_BYTES),
    "source": _PEER,
    "source_incarnation": _integer(1, _U63),
    "destination": _text(0, 64),
    "destination_incarnation": _COUNT,
    "shard": _integer(0, SHARDS_MAX - 1),
    "frame_bytes": _integer(0, FRAME_BYTES_MAX),
    "frame_check": _integer(0, _U64),
    "kind": _integer(0, len(_BODIES) - 1),
    "body": lambda value: value,
}


def encode(envelope: Envelope, frame: Buffer = b"") -> list[Buffer]:
    """Write a message.

    Args:
        envelope: What to say.
        frame: The raw frame beside it, ``envelope.frame_bytes`` long; it is not copied.

    Returns:
        The parts of the message: the header, and the frame where there is one.

    Raises:
        LocalProtocolError: The frame is not as long as the envelope says.
    """
    if len(frame) != envelope.frame_bytes:
        raise LocalProtocolError(f"a frame of {len(frame)} bytes, not {envelope.frame_bytes}")
    kind = _KINDS[type(envelope.body)]
    body = [_plain(getattr(envelope.body, name)) for name in _BODIES[kind][1]]
    header = msgpack.packb(_fields_of(envelope, checksum(frame), kind, body))
    first = _PREFIX.pack(_MAGIC, VERSION, crc32(header)) + header
    return [first, frame] if envelope.frame_bytes else [first]


def encoded_bytes(envelope: Envelope) -> int:
    """How long a message is on the wire, frame included, without making its bytes.

    The checksum of a frame is taken for a number of 64 bits: of four billion frames one has a
    smaller one, which msgpack writes in 4 bytes less.

    >>> from rumor.gossip.messages import Ack
    >>> ack = Envelope(swarm=b"", schema=bytes(16), source="a", source_incarnation=1,
    ...                destination="b", destination_incarnation=1, body=Ack(7, 2**40))
    >>> encoded_bytes(ack) == len(encode(ack)[0])
    True
    """
    body, check = envelope.body, _U64 if envelope.frame_bytes else 0
    kind = _KINDS[type(body)]
    if type(body) is Ack:
        values: list[Any] = [body.seq, body.accepted, body.credit_bytes]
    elif type(body) is Push or type(body) is Offer:
        form = [body.form.wire, body.form.copy, body.form.anchor]
        values = [body.seq, body.escrow, body.size_bytes, body.frame_bytes, body.eager_bytes]
        values += [form, body.segment, body.epoch, body.round, body.note, body.step]
    else:
        values = [_plain(getattr(body, name)) for name in _BODIES[kind][1]]
    header = _PACKER.pack(_fields_of(envelope, check, kind, values))
    return _PREFIX.size + len(header) + envelope.frame_bytes


def _fields_of(envelope: Envelope, frame_check: int, kind: int, body: list[Any]) -> list[Any]:
    return [
        envelope.swarm,
        envelope.schema,
        envelope.source,
        envelope.source_incarnation,
        envelope.destination,
        envelope.destination_incarnation,
        envelope.shard,
        envelope.frame_bytes,
        frame_check,
        kind,
        body,
    ]


def decode(parts: Sequence[Buffer]) -> Envelope:
    """Read a message; its frame, where it has one, stays where it is: ``parts[1]``.

    Raises:
        DecodeError: This is not a message, or a damaged or an oversized one.
        IncompatiblePeer: It is one of another version of the protocol.
    """
    if not 1 <= len(parts) <= 2:
        raise DecodeError(f"a message of {len(parts)} parts")
    envelope, check = decode_header(parts[0])
    frame = parts[1] if len(parts) == 2 else b""
    if len(frame) != envelope.frame_bytes or len(parts) != 1 + bool(len(frame)):
        raise DecodeError("the frame is not as long as the header says", envelope.source)
    if checksum(frame) != check:
        raise DecodeError("the frame was damaged", envelope.source)
    return envelope


def checksum(frame: Buffer) -> int:
    """The checksum under which a frame travels: XXH3, 64 bits; 0 for no frame."""
    return xxhash.xxh3_64_intdigest(frame) if len(frame) else 0


def decode_header(first: Buffer) -> tuple[Envelope, int]:
    """Read the first part of a message, whose frame is not at hand.

    Returns:
        What it says, and the `checksum` that its frame must have.

    Raises:
        DecodeError: This is not the first part of a message, or it is damaged.
        IncompatiblePeer: It is one of another version of the protocol.
    """
    try:
        values = _fields(_unpack(first), _ENVELOPE)
        body_type, table = _BODIES[values.pop("kind")]
        body = body_type(**_fields(values.pop("body"), table))
    except _Bad as bad:
        raise DecodeError(str(bad)) from None
    check: int = values.pop("frame_check")
    return Envelope(body=body, **values), check


def _unpack(first: Buffer) -> Any:
    if not _PREFIX.size < len(first) <= HEADER_BYTES_MAX:
        raise DecodeError(f"a header of {len(first)} bytes")
    magic, version, checksum = _PREFIX.unpack_from(first)
    if magic != _MAGIC:
        raise DecodeError("not a message of this protocol")
    if version != VERSION:
        raise IncompatiblePeer(f"it speaks version {version}, and this peer version {VERSION}")
    header = memoryview(first)[_PREFIX.size :]
    if crc32(header) != checksum:
        raise DecodeError("the header was damaged")
    try:
        _require_all_there(header)
        return msgpack.unpackb(
            header,
            use_list=False,
            max_str_len=1024,
            max_bin_len=HASH_BYTES,
            max_array_len=1 << 16,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise DecodeError(f"the header is not msgpack: {error}") from None


def _require_all_there(header: Buffer) -> None:
    """Walk over a header without making anything of it.

    An array is made at the length it claims. A thousand of them, one inside the other, would take
    half a gigabyte before it shows that nothing is in them.
    """
    walker = msgpack.Unpacker(read_size=len(header), max_buffer_size=HEADER_BYTES_MAX)
    walker.feed(header)
    walker.skip()


def _plain(value: Any) -> Any:
    """A field as msgpack can write it."""
    if isinstance(value, Member):
        return [_plain(getattr(value, name)) for name in _MEMBER]
    if isinstance(value, Schema):
        tensors = [[getattr(tensor, name) for name in _TENSOR] for tensor in value.tensors]
        return [tensors, value.shards]
    if isinstance(value, Form):
        return [value.wire, value.copy, value.anchor]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
