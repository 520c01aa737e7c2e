"""Open the sockets and files of one incarnation of a peer, and make its runtime."""

import os
import platform
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...gossip import ConfigError, Rule, TransportError
from ...gossip.exchange.flow_control import messages_max
from ...gossip.protocol.protocol import Protocol
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import spec_of
from ...gossip.transport.keys.key import covers
from ...gossip.transport.zmq_transport import Transport
from ...gossip.types import Incarnation, PeerId, stream
from ...topology.live import LiveTopology
from ..config import PeerConfig
from ..storage.checkpoint import Past
from ..storage.files import write_json
from ..storage.incarnation import last_incarnation, note_incarnation
from ..storage.journal import JOURNAL, Head, Journal
from ..storage.ledger_file import LedgerFile, new_ledger_path
from ..tensors.centers import SharedCenters
from ..tensors.shared_memory import Attachments, host_id
from ..tensors.store import TensorStore
from ..tensors.vector import Vector
from .runner import PeerRuntime
from .search import advertised
from .telling.events import Events
from .telling.stats import Counters, PeerStats
from .telling.status import ModelSample, StatusDesk

__all__ = ["open_runtime", "open_transport"]


def open_transport(config: PeerConfig, network_faults: Path | None = None) -> Transport:
    """Open a peer's sockets, with the faults of a `NetworkPlan` between it and the others.

    Raises:
        ConfigError: Its key or roster cannot be read, or the roster does not list the key.
        TransportError: An address cannot be bound; nothing stays open.
    """
    given: dict[str, Any] = {
        "bulk_messages_max": messages_max(config.shards),
        "keyring": config.keyring(),
    }
    if network_faults is None:
        return Transport(config.bind, **given)
    from ..faults.transport import FaultyTransport

    return FaultyTransport(network_faults, config.named(), config.bind, **given)


def open_runtime(
    incarnation: Incarnation,
    *,
    id: PeerId,
    config: PeerConfig,
    rule: Rule,
    vector: Vector,
    counters: Counters,
    stats: Callable[[], PeerStats],
    opens: Callable[[PeerConfig], Transport],
    past: Past | None,
    journaled: Mapping[str, Any] | None,
    notes: Mapping[str, Any],
) -> PeerRuntime:
    """Make the runtime of one incarnation of a peer, and start its network thread.

    Args:
        past: Earlier incarnations, from a checkpoint; None without one.
        journaled: Training settings for a replay; None to keep no journal.
        notes: Further JSON values to write into its folder, by file name.

    Raises:
        ConfigError: An address cannot be bound, a folder cannot be written, or the settings do not
            allow a journal; nothing stays open.
    """
    requirements = requirements_of(rule)
    try:
        transport = opens(config)
    except TransportError as error:
        raise ConfigError(str(error)) from None
    try:
        keyring = transport.keyring
        if keyring is not None and not covers(keyring.names, id):
            raise ConfigError(
                f"id is {id}: the roster lists this machine as {keyring.names}; change the id, or "
                "let the roster's owner add the key under another name"
            )
        addresses, host = advertised(config, transport.addresses, keyring), _host(config, rule)
        keeps_anchor = vector.anchor_flats is not None
        anchor = past.swarm if past is not None and past.returns else None
        if anchor is None and keeps_anchor:
            vector.keep_anchor()  # x may have changed since
        protocol = Protocol(
            id=id,
            incarnation=incarnation,
            schema=vector.schema,
            anchor=anchor or _anchor(vector, later=bool(config.join) and journaled is None),
            rule=rule,
            neighbors=LiveTopology(config.topology, config.seed),
            rng=partial(stream, config.seed, id),
            config=config.protocol,
            addresses=addresses,
            keeps_anchor=keeps_anchor,
            host=host,
            clock={} if past is None else past.clock,
        )
        account, events, ledger, journal, head = protocol.account, Events(None), None, None, None
        if journaled is not None and config.out is not None:
            head = Head.of(config, account, addresses, vector, rule, host, journaled)
        if (folder := config.incarnation_folder) is not None:
            with _writing_to(folder):
                last = last_incarnation(folder)
                note_incarnation(folder, id, incarnation, () if last is None else last.addresses)
        if (out := config.out) is not None:
            with _writing_to(out):
                ledger = LedgerFile(new_ledger_path(out), account, config.shards)
                for name, value in notes.items():
                    write_json(out / name, value)
                events = Events(out)
                if head is not None:
                    journal = Journal(out / JOURNAL, head)
        lock, centers = threading.Lock(), None
        if requirements.one_machine:

            def known() -> list[tuple[PeerId, Incarnation]]:
                with lock:
                    return [(member.id, member.incarnation) for member in protocol.known()]

            centers = SharedCenters(account.life, known)
        store = TensorStore(
            vector,
            rounding=lambda snapshot: stream(config.seed, id, f"rounding:{snapshot}"),
            attachments=Attachments() if host else None,
            centers=centers,
        )
        desk = StatusDesk(_settings(config, rule), events, stats, ModelSample(vector.flats))
        runtime = PeerRuntime(
            protocol=protocol,
            lock=lock,
            transport=transport,
            store=store,
            vector=vector,
            addresses=addresses,
            counters=counters,
            events=events,
            ledger=ledger,
            journal=journal,
            desk=desk,
            obeys_stops=config.remote_stop,
        )
    except BaseException:
        transport.close(0)
        raise
    runtime.thread.start()
    return runtime


def _anchor(vector: Vector, *, later: bool) -> bytes | Callable[[], bytes]:
    """Return the hash of the vector, or with *later* a function that computes it if needed."""
    # Most joining peers never found, and hashing takes longer than the rest of a copy.
    if not later or vector.anchor_flats is not None:
        return vector.anchor()
    # A protocol has reference cycles, so it must not keep a vector alive.
    proxy: Vector = weakref.proxy(vector)
    return lambda: proxy.anchor()


def _settings(config: PeerConfig, rule: Rule) -> dict[str, str]:
    """Return the settings of a peer that observers see."""
    protocol = config.protocol
    try:
        spec = spec_of(rule)
    except ConfigError:
        spec = rule.name  # the caller's own class
    return {
        "host": platform.node(),
        "pid": str(os.getpid()),
        "version": version("rumor"),
        "rule": spec,
        "topology": config.topology,
        "wire": protocol.wire,
        "shards": str(config.shards),
        "gossip_s": f"{protocol.gossip_s:g}",
        "suspect_s": f"{protocol.suspect_s:g}",
        "dead_s": f"{protocol.dead_s:g}",
    }


def _host(config: PeerConfig, rule: Rule) -> bytes:
    """Return a hash shared by peers that can read each other's memory; empty without one."""
    host = host_id() if config.protocol.shared_memory else b""
    requirements = requirements_of(rule)
    if (requirements.one_machine or requirements.by_machine) and not host:
        raise ConfigError(
            f"shared_memory is {config.protocol.shared_memory}: rule {rule.name} needs memory that "
            "processes share, on a system that has it (Linux); use gosgd or easgd"
        )
    return host


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from None
