"""The records of a journal: calls of a protocol, and marks of what came of them."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ...gossip.effects.effects import Combine, Effect, Exchange, Mix, Reclaim, Snapshot
from ...gossip.effects.events import Event
from ...gossip.errors import RemoteProtocolError
from ...gossip.protocol.protocol import Protocol
from ...gossip.types import ShareId, SharePart, SnapshotId
from ...gossip.weight import decode_weight, encode_weight
from ...gossip.wire.codec import Buffer, decode_header
from ...gossip.wire.formats import NATIVE, Form

__all__ = [
    "Began",
    "Call",
    "Closed",
    "Decided",
    "Exchanged",
    "Fingerprint",
    "Mark",
    "Trained",
    "batch_checksum",
    "in_words",
    "pack",
    "unpack",
]


_METHODS: Final = frozenset(
    {
        *("join", "step", "trained_shard", "wake", "filled", "finish", "leave", "receive"),
        *("inspected", "attached", "measured", "sketched", "unsent", "read"),
    }
)
"""Methods of `Protocol` that change it."""


class Call(NamedTuple):
    """A call of one of a protocol's methods."""

    method: str
    """One of `Protocol`'s that take ``now``."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """By name, without ``now``."""
    header: Buffer = b""
    """First part of the message in ``envelope``, as it came over the wire: it has the checksum of
    the frame next to it."""

    def make(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Call the method at *now*, seconds.

        Raises:
            RemoteProtocolError: A message breaks the protocol.
        """
        effects: list[Effect | Event] = getattr(protocol, self.method)(now=now, **self.arguments)
        return effects


class Began(NamedTuple):
    """An optimizer step began."""

    batch: int
    """Of its batch, see `batch_checksum`."""


class Trained(NamedTuple):
    """The optimizer step was taken."""

    loss: float
    """On the batch, before the step."""


class Decided(NamedTuple):
    """What the protocol made of the input before it."""

    weight: int
    """Held then."""
    words: str
    """What it did to the vector, see `in_words`."""


class Fingerprint(NamedTuple):
    """What the model was after what the records before it say."""

    tensors: tuple[int, ...]
    """CRC-32 of each tensor that travels, in the order of the schema."""


class Closed(NamedTuple):
    """The peer closed; nothing follows."""


class Exchanged(NamedTuple):
    """A register is about to be exchanged with a segment that other peers share."""

    token: bytes
    """Of the segment, 16 bytes, drawn when it was made."""
    number: int
    """Which exchange of all peers it is, from 1 on; the first makes the segment what it is."""
    whole: bool
    """Whether the one before was carried out to its end: not if its peer was killed meanwhile."""


Mark = Began | Trained | Decided | Fingerprint | Closed | Exchanged


def batch_checksum(batch: NDArray[np.int64]) -> int:
    """CRC-32 of the indices of a batch, int64, axes ``(batch_size,)``."""
    return crc32(np.ascontiguousarray(batch, "<i8").data)


def in_words(effects: Sequence[Effect | Event]) -> str:
    """What *effects* do to the vector, in words.

    >>> in_words([Snapshot(1, "x"), Mix(ShareId("ada", 7, 3), 0.5)])
    'snapshot x; mix ada#3 0.5'
    """
    return "; ".join(filter(None, map(_words, effects)))


def _words(effect: Effect | Event) -> str:
    match effect:
        case Snapshot(_, register, form, shard):
            what = "copy" if form.copy else "snapshot"
            cut = f" of shard {shard}" if shard else ""
            named = register if isinstance(register, str) else " and ".join(register)
            return f"{what} {named}{cut}{_as(form)}"
        case Mix(share, fraction, form):
            return f"mix {_named(share)} {fraction!r}{_as(form)}"
        case Reclaim(snapshot, fraction):
            return f"reclaim {snapshot} {fraction!r}"
        case Combine(register, terms):
            added = (f"{c!r} {_named(term)}" for c, term in terms)
            return f"combine {register}: {', '.join(added)}"
        case Exchange(register, segment, taken, given):
            return f"exchange {register} with {segment} {taken!r} {given!r}"
        case _:
            return ""


def _named(term: str | ShareId | SharePart | SnapshotId) -> str:
    if isinstance(term, str):
        return term
    if isinstance(term, int):
        return f"snapshot {term}"
    if isinstance(term, SharePart):
        return f"part {term.part} of {_named(term.share)}"
    return f"{term.sender}#{term.seq}" + (f"/{term.shard}" if term.shard else "")


