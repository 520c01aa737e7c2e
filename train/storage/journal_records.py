"""The records of a journal: calls of a protocol, and marks of their consequences."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args, get_origin
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ...gossip.effects.effects import Combine, Effect, Exchange, Mix, Reclaim, Snapshot
from ...gossip.effects.events import Event
from ...gossip.errors import RemoteProtocolError
from ...gossip.protocol.protocol import Protocol
from ...gossip.types import ShareId, SharePart, SnapshotId
from ...gossip.weight import from_units, in_units
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
    """One of the methods of `Protocol` that take ``now``."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """Arguments by name, without ``now``."""
    header: Buffer = b""
    """First part of the message in ``envelope``, as received: it has the checksum of the frame that
    follows it."""

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
    """Checksum of its batch, see `batch_checksum`."""


class Trained(NamedTuple):
    """The optimizer step was taken."""

    loss: float
    """Loss on the batch before the step."""


class Decided(NamedTuple):
    """The protocol's decision on the input before it."""

    weight: int
    """Weight held then."""
    words: str
    """Effects on the vector, see `in_words`."""


class Fingerprint(NamedTuple):
    """The model after the preceding records."""

    tensors: tuple[int, ...]
    """CRC-32 of each exchanged tensor, in the order of the schema."""


class Closed(NamedTuple):
    """The peer closed; nothing follows."""


class Exchanged(NamedTuple):
    """A register is about to be exchanged with a segment that other peers share."""

    token: bytes
    """Token of the segment, 16 bytes, drawn when it was made."""
    number: int
    """Number of the exchange among those of all peers, from 1; the first fills the segment."""
    whole: bool
    """True if the one before was completed; False if its peer was killed during it."""


Mark = Began | Trained | Decided | Fingerprint | Closed | Exchanged


def batch_checksum(batch: NDArray[np.int64]) -> int:
    """Return the CRC-32 of the indices of a batch, int64, axes ``(batch_size,)``."""
    return crc32(np.ascontiguousarray(batch, "<i8").data)


def in_words(effects: Sequence[Effect | Event]) -> str:
    """Describe what *effects* do to the vector.

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


_CALL, _MARK = 1, 2
_MARKS: Final = {kind.__name__: kind for kind in get_args(Mark)}


def pack(record: Call | Mark, now: float | None = None) -> tuple[int, bytes]:
    """Serialize a record as JSON, which keeps every bit of a float.

    The header of a call follows the JSON after a zero byte.

    Args:
        now: Time of a call, seconds; None for a mark.

    Returns:
        ``(kind, content)``.
    """
    if isinstance(record, Call):
        told = {name: value for name, value in record.arguments.items() if name != "envelope"}
        if "distances" in told:
            told["distances"] = [[*share, far] for share, far in told["distances"].items()]
        text = json.dumps([record.method, told, now])
        return _CALL, text.encode() + b"\0" + bytes(record.header)
    values: list[Any] = list(record)
    if isinstance(record, Decided):
        values[0] = in_units(record.weight)
    elif isinstance(record, Exchanged):
        values[0] = record.token.hex()
    return _MARK, json.dumps([type(record).__name__, *values]).encode()


def unpack(number: int, body: bytes) -> tuple[Call | Mark, float | None]:
    """Parse a record that `pack` serialized.

    Raises:
        ValueError: *body* is not a record.
    """
    try:
        if number == _CALL:
            return _unpack_call(body)
        if number == _MARK:
            return _unpack_mark(body), None
        raise LookupError(number)
    except (LookupError, TypeError, RecursionError, RemoteProtocolError, ValueError) as error:
        raise ValueError(f"no record of kind {number}: {error}") from None


def _unpack_call(body: bytes) -> tuple[Call, float]:
    text, _, header = body.partition(b"\0")
    method, arguments, now = json.loads(text)
    if method not in _METHODS or type(arguments) is not dict or type(now) is not float:
        raise ValueError(f"no call of a protocol: {method!r}")
    if header:
        arguments["envelope"] = decode_header(header)[0]
    if "share" in arguments:
        arguments["share"] = ShareId(*arguments["share"])
    for name in {"seeds", "sketch"} & arguments.keys():
        arguments[name] = tuple(arguments[name])
    if "distances" in arguments:
        arguments["distances"] = {ShareId(*s): far for *s, far in arguments["distances"]}
    return Call(method, arguments, header), now


def _unpack_mark(body: bytes) -> Mark:
    name, *values = json.loads(body)
    kind = _MARKS[name]
    if kind is Decided:
        values[0] = from_units(values[0])
    elif kind is Exchanged:
        values[0] = bytes.fromhex(values[0])
    elif kind is Fingerprint:
        values[0] = tuple(map(int, values[0]))
    for value, hint in zip(values, kind.__annotations__.values(), strict=True):
        if not isinstance(value, get_origin(hint) or hint):
            raise ValueError(f"{name} of {value!r}")
    mark: Mark = kind(*values)
    return mark
