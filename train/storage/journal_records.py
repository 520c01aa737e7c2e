"""The records of a journal: a protocol's inputs, and marks of what came of them.

The number of a record on disk is its place in the tables at the end.
"""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ...gossip.effects.effects import Combine, Effect, Exchange, Mix, Reclaim, Snapshot
from ...gossip.effects.events import Event
from ...gossip.errors import RemoteProtocolError
from ...gossip.types import ShareId, SharePart, SnapshotId
from ...gossip.weight import decode_weight, encode_weight
from ...gossip.wire.codec import decode_header, encode
from ...gossip.wire.formats import NATIVE, Form
from .inputs import (
    Attached,
    Filled,
    Finish,
    Input,
    Inspected,
    Join,
    Leave,
    Measured,
    Read,
    Receive,
    ShardTrained,
    Sketched,
    Step,
    Unsent,
    Wake,
)

__all__ = [
    "Began",
    "Closed",
    "Dealt",
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


class Dealt(NamedTuple):
    """Samples are dealt anew, under a partition that follows who is there, before the next step."""

    epoch: int
    """By the swarm's clock."""
    members: tuple[str, ...]
    """Who trains, as the peer saw it."""


Mark = Began | Trained | Decided | Fingerprint | Closed | Exchanged | Dealt


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


def pack(record: Input | Mark, now: float | None = None) -> tuple[int, bytes]:
    """Write a record.

    Args:
        record: What to write.
        now: When an input was taken in, seconds; None for a mark.

    Returns:
        Its kind, and its content.
    """
    number, kind = _NUMBERS[type(record)]
    body = kind.pack(record)
    return number, body if now is None else _TIME.pack(now) + body


def unpack(number: int, body: bytes) -> tuple[Input | Mark, float | None]:
    """Read what `pack` wrote.

    Raises:
        ValueError: It is no record.
    """
    try:
        kind = _BY_NUMBER[number]
        if number >= _FIRST_MARK:
            return kind.unpack(body), None
        return kind.unpack(body[_TIME.size :]), _TIME.unpack_from(body)[0]
    except (LookupError, TypeError, struct.error, RecursionError, RemoteProtocolError) as error:
        raise ValueError(f"no record of kind {number}: {error}") from None


def _header(event: Unsent) -> bytes:
    # Only what it says is of use: there is no frame in a journal.
    return bytes(encode(replace(event.envelope, frame_bytes=0))[0])


def _pack_share(event: Inspected | Attached) -> bytes:
    share, answer = event
    numbers = _SHARE.pack(answer, share.incarnation, share.seq, share.shard)
    return numbers + share.sender.encode()


def _unpack_share(body: bytes) -> tuple[ShareId, bool]:
    answer, incarnation, seq, shard = _SHARE.unpack_from(body)
    return ShareId(body[_SHARE.size :].decode(), incarnation, seq, shard), answer


def _pack_step(event: Step) -> bytes:
    # As it was before a step could say how many samples it took, or its rate, where it does not.
    samples = b"" if event.samples is None else _NUMBER.pack(event.samples)
    lr = b"" if event.lr is None else _TIME.pack(event.lr)
    return _FLAG.pack(event.trained) + samples + lr


def _unpack_step(body: bytes) -> Step:
    (trained,), rest = _FLAG.unpack_from(body), body[_FLAG.size :]
    samples = lr = None
    if len(rest) % _TIME.size:
        (samples,), rest = _NUMBER.unpack_from(rest), rest[_NUMBER.size :]
    if rest:
        (lr,) = _TIME.unpack(rest)
    return Step(trained, samples, lr)


def _pack_measured(event: Measured) -> bytes:
    # Floats are written so that they are read again bit for bit.
    rows: list[list[Any]] = [[*share, distance] for share, distance in event.distances]
    return json.dumps(rows).encode()


def _unpack_measured(body: bytes) -> Measured:
    return Measured(tuple((ShareId(*share), far) for *share, far in json.loads(body)))


def _pack_join(event: Join) -> bytes:
    return json.dumps([event.founders, event.returning, *event.seeds]).encode()


def _unpack_join(body: bytes) -> Join:
    founders, returning, *seeds = json.loads(body)
    return Join(tuple(seeds), founders, returning)


def _unpack_dealt(body: bytes) -> Dealt:
    epoch, *members = json.loads(body)
    if type(epoch) is not int or not members or {*map(type, members)} != {str}:
        raise ValueError("samples are dealt to nobody")
    return Dealt(epoch, tuple(members))


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
_FLAG: Final = struct.Struct("<?")
_NUMBER: Final = struct.Struct("<I")
_WEIGHT: Final = struct.Struct("<Q")
# Set where a weight is written as bytes: then the number is how many.
_IN_BYTES: Final = 1 << 63
_SHARE: Final = struct.Struct("<?QQI")
_EXCHANGED: Final = struct.Struct("<16sQ?")


class _Kind(NamedTuple):
    """How records of one type are written."""

    type: type[Any]
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]


