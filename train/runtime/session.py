"""One session of a peer: its protocol, and what carries out its decisions."""

import os
import platform
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
from torch import nn

from ...gossip import ConfigError, Rule, TrainingError, TransportError
from ...gossip.effects.events import (
    Event,
    Founded,
    Joined,
    PeerMet,
)
from ...gossip.effects.ledger import Account
from ...gossip.exchange.flow_control import messages_max
from ...gossip.protocol.leave import STOPPED
from ...gossip.protocol.protocol import Protocol
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import spec_of
from ...gossip.transport.keys.key import covers
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.zmq_transport import Transport
from ...gossip.types import Incarnation, PeerId, SnapshotId, stream
from ...gossip.wire.formats import NATIVE, Form
from ...gossip.wire.messages import Phase
from ...topology.live import LiveTopology
from ..config import PeerConfig
from ..model import travelling_tensors
from ..storage.checkpointer import Past
from ..storage.files import write_json
from ..storage.incarnation import note_incarnation
from ..storage.journal import JOURNAL, Head, Journal
from ..storage.ledger_file import LedgerFile, new_ledger_path
from ..tensors.buffers import give_pages_back
from ..tensors.shared_memory import Attachments, SegmentPool, host_id
from ..tensors.store import Preallocation, TensorStore
from ..tensors.vector import Vector
from .runner import PeerRuntime
from .script.order import SwarmOrder
from .search import Search, advertised
from .segments import Life, SharedSegments
from .telling.counters import Counters
from .telling.deaths import DeathNotices
from .telling.events import EVENTS, Events
from .telling.model_sample import ModelSample
from .telling.status import StatusDesk

__all__ = ["Made", "PeerSession", "open_transport"]


_LAST_WORD_S: Final = 0.7
"""Twice as long as it takes whoever asks for the end of a swarm to ask again."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Rules with many neighbors may have more pushes under way; those seldom are at the same moment.
_AT_ONCE_MAX = 2


def open_transport(config: PeerConfig, network_faults: Path | None = None) -> Transport:
    """Open a peer's sockets.

    Args:
        config: The peer's.
        network_faults: What goes wrong between it and the others, as in `NetworkPlan`.

    Raises:
        ConfigError: Its key or roster cannot be read, or the key is not let in.
        TransportError: An address cannot be bound; nothing stays open.
    """
    bulk_messages_max, keyring = messages_max(config.shards), config.keyring()
    if network_faults is None:
        return Transport(config.bind, bulk_messages_max=bulk_messages_max, keyring=keyring)
    from ..faults.transport import FaultyTransport

    return FaultyTransport(
        network_faults,
        config.named(),
        config.bind,
        bulk_messages_max=bulk_messages_max,
        keyring=keyring,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """What a peer is made of, whichever incarnation."""

    id: PeerId
    config: PeerConfig
    rule: Rule
    model: nn.Module
    vector: Vector
    counters: Counters
    journaled: Mapping[str, Any] | None
    """What a replay needs to know of the training; None to keep no journal."""

    notes: Mapping[str, Any]
    """What else goes into its folder at its start: values that JSON has, by the file's name."""

    opens: Callable[[PeerConfig], Transport] = open_transport
    """Opens its sockets."""

    measured: Callable[[], Mapping[str, float]] = dict
    """See `PeerStats.measured`."""

    goes_on: bool = False
    """True if the whole run was resumed, so that all founders come back."""

    order: SwarmOrder | None = None
    """Order in which its process starts peers of several swarms."""


