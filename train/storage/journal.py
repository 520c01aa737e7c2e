"""The ordered inputs of one peer's protocol, as a file from which its run can be replayed.

A journal is a magic line and then records: length, CRC-32, kind, content. The head comes first, in
JSON, then calls of the protocol, each with its time. Marks between them record what the training
did and what the protocol decided, so that a replay can name the first difference. Values follow
from the head and from the other peers' journals.
"""

import json
import logging
import reprlib
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, get_args, get_origin
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...gossip import ConfigError, ProtocolConfig, Rule
from ...gossip.effects.effects import (
    Combine,
    Effect,
    Exchange,
    Mix,
    Reclaim,
    Snapshot,
)
from ...gossip.effects.events import Event
from ...gossip.effects.ledger import Account, Entry
from ...gossip.errors import RemoteProtocolError, TrainingError
from ...gossip.protocol.protocol import Protocol
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import make_rule, spec_of
from ...gossip.types import ShareId, SharePart, SnapshotId, stream
from ...gossip.weight import from_units, in_units
from ...gossip.wire.codec import HEADER_BYTES_MAX, Buffer, decode_header
from ...gossip.wire.formats import NATIVE, Form
from ...gossip.wire.messages import is_name
from ...gossip.wire.schema import Schema
from ...topology.live import LiveTopology
from ..config import PeerConfig
from ..model import fingerprint
from ..tensors.vector import Vector
from .environment import machine, uptime_s
from .files import fatal, forget_in_children, json_of

__all__ = [
    *("DECIDED", "JOURNAL", "Began", "Call", "Closed", "Decided", "Exchanged"),
    *("Fingerprint", "Head", "Journal", "JournalFile", "Mark", "Trained", "batch_checksum"),
    *("in_words", "pack", "unpack"),
]


_log = logging.getLogger("rumor")

JOURNAL: Final = "journal.bin"
"""Name of the file in a peer's folder."""

_MAGIC: Final = b"rumor journal 6\n"
_FRAME: Final = struct.Struct("<IIB")
_BODY_BYTES_MAX: Final = 2 * HEADER_BYTES_MAX
_HEAD: Final = 0

# Steps between fingerprints of the model, if these take less than a hundredth of the time.
_LOOK_STEPS: Final = 20
_LOOK_COST_MIN: Final = 100


# Methods of `Protocol` that change it.
_METHODS: Final = frozenset(
    {
        *("join", "step", "trained_shard", "wake", "filled", "finish", "leave", "receive"),
        *("inspected", "attached", "measured", "sketched", "unsent", "read"),
    }
)

DECIDED: Final = (Entry, Snapshot, Mix, Reclaim, Combine, Exchange)
"""Effects whose decision a journal records."""