def _as(form: Form) -> str:
    return f" as {form.wire}" * (form.wire != NATIVE) + " by itself" * form.bare


def pack(record: Call | Mark, now: float | None = None) -> tuple[int, bytes]:
    """Write a record.

    Args:
        record: What to write.
        now: When a call was made, seconds; None for a mark.

    Returns:
        Its kind, and its content.
    """
    if isinstance(record, Call):
        return _CALL, _TIME.pack(now) + _pack_call(record)
    number, kind = _NUMBERS[type(record)]
    return number, kind.pack(record)


def unpack(number: int, body: bytes) -> tuple[Call | Mark, float | None]:
    """Read what `pack` wrote.

    Raises:
        ValueError: It is no record.
    """
    try:
        if number == _CALL:
            return _unpack_call(body[_TIME.size :]), _TIME.unpack_from(body)[0]
        return _MARKS[number].unpack(body), None
    except (
        *(LookupError, TypeError, ValueError),
        *(struct.error, RecursionError, RemoteProtocolError),
    ) as error:
        raise ValueError(f"no record of kind {number}: {error}") from None


def _pack_call(call: Call) -> bytes:
    """JSON, which keeps every bit of a float, and behind a 0 the header."""
    arguments = {name: value for name, value in call.arguments.items() if name != "envelope"}
    if "distances" in arguments:
        rows = [[*share, distance] for share, distance in arguments["distances"].items()]
        arguments["distances"] = rows
    return json.dumps([call.method, arguments]).encode() + b"\0" + bytes(call.header)


def _unpack_call(packed: bytes) -> Call:
    text, _, header = packed.partition(b"\0")
    method, arguments = json.loads(text)
    if method not in _METHODS or not isinstance(arguments, dict):
        raise ValueError(f"no call of a protocol: {method!r}")
    if header:
        arguments["envelope"] = decode_header(header)[0]
    if "share" in arguments:
        arguments["share"] = ShareId(*arguments["share"])
    for name in {"seeds", "sketch"} & arguments.keys():
        arguments[name] = tuple(arguments[name])
    if "distances" in arguments:
        rows = arguments["distances"]
        arguments["distances"] = {ShareId(*share): far for *share, far in rows}
    return Call(method, arguments, header)


def _pack_decided(mark: Decided) -> bytes:
    weight = encode_weight(mark.weight, units_max=_IN_BYTES - 1)
    if isinstance(weight, int):
        return _WEIGHT.pack(weight) + mark.words.encode()
    return _WEIGHT.pack(_IN_BYTES | len(weight)) + weight + mark.words.encode()


def _unpack_decided(body: bytes) -> Decided:
    (number,) = _WEIGHT.unpack_from(body)
    if number < _IN_BYTES:
        return Decided(decode_weight(number), body[_WEIGHT.size :].decode())
    end = _WEIGHT.size + (number ^ _IN_BYTES)
    if end > len(body):
        raise ValueError("a weight that was cut short")
    return Decided(decode_weight(body[_WEIGHT.size : end]), body[end:].decode())


_TIME: Final = struct.Struct("<d")
_NUMBER: Final = struct.Struct("<I")
_WEIGHT: Final = struct.Struct("<Q")
# Set where a weight is written as bytes: then the number is how many.
_IN_BYTES: Final = 1 << 63
_EXCHANGED: Final = struct.Struct("<16sQ?")


class _Kind(NamedTuple):
    """How records of one type are written."""

    type: type[Any]
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]


_CALL: Final = 1

# By the number of a record on disk.
_MARKS: Final = dict(
    enumerate(
        (
            _Kind(Began, lambda m: _NUMBER.pack(m.batch), lambda b: Began(*_NUMBER.unpack(b))),
            _Kind(Trained, lambda m: _TIME.pack(m.loss), lambda b: Trained(*_TIME.unpack(b))),
            _Kind(Decided, _pack_decided, _unpack_decided),
            _Kind(
                Fingerprint,
                lambda m: struct.pack(f"<{len(m.tensors)}I", *m.tensors),
                lambda b: Fingerprint(struct.unpack(f"<{len(b) // 4}I", b)),
            ),
            _Kind(Closed, lambda m: b"", lambda b: Closed()),
            _Kind(
                Exchanged, lambda m: _EXCHANGED.pack(*m), lambda b: Exchanged(*_EXCHANGED.unpack(b))
            ),
        ),
        start=65,
    )
)
_NUMBERS: Final = {kind.type: (number, kind) for number, kind in _MARKS.items()}