class PeerSession:
    """Opens a peer's sockets and files, and runs its protocol until it is closed.

    Args:
        made: The peer.
        incarnation: Its number.
        past: What a checkpoint says of those before, where there is one.
        known: Addresses of others that an earlier incarnation knew.

    Raises:
        ConfigError: An address cannot be bound, a folder cannot be written, or what was asked for
            cannot be journaled; nothing stays open.
    """

    def __init__(
        self,
        made: Made,
        incarnation: Incarnation,
        past: Past | None = None,
        known: Sequence[str] = (),
    ) -> None:
        self.id = made.id
        """What the peer is called."""
        self.incarnation = incarnation
        """Which incarnation this is."""
        self.journal: Journal | None = None
        """The journal, where one is kept."""
        self._made = made
        self._past = past
        self._events = Events(None)
        self._met: set[Life] = set()
        transport = _opened(made)
        try:
            self._keyring = _named(made.id, transport.keyring)
            self.addresses = advertised(made.config, transport.addresses, self._keyring)
            """Where others reach it; none for one that only dials out."""
            self.runtime = self._make_runtime(transport)
            self.search = self._make_search(known)
            """Brings it into a swarm."""
        except BaseException:
            transport.close(0)
            raise
        self.runtime.start()

    def close(self) -> None:
        """Stop, without another word; what cannot be closed keeps nothing else open."""
        with ExitStack() as closing:
            # Last: until then, shares that were on their way come back.
            closing.callback(self._made.vector.memory.free_idle, 0.0)
            closing.callback(self._events.close)
            closing.callback(self._close_journal)
            closing.callback(self._preallocation.close)
            closing.callback(self.runtime.stop)
            closing.callback(self._answer_once_more)
            closing.callback(self.search.close)

    def _answer_once_more(self) -> None:
        """Stay until whoever has asked for the end has asked again: what is sent just before a
        connection ends may be lost, and a peer that has ended well would pass for one that died."""
        if self.runtime.is_sound and self.runtime.ended_by == STOPPED:
            time.sleep(_LAST_WORD_S)

    def _close_journal(self) -> None:
        if self.journal is not None:
            self.journal.close(whole=self.runtime.is_sound)

    @property
    def met(self) -> frozenset[tuple[PeerId, Incarnation]]:
        """All that have been in its swarm while it was, itself included."""
        return frozenset(self._met | {(self.id, self.incarnation)})

    def _note_met(self, event: Event) -> None:
        if isinstance(event, Joined | Founded):
            self._met.clear()  # of another swarm, which it has given up
        if isinstance(event, Joined | Founded | PeerMet):
            self._met.update(self.runtime.look(_lives))

    def _hear(self, event: Event) -> None:
        self._events.tell(event)
        self._note_met(event)
        self.search.hear(event)
        if isinstance(event, Joined):
            self._check_anchor()
            give_pages_back()
        if isinstance(event, Joined | Founded):
            for shares_memory in self.runtime.look(_kinds_of_neighbors):
                self._preallocation.met(shares_memory=shares_memory)
        elif isinstance(event, PeerMet):
            # Before it belongs to a swarm, a newcomer needs its memory for its copy.
            phase, shares_memory = self.runtime.look(
                lambda protocol: (protocol.phase, protocol.shares_memory(event.peer))
            )
            if phase >= Phase.TRAINING:
                self._preallocation.met(shares_memory=shares_memory)

    def _check_anchor(self) -> None:
        # One that came in several shards can only be told when all of them are there.
        vector = self._made.vector
        anchored, swarm = self.runtime.look(lambda protocol: (protocol.is_anchored, protocol.swarm))
        if vector.schema.shards > 1 and anchored and vector.kept_anchor() != swarm:
            raise TrainingError("the anchor that came is not the one of this swarm: join again")

    def _make_search(self, known: Sequence[str]) -> Search:
        made, past = self._made, self._past
        # All members that never change found together once, and never come back.
        goes_on = made.goes_on and not requirements_of(made.rule).fixed_members
        return Search(
            self.runtime,
            self._made.config,
            self.id,
            self.addresses[0] if self.addresses else None,
            was_member=past is not None or bool(known),
            goes_on=goes_on,
            order=made.order,
            returning=past is not None and past.returns,
            known=known,
            keyring=self._keyring,
        )

    def _make_runtime(self, transport: Transport) -> PeerRuntime:
        made, config = self._made, self._made.config
        host = _host(made)
        protocol = self._make_protocol(host)
        head = self._journal_head(protocol.account, host)
        folder = config.incarnation_folder
        if folder is not None:
            with _making(folder):
                note_incarnation(folder, made.id, self.incarnation)
        ledger = None
        if config.out is not None:
            with _making(config.out):
                ledger = self._open_files(config.out, protocol.account, head)
        store = TensorStore(
            made.vector,
            rounding=partial(_rounding, config.seed, made.id),
            segments=_segments(made.vector) if host else None,
            attachments=Attachments(memory=made.vector.memory) if host else None,
            shared=self._share(protocol.account.life),
        )
        wire = NATIVE if config.protocol.exact else config.protocol.wire
        form = Form(wire, registers=requirements_of(made.rule).share_registers)
        self._preallocation = Preallocation(
            store, form, min(made.rule.outstanding_max, _AT_ONCE_MAX)
        )
        return PeerRuntime(
            protocol,
            transport,
            store,
            ledger,
            made.counters,
            _weakly(self._hear),
            self.journal,
            self._make_desk(),
            obeys_stops=config.remote_stop,
            deaths=DeathNotices(config.out),
        )

    def _make_desk(self) -> StatusDesk:
        made = self._made
        return StatusDesk(
            schema=made.vector.schema.hash,
            settings=_settings(made),
            counters=made.counters,
            events=self._events,
            measured=made.measured,
            memory=made.vector.memory.use,
            sample=ModelSample(made.vector.flats),
        )

    def _share(self, life: Life) -> SharedSegments | None:
        """Segments for a rule that wants any."""
        if not requirements_of(self._made.rule).one_machine:
            return None
        note = None if self.journal is None else self.journal.exchanged
        return SharedSegments(life, _weakly(self._known), note)

    def _known(self) -> list[Life]:
        return self.runtime.look(_lives)

    def _anchor(self) -> bytes | Callable[[], bytes]:
        made = self._made
        # Most who join never found, and hashing takes longer than all else that a copy costs.
        joins = bool(made.config.join) and made.journaled is None
        if joins and made.vector.anchor_flats is None:
            return _weakly(made.vector.anchor)
        return made.vector.anchor()

    def _make_protocol(self, host: bytes) -> Protocol:
        made, config, vector, past = self._made, self._made.config, self._made.vector, self._past
        keeps_anchor = vector.anchor_flats is not None
        anchor = past.swarm if past is not None and past.returns else None
        if anchor is None and keeps_anchor:
            vector.keep_anchor()  # what x is now, should it have changed since
        return Protocol(
            id=made.id,
            incarnation=self.incarnation,
            schema=vector.schema,
            anchor=anchor or self._anchor(),
            rule=made.rule,
            neighbors=LiveTopology(config.topology, config.seed),
            # Without the peer: what the protocol keeps must not keep a vector.
            rng=partial(stream, config.seed, made.id),
            config=config.protocol,
            addresses=self.addresses,
            keeps_anchor=keeps_anchor,
            host=host,
            clock={} if past is None else past.clock,
        )

    def _journal_head(self, account: Account, host: bytes) -> Head | None:
        made, config = self._made, self._made.config
        if made.journaled is None or config.out is None:
            return None
        if config.local:
            raise ConfigError("local is set: a replay knows nothing of it; give up the journal")
        given = made.vector, made.rule, host, made.journaled
        return Head.of(config, account, self.addresses, *given)

    def _open_files(self, folder: Path, account: Account, head: Head | None) -> LedgerFile:
        made = self._made
        ledger = LedgerFile(new_ledger_path(folder), account, made.config.shards)
        for name, value in made.notes.items():
            write_json(folder / name, value)
        self._events = Events(folder / EVENTS)
        if head is not None:
            tensors = travelling_tensors(made.model, made.vector.schema)
            self.journal = Journal(folder / JOURNAL, head.as_json(), list(tensors.values()))
        return ledger


