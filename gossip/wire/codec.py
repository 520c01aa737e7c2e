"""Messages as bytes: a checked msgpack header, and at most one raw frame.

The first part of a message is ``magic, version, crc32, header``; the optional second part is the
frame. Both have a checksum, so that a damaged message is never mistaken for another. Extension
types, maps and trailing bytes are refused.
"""

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final
from zlib import crc32

import msgpack
import xxhash

from ..errors import DecodeError, IncompatiblePeer, LocalProtocolError
from .fields import U64, WEIGHT_BYTES_MAX, Check, FieldError, Fields, checks_of, integer, named
from .messages import BODIES, FRAME_BYTES_MAX, Envelope

__all__ = [
    "FRAME_BYTES_MAX",
    "HEADER_BYTES_MAX",
    "VERSION",
    "Buffer",
    "Checksum",
    "checksum",
    "decode",
    "decode_header",
    "encode",
    "encoded_bytes",
    "is_version_notice",
    "version_notice",
]

Buffer = bytes | bytearray | memoryview

VERSION = 6

HEADER_BYTES_MAX = 1 << 20
"""Largest first part, in bytes: room for about 10,000 members, or a schema of as many tensors."""

_PREFIX: Final = struct.Struct("<3sBI")
_MAGIC: Final = b"RMR"
# Shared, since creating a packer costs as much as packing with it.
_PACKER = msgpack.Packer()
_FIELDS: Final = tuple(map(Fields, BODIES))
_KINDS: Final = {body: kind for kind, body in enumerate(BODIES)}

_ENVELOPE: Final = checks_of(Envelope, "body")
_said: Final = attrgetter(*_ENVELOPE)
_HEADER: Final = {
    **_ENVELOPE,
    "frame_check": integer(0, U64),
    "kind": integer(0, len(BODIES) - 1),
    "body": Check(lambda value: value),
}


def encode(envelope: Envelope, frame: Buffer = b"") -> list[Buffer]:
    """Encode a message as its header and, if it has one, its frame, which is not copied."""
    if len(frame) != envelope.frame_bytes:
        raise LocalProtocolError(f"a frame of {len(frame)} bytes, not {envelope.frame_bytes}")
    header = msgpack.packb(_fields_of(envelope, checksum(frame)))
    first = _PREFIX.pack(_MAGIC, VERSION, crc32(header)) + header
    return [first, frame] if envelope.frame_bytes else [first]


def encoded_bytes(envelope: Envelope) -> int:
    """Return the length of a message in bytes, frame included, without encoding it.

    >>> from rumor.gossip.weight import ONE
    >>> from rumor.gossip.wire.messages import Ack
    >>> ack = Envelope(swarm=b"", schema=bytes(16), source="a", source_incarnation=1,
    ...                destination="b", destination_incarnation=1, body=Ack(7, ONE))
    >>> encoded_bytes(ack) == len(encode(ack)[0])
    True
    """
    # A frame's checksum is assumed to need 64 bits: one in four billion is written in 4 bytes less.
    check = U64 if envelope.frame_bytes else 0
    return _PREFIX.size + len(_PACKER.pack(_fields_of(envelope, check))) + envelope.frame_bytes


def _fields_of(envelope: Envelope, frame_check: int) -> tuple[Any, ...]:
    kind = _KINDS[type(envelope.body)]
    return (*_said(envelope), frame_check, kind, _FIELDS[kind].write(envelope.body))


def version_notice() -> list[Buffer]:
    """Return the answer to a message of another version, which is never answered itself."""
    # A bare prefix, from which any version can read the version in use.
    return [_PREFIX.pack(_MAGIC, VERSION, 0)]


def is_version_notice(first: Buffer) -> bool:
    """True if the first part of a message is a bare prefix."""
    return len(first) == _PREFIX.size


def decode(parts: Sequence[Buffer]) -> Envelope:
    """Decode a message; its frame, if any, stays in ``parts[1]``.

    Raises:
        DecodeError: This is not a message, or it is damaged or oversized.
        IncompatiblePeer: It has another protocol version.
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


Checksum = xxhash.xxh3_64
"""Computes the same as `checksum`, piece by piece: ``update`` and ``intdigest``."""


def checksum(frame: Buffer) -> int:
    """Return a frame's checksum: XXH3, 64 bits; 0 without a frame."""
    return xxhash.xxh3_64_intdigest(frame) if len(frame) else 0


def decode_header(first: Buffer) -> tuple[Envelope, int]:
    """Decode the first part of a message, and the `checksum` that its frame must have.

    Raises:
        DecodeError: This is not the first part of a message, or it is damaged.
        IncompatiblePeer: It has another protocol version.
    """
    try:
        values = named(_unpack(first), _HEADER)
        body = _FIELDS[values.pop("kind")].read(values.pop("body"))
    except FieldError as bad:
        raise DecodeError(str(bad)) from None
    check: int = values.pop("frame_check")
    return Envelope(body=body, **values), check


def _unpack(first: Buffer) -> Any:
    if not _PREFIX.size <= len(first) <= HEADER_BYTES_MAX:
        raise DecodeError(f"a header of {len(first)} bytes")
    magic, version, checksum = _PREFIX.unpack_from(first)
    if magic != _MAGIC:
        raise DecodeError("not a message of this protocol")
    if version != VERSION:
        raise IncompatiblePeer(f"it speaks version {version}, and this peer version {VERSION}")
    if is_version_notice(first):
        raise DecodeError("a header of no bytes")
    header = memoryview(first)[_PREFIX.size :]
    if crc32(header) != checksum:
        raise DecodeError("the header was damaged")
    try:
        # Without building values: msgpack allocates an array at the length it claims, and a
        # thousand nested ones would take half a gigabyte before they turn out to be empty.
        walker = msgpack.Unpacker(read_size=len(header), max_buffer_size=HEADER_BYTES_MAX)
        walker.feed(header)
        walker.skip()
        return msgpack.unpackb(
            header,
            use_list=False,
            max_str_len=1024,
            max_bin_len=WEIGHT_BYTES_MAX,
            max_array_len=1 << 16,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise DecodeError(f"the header is not msgpack: {error}") from None