# Inputs count from 1 and marks from 65: append, never insert.
_INPUTS: Final = (
    _Kind(Join, _pack_join, _unpack_join),
    _Kind(Step, _pack_step, _unpack_step),
    _Kind(Wake, lambda e: b"", lambda b: Wake()),
    _Kind(Finish, lambda e: b"", lambda b: Finish()),
    _Kind(Leave, lambda e: _FLAG.pack(e.burn), lambda b: Leave(*_FLAG.unpack(b))),
    _Kind(Receive, lambda e: bytes(e.header), lambda b: Receive(decode_header(b)[0], b)),
    _Kind(Inspected, _pack_share, lambda b: Inspected(*_unpack_share(b))),
    _Kind(Unsent, _header, lambda b: Unsent(decode_header(b)[0])),
    _Kind(Attached, _pack_share, lambda b: Attached(*_unpack_share(b))),
    _Kind(Read, lambda e: e.peer.encode(), lambda b: Read(b.decode())),
    _Kind(Filled, lambda e: _FLAG.pack(e.is_full), lambda b: Filled(*_FLAG.unpack(b))),
    _Kind(Measured, _pack_measured, _unpack_measured),
    _Kind(
        ShardTrained,
        lambda e: _NUMBER.pack(e.shard),
        lambda b: ShardTrained(*_NUMBER.unpack(b)),
    ),
    # Floats are written so that they are read again bit for bit.
    _Kind(
        Sketched,
        lambda e: struct.pack(f"<{len(e.sketch)}d", *e.sketch),
        lambda b: Sketched(struct.unpack(f"<{len(b) // 8}d", b)),
    ),
)
_MARKS: Final = (
    _Kind(Began, lambda m: _NUMBER.pack(m.batch), lambda b: Began(*_NUMBER.unpack(b))),
    _Kind(Trained, lambda m: _TIME.pack(m.loss), lambda b: Trained(*_TIME.unpack(b))),
    _Kind(Decided, _pack_decided, _unpack_decided),
    _Kind(
        Fingerprint,
        lambda m: struct.pack(f"<{len(m.tensors)}I", *m.tensors),
        lambda b: Fingerprint(struct.unpack(f"<{len(b) // 4}I", b)),
    ),
    _Kind(Closed, lambda m: b"", lambda b: Closed()),
    _Kind(Exchanged, lambda m: _EXCHANGED.pack(*m), lambda b: Exchanged(*_EXCHANGED.unpack(b))),
    _Kind(Dealt, lambda m: json.dumps([m.epoch, *m.members]).encode(), _unpack_dealt),
)
_FIRST_MARK: Final = 65
_BY_NUMBER: Final = dict(enumerate(_INPUTS, start=1)) | dict(enumerate(_MARKS, start=_FIRST_MARK))
_NUMBERS: Final = {kind.type: (number, kind) for number, kind in _BY_NUMBER.items()}