def _settings(made: Made) -> dict[str, str]:
    """What observers are told of how a peer takes part."""
    config, protocol = made.config, made.config.protocol
    try:
        rule = spec_of(made.rule)
    except ConfigError:
        rule = made.rule.name  # a class of the caller's own
    return {
        "host": platform.node(),
        "pid": str(os.getpid()),
        "version": version("rumor"),
        "rule": rule,
        "topology": config.topology,
        "wire": protocol.wire,
        "shards": str(config.shards),
        "exact": str(protocol.exact).lower(),
        "gossip_s": f"{protocol.gossip_s:g}",
        "suspect_s": f"{protocol.suspect_s:g}",
        "dead_s": f"{protocol.dead_s:g}",
    }


def _segments(vector: Vector) -> SegmentPool:
    return SegmentPool(pinned=not vector.is_here, memory=vector.memory)


def _opened(made: Made) -> Transport:
    try:
        return made.opens(made.config)
    except TransportError as error:
        raise ConfigError(str(error)) from None


def _named(id: PeerId, keyring: Keyring | None) -> Keyring | None:
    """The keyring, where there is one.

    Raises:
        ConfigError: Its roster gives peers here another name.
    """
    if keyring is not None and not covers(keyring.names, id):
        raise ConfigError(
            f"id is {id}: the roster lists this machine as {keyring.names}; change the id, or let "
            "the roster's owner add the key under another name"
        )
    return keyring


def _host(made: Made) -> bytes:
    """What peers have in common that can read one another's memory; empty for none.

    Raises:
        ConfigError: The rule cannot do without.
    """
    host = host_id() if made.config.protocol.shared_memory else b""
    requirements = requirements_of(made.rule)
    if (requirements.one_machine or requirements.by_machine) and not host:
        raise ConfigError(
            f"shared_memory is {made.config.protocol.shared_memory}: rule {made.rule.name} needs "
            "memory that processes share, on a system that has it (Linux); use gosgd or easgd"
        )
    return host


def _rounding(seed: int, peer: PeerId, snapshot: SnapshotId) -> np.random.Generator:
    return stream(seed, peer, f"rounding:{snapshot}")


def _weakly(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """The same, not keeping its object: a session keeps its runtime, which tells it of events.

    In a cycle, all that a peer has would lie in memory until the next full collection.

    Raises:
        ReferenceError: On a call: its object is gone.
    """
    weak = weakref.WeakMethod(method)

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        found = weak()
        if found is None:
            raise ReferenceError("the session is gone")
        return found(*args, **kwargs)

    return call


def _kinds_of_neighbors(protocol: Protocol) -> set[bool]:
    """Whether they share this peer's memory."""
    return {protocol.shares_memory(member.id) for member in protocol.known()}


def _lives(protocol: Protocol) -> list[Life]:
    return [(member.id, member.incarnation) for member in protocol.known()]


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from None
