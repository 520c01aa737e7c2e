"""The records of a journal: calls of a protocol, and marks of what came of them."""

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


_CALL, _MARK = 1, 2
_MARKS: Final = {kind.__name__: kind for kind in get_args(Mark)}


def pack(record: Call | Mark, now: float | None = None) -> tuple[int, bytes]:
    """Write a record in JSON, which keeps every bit of a float; the header of a call is behind a 0.

    Args:
        record: What to write.
        now: When a call was made, seconds; None for a mark.

    Returns:
        Its kind, and its content.
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
    """Read what `pack` wrote.

    Raises:
        ValueError: It is not a record.
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
