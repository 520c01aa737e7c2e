"""The ordered inputs of one peer's protocol, as a file from which its run can be replayed.

A journal has a line of JSON for each record. The head comes first, then the calls of the protocol,
each with its time. Marks between them record what the training did. Values of parameters follow
from the head and from the other peers' journals.
"""

import json
import logging
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ...gossip import ConfigError, ProtocolConfig, Rule
from ...gossip.effects.effects import Effect
from ...gossip.effects.events import Event
from ...gossip.effects.ledger import Account
from ...gossip.errors import RemoteProtocolError, TrainingError
from ...gossip.protocol.protocol import Protocol
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import make_rule, spec_of
from ...gossip.types import ShareId, stream
from ...gossip.wire.codec import Buffer, decode_header
from ...gossip.wire.messages import is_name
from ...gossip.wire.schema import Schema
from ...topology.live import LiveTopology
from ..config import PeerConfig
from ..tensors.vector import Vector
from .environment import machine, uptime_s
from .files import fatal, forget_in_children, json_of

__all__ = [
    *("JOURNAL", "Began", "Call", "Closed", "Head", "Journal", "JournalFile", "Record"),
    *("Trained", "batch_checksum"),
]


_log = logging.getLogger("rumor")

JOURNAL: Final = "journal.jsonl"
"""Name of the file in a peer's folder."""

_VERSION: Final = 7

# Methods of `Protocol` that change it, with their arguments.
_METHODS: Final = {
    name: signature(getattr(Protocol, name))
    for name in (
        *("join", "step", "trained_shard", "wake", "filled", "finish", "leave", "receive"),
        *("inspected", "attached", "measured", "sketched", "unsent"),
    )
}