class Call(NamedTuple):
    """A call of one of a protocol's methods."""

    method: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    """Arguments by name, without ``now``."""
    header: Buffer = b""
    """First part of a received message, which has the checksum of the frame that follows it."""

    def make(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Call the method at *now*, seconds."""
        effects: list[Effect | Event] = getattr(protocol, self.method)(now=now, **self.arguments)
        return effects


class Began(NamedTuple):
    """An optimizer step began."""

    batch: int
    """Checksum of its batch, see `batch_checksum`."""


class Trained(NamedTuple):
    """The optimizer step was taken."""

    loss: float


class Decided(NamedTuple):
    """The protocol's decision on the input before it."""

    weight: int
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
    """Token of the segment, 16 bytes."""
    number: int
    """Number of the exchange among those of all peers, from 1; the first fills the segment."""
    whole: bool
    """True if the one before was completed."""


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
    """Return a record's kind and content: JSON, then a zero byte and the header of a call.

    *now* is the time of a call, seconds.
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
    """Parse a record, or raise ValueError; the time is that of a call, on the peer's own clock."""
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


class Journal:
    """Appends to a new journal of one incarnation of a peer. Thread-safe.

    Methods that record something raise TrainingError if it cannot be written: then no consequence
    of it may be sent.

    Args:
        head: JSON values that a replay starts from.
        tensors: The tensors that peers exchange, in the order of the schema.
    """

    def __init__(self, path: Path, head: Mapping[str, Any], tensors: Sequence[Tensor]) -> None:
        self._path = path
        self._file = open(path, "xb")
        forget_in_children(self._file)
        self._tensors = tensors
        self._failure: TrainingError | None = None
        self._steps = 0
        self._look_due_s = 0.0
        self._file.write(_MAGIC)
        self._file.write(_framed(_HEAD, json.dumps(dict(head), separators=(",", ":")).encode()))
        self._file.flush()

    def called(self, call: Call, now: float) -> None:
        """Record a call of the protocol at *now*, seconds, before it is made."""
        self._write(call, now)

    def decided(self, effects: Sequence[Effect | Event], weight: int) -> None:
        """Record the effects of a call, and the weight held now, before any is executed."""
        if any(isinstance(effect, DECIDED) for effect in effects):
            self._write(Decided(weight, in_words(effects)))
        if effects:
            # A killed peer's journal must cover everything that others know of it.
            self._to_disk(self._file.flush)

    def exchanged(self, token: bytes, number: int, whole: bool) -> None:
        """Record and flush an exchange with a center that is about to be executed."""
        self._write(Exchanged(token, number, whole))
        self._to_disk(self._file.flush)

    def began(self, batch: NDArray[np.int64]) -> None:
        """Record that an optimizer step begins, and on which samples."""
        self._write(Began(batch_checksum(batch)))

    def trained(self, loss: float) -> None:
        """Record that the step was taken."""
        self._write(Trained(loss))
        self._steps += 1

    def check(self) -> None:
        """Record the model's fingerprint if it is due; called after each step and its mixing."""
        began_s = time.perf_counter()
        if self._steps % _LOOK_STEPS == 0 and began_s >= self._look_due_s:
            self._write(Fingerprint(fingerprint(self._tensors)))
            ended_s = time.perf_counter()
            self._look_due_s = ended_s + _LOOK_COST_MIN * (ended_s - began_s)

    def close(self, *, whole: bool = True) -> None:
        """Record the model's final fingerprint, and close the file; a second call does nothing."""
        if self._file.closed:
            return
        try:
            # If decisions were not executed, the journal has no end, like a killed peer's.
            if whole and self._failure is None:
                self._write(Fingerprint(fingerprint(self._tensors)))
                self._write(Closed())
            self._file.close()
        except (OSError, TrainingError) as error:
            _log.warning("the journal lacks its end: %s", error)
            with suppress(OSError):
                self._file.close()

    def _write(self, record: Call | Mark, now: float | None = None) -> None:
        # One write, so that records of two threads do not interleave.
        framed = _framed(*pack(record, now))
        self._to_disk(lambda: self._file.write(framed))

    def _to_disk(self, write: Callable[[], object]) -> None:
        if self._failure is not None:
            # No record after a gap could be replayed.
            raise self._failure
        try:
            write()
        except OSError as error:
            self._failure = fatal(self._path, error)
            raise self._failure from error


class JournalFile:
    """A journal on disk, which a kill may have truncated; iterating reads it from its first record.

    Raises:
        TrainingError: The file is missing, is not a journal, or has a damaged head.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        """True if the last record was read, and is the peer's `Closed`."""
        self.position_bytes = 0
        """Position of the next record to read."""
        try:
            self._file = open(path, "rb")
        except OSError as error:
            raise TrainingError(f"{path} cannot be read: {error.strerror}") from None
        self.close = self._file.close
        """Closes the file."""
        self.head = self._read_head()

    def __iter__(self) -> Iterator[tuple[Call | Mark, float | None]]:
        """Yield the records up to the last complete one, with times as in `unpack`.

        Raises:
            TrainingError: A record is damaged; the message names it.
        """
        number, record = 0, None
        while True:
            number, start = number + 1, self.position_bytes
            framed = self._read(number)
            if framed is None:
                return
            if self.closed:
                raise self._damaged(number, start)
            try:
                record, now = unpack(*framed)
            except ValueError:
                raise self._damaged(number, start) from None
            self.closed = isinstance(record, Closed)
            yield record, now

    def _read_head(self) -> dict[str, Any]:
        try:
            first = self._file.read(len(_MAGIC))
            if first != _MAGIC:
                like = first.startswith(_MAGIC[:-2])
                what = "a journal of another version" if like else "not a journal"
                raise TrainingError(f"{self.path} is {what}")
            self.position_bytes = len(_MAGIC)
            framed = self._read(0)
            if framed is None or framed[0] != _HEAD:
                raise TrainingError(f"{self.path} was cut short in its head")
            with suppress(ValueError):
                if isinstance(head := json_of(framed[1]), dict):
                    return head
            raise self._damaged(0, len(_MAGIC))
        except BaseException:
            self._file.close()
            raise

    def _read(self, number: int) -> tuple[int, bytes] | None:
        """Return kind and content of the next record; None if the file ends before its end."""
        start = self.position_bytes
        frame = self._file.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            return None
        size, checksum, kind = _FRAME.unpack(frame)
        if size > _BODY_BYTES_MAX:
            raise self._damaged(number, start)
        body = self._file.read(size)
        if len(body) < size:
            return None
        if crc32(body, kind) != checksum:
            raise self._damaged(number, start)
        self.position_bytes += _FRAME.size + size
        return kind, body

    def _damaged(self, number: int, position: int) -> TrainingError:
        return TrainingError(f"{self.path}: record {number}, at byte {position}, is damaged")


def _framed(kind: int, body: bytes) -> bytes:
    # The checksum starts from the kind, so that it covers both.
    return _FRAME.pack(len(body), crc32(body, kind), kind) + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One incarnation of a peer at its start."""

    id: str
    incarnation: int
    addresses: tuple[str, ...]
    anchor: bytes
    """Hash of its model's vector, 16 bytes."""
    schema: bytes
    """Hash of its model's schema, 16 bytes."""
    rule: str
    """Spec of the rule, with all its parameters."""
    topology: str
    seed: int
    protocol: ProtocolConfig
    shards: int
    host: bytes
    """Hash of the machine whose memory it can read, 16 bytes; empty without one."""
    training: Mapping[str, Any]
    """Fields of the `RunConfig`."""
    machine: Mapping[str, Any]
    unix_s: float
    """Start time, seconds since the epoch."""
    clock_s: float
    """Start time on the protocol's clock, seconds."""

    def as_json(self) -> dict[str, Any]:
        """Return the head as JSON values."""
        told = asdict(self).items()
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in told}

    @classmethod
    def of(
        cls,
        config: PeerConfig,
        account: Account,
        addresses: tuple[str, ...],
        vector: Vector,
        rule: Rule,
        host: bytes,
        training: Mapping[str, Any],
    ) -> Self:
        """Return the head of a peer about to start; raise ConfigError if it cannot be replayed."""
        if config.local:
            raise ConfigError("local is set: a replay knows nothing of it; give up the journal")
        return cls(
            id=account.id,
            incarnation=account.incarnation,
            addresses=addresses,
            anchor=vector.anchor(),
            schema=vector.schema.hash,
            rule=spec_of(rule),
            topology=config.topology,
            seed=config.seed,
            protocol=config.protocol,
            shards=config.shards,
            host=host,
            training=training,
            machine=machine(vector.flats[0].device),
            unix_s=time.time(),
            clock_s=uptime_s(),
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a head that `as_json` returned, or raise TrainingError."""
        try:
            if not is_name(values["id"]):
                raise ValueError(f"{reprlib.repr(values['id'])} is not a peer's name")
            read: dict[str, Any] = {
                name: bytes.fromhex(values[name]) for name in ("anchor", "schema", "host")
            }
            read |= {"addresses": tuple(values["addresses"])}
            return cls(**dict(values) | read | {"protocol": ProtocolConfig(**values["protocol"])})
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(f"the head of a journal is not understood: {error}") from None

    def make_protocol(self, schema: Schema, rule: Rule) -> Protocol:
        """Make the protocol as it was before its first input."""
        return Protocol(
            id=self.id,
            incarnation=self.incarnation,
            schema=schema,
            anchor=self.anchor,
            rule=rule,
            neighbors=LiveTopology(self.topology, self.seed),
            rng=lambda purpose: stream(self.seed, self.id, purpose),
            config=self.protocol,
            addresses=self.addresses,
            keeps_anchor=self.keeps_anchor,
            host=self.host,
        )

    @property
    def keeps_anchor(self) -> bool:
        """True if its vector keeps the anchor, which lossy formats take differences from."""
        return requirements_of(make_rule(self.rule)).needs_anchor(self.protocol.wire)