class Call(NamedTuple):
    """A call of one of a protocol's methods."""

    method: str
    now: float
    """Time of the call on the peer's own clock, seconds."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """Arguments by name, without ``now``."""
    header: Buffer = b""
    """First part of a received message, which has the checksum of the frame that follows it."""

    def make(self, protocol: Protocol) -> list[Effect | Event]:
        """Call the method."""
        effects: list[Effect | Event] = getattr(protocol, self.method)(
            now=self.now, **self.arguments
        )
        return effects


class Began(NamedTuple):
    """An optimizer step began."""

    batch: int
    """Checksum of its batch, see `batch_checksum`."""


class Trained(NamedTuple):
    """The optimizer step was taken."""

    loss: float


class Closed(NamedTuple):
    """The peer closed; nothing follows."""


Record = Call | Began | Trained | Closed

_MARKS: Final[Mapping[str, type[Record]]] = {"began": Began, "trained": Trained, "closed": Closed}


def batch_checksum(batch: NDArray[np.int64]) -> int:
    """Return the CRC-32 of the indices of a batch, int64, axes ``(batch_size,)``."""
    return crc32(np.ascontiguousarray(batch, "<i8").data)


def _written(record: Record) -> bytes:
    if not isinstance(record, Call):
        return _line([type(record).__name__.lower(), *record])
    told = {name: value for name, value in record.arguments.items() if name != "envelope"}
    if "distances" in told:
        told["distances"] = [[*share, far] for share, far in told["distances"].items()]
    return _line([record.method, record.now, told, b64encode(record.header).decode()])


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=bytes.hex).encode() + b"\n"


def _read(line: bytes) -> Record:
    """Parse a record; ValueError, TypeError or RemoteProtocolError if it is none."""
    name, *values = json.loads(line)
    if name in _MARKS:
        return _MARKS[name](*values)
    now, arguments, header = values
    if name not in _METHODS or type(arguments) is not dict or type(now) is not float:
        raise ValueError(f"no call of a protocol: {name!r}")
    if header:
        header = b64decode(header)
        arguments["envelope"] = decode_header(header)[0]
    if "share" in arguments:
        arguments["share"] = ShareId(*arguments["share"])
    for name_of_tuple in {"seeds", "sketch"} & arguments.keys():
        arguments[name_of_tuple] = tuple(arguments[name_of_tuple])
    if "distances" in arguments:
        arguments["distances"] = {ShareId(*s): far for *s, far in arguments["distances"]}
    _METHODS[name].bind(None, now=now, **arguments)  # a TypeError, where names are damaged
    return Call(name, now, arguments, header or b"")


class Journal:
    """Appends to a new journal of one incarnation of a peer. Thread-safe.

    Methods that record something raise TrainingError if it cannot be written: then no consequence
    of it may be sent.
    """

    def __init__(self, path: Path, head: "Head") -> None:
        self._path = path
        self._file = open(path, "xb")
        forget_in_children(self._file)
        self._failure: TrainingError | None = None
        self._file.write(_line({"rumor_journal": _VERSION} | asdict(head)))
        self._file.flush()

    def called(self, call: Call) -> None:
        """Record a call of the protocol before it is made."""
        self._write(call)

    def began(self, batch: NDArray[np.int64]) -> None:
        """Record that an optimizer step begins, and on which samples."""
        self._write(Began(batch_checksum(batch)))

    def trained(self, loss: float) -> None:
        """Record that the step was taken."""
        self._write(Trained(loss))

    def flush(self) -> None:
        """Hand all records to the system, before any effect of a call is executed."""
        # A killed peer's journal must cover everything that others know of it.
        self._to_disk()

    def close(self, *, whole: bool = True) -> None:
        """Record the end and close the file; a second call does nothing."""
        if self._file.closed:
            return
        try:
            # If decisions were not executed, the journal has no end, like a killed peer's.
            if whole and self._failure is None:
                self._write(Closed())
            self._file.close()
        except (OSError, TrainingError) as error:
            _log.warning("the journal lacks its end: %s", error)
            with suppress(OSError):
                self._file.close()

    def _write(self, record: Record) -> None:
        # One write, so that records of two threads do not interleave.
        self._to_disk(_written(record))

    def _to_disk(self, line: bytes = b"") -> None:
        """Write a line, or without one flush those before."""
        if self._failure is not None:
            # No record after a gap could be replayed.
            raise self._failure
        try:
            if line:
                self._file.write(line)
            else:
                self._file.flush()
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
        try:
            with open(path, "rb") as file:
                line = file.readline()
        except OSError as error:
            raise TrainingError(f"{path} cannot be read: {error.strerror}") from None
        self.head = Head.of_line(path, line)

    def __iter__(self) -> Iterator[Record]:
        """Yield the records up to the last complete one.

        Raises:
            TrainingError: A record is damaged; the message names it.
        """
        self.closed = False
        with open(self.path, "rb") as file:
            file.readline()
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    record = _read(line)
                except (LookupError, RecursionError, RemoteProtocolError, TypeError, ValueError):
                    record = None
                if record is None or self.closed:
                    raise TrainingError(f"{self.path}: record {number} is damaged")
                self.closed = isinstance(record, Closed)
                yield record


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
        if requirements_of(rule).one_machine:
            raise ConfigError(
                f"rule {rule.name} exchanges values in shared memory, which a journal does not "
                "record; give up the journal"
            )
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
    def of_line(cls, path: Path, line: bytes) -> Self:
        """Read the first line of a journal, or raise TrainingError."""
        try:
            values = json_of(line)
            version = values.pop("rumor_journal")
        except (AttributeError, KeyError, TypeError, ValueError):
            raise TrainingError(f"{path} is not a journal") from None
        if version != _VERSION:
            raise TrainingError(f"{path} is a journal of another version")
        try:
            if not is_name(values["id"]):
                raise ValueError(f"{values['id']!r} is not a peer's name")
            values |= {name: bytes.fromhex(values[name]) for name in ("anchor", "schema", "host")}
            values["addresses"] = tuple(values["addresses"])
            return cls(**values | {"protocol": ProtocolConfig(**values["protocol"])})
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(f"{path}: its head is not understood: {error}") from None

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
