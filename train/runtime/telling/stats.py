"""All figures of one peer at one time: its counts, and the table that describes them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from ....gossip.effects.effects import Effect
from ....gossip.effects.events import NO_MEMORY, Event, PushSkipped, ShareMixed, ShareRefused
from ....gossip.effects.ledger import Entry, Kind
from ....gossip.protocol.protocol import Protocol
from ....gossip.types import Incarnation, PeerId
from ....gossip.weight import Units, founders, in_units
from ....gossip.wire.codec import Buffer
from ....gossip.wire.messages import Envelope, Hello, Leave

__all__ = [
    *("METRICS", "Counters", "LinkCounts", "Metric", "PeerStats", "protocol_stats"),
]


@dataclass(slots=True)
class LinkCounts:
    """Traffic between this peer and another one, see `LinkStatus`."""

    bytes_sent: int = 0
    bytes_received: int = 0
    pushes: int = 0
    refusals: int = 0
    mixed: int = 0
    asked_s: float | None = None
    """Time of a hello to it that it has not answered yet."""
    roundtrip_s: float = 0.0
    """Round trip of the last answered hello, seconds; 0 before the first."""


@dataclass(slots=True)
class Counters:
    """Counts since the peer's start; `METRICS` describes them."""

    pushes: int = 0
    skipped: int = 0
    no_memory: int = 0
    refusals: int = 0
    refused: int = 0
    mixed: int = 0
    staleness_steps: int = 0
    staleness_steps_max: int = 0
    messages: int = 0
    frames: int = 0
    bytes_sent: int = 0
    membership_bytes: int = 0
    bytes_received: int = 0
    errors: int = 0
    links: dict[PeerId, LinkCounts] = field(default_factory=dict, repr=False)
    """Traffic with each other peer; see `link`."""

    def link(self, peer: PeerId) -> LinkCounts:
        """Return the counts of one other peer."""
        return self.links.setdefault(peer, LinkCounts())

    def note_sent(
        self, envelope: Envelope, parts: Sequence[Buffer], *, to: PeerId | None = None
    ) -> None:
        """Count a message that was handed to the network, and its receiver if that is a member."""
        size = sum(len(part) for part in parts)
        body = envelope.body
        self.messages += 1
        self.frames += len(parts) > 1
        self.bytes_sent += size
        if isinstance(body, Hello | Leave):
            self.membership_bytes += size
        if to is not None:
            link = self.link(to)
            link.bytes_sent += size
            if isinstance(body, Hello) and body.reply:
                link.asked_s = time.monotonic()

    def note_received(self, envelope: Envelope, size_bytes: int) -> None:
        """Count a message that the protocol has accepted."""
        link, body = self.link(envelope.source), envelope.body
        link.bytes_received += size_bytes
        if isinstance(body, Hello) and not body.reply and link.asked_s is not None:
            link.roundtrip_s, link.asked_s = time.monotonic() - link.asked_s, None

    def count(self, effect: Effect | Event) -> None:
        """Count one effect."""
        match effect:
            case Entry(kind=Kind.PUSHED) as entry:
                self.pushes += 1
                self.link(entry.peer).pushes += 1
            case Entry(kind=Kind.SETTLED, weight=0) as entry:
                self.refusals += 1
                self.link(entry.peer).refusals += 1
            case PushSkipped(reason=reason) | ShareRefused(reason=reason):
                is_push = isinstance(effect, PushSkipped)
                self.skipped += is_push
                self.refused += not is_push
                self.no_memory += reason == NO_MEMORY
            case ShareMixed():
                self.mixed += 1
                self.staleness_steps += effect.staleness_steps
                self.staleness_steps_max = max(self.staleness_steps_max, effect.staleness_steps)
                self.link(effect.sender).mixed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStats:
    """Figures of a peer at one time."""

    id: PeerId
    counters: Counters
    memory_bytes: int = 0
    """Memory of shares in flight, and kept for the next ones, in addition to the model."""
    model_bytes: int = 0
    """Size of the vector itself."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Last measurements of the loop: ``loss``, ``accuracy``, ``test_loss``."""
    rule: str = ""
    """Name of the rule."""
    p: float | None = None
    """The rule's parameter ``p``, if it has one."""
    topology: str = ""
    """Spec of the graph."""
    addresses: tuple[str, ...] = ()
    """All addresses that others may dial; empty if it only dials out."""
    metrics_url: str | None = None
    """URL of its metrics for Prometheus; None while they are not served."""
    swarm: str = ""
    """Hash of its swarm's first model, 32 hexadecimal digits; empty before it joins one."""
    steps: int = 0
    """Optimizer steps, including those before the checkpoint it resumed from."""
    swarm_steps: int = 0
    """Optimizer steps of all peers that were ever in the swarm, as far as this one knows."""
    weights: tuple[int, ...] = (0,)
    """Weight held of each shard, in quanta, without escrow."""
    escrowed: int = 0
    """Weight pushed and not settled yet, over all shards, in quanta."""
    queue: int = 0
    """Shares that have arrived, or are arriving, and are not mixed yet."""
    members: tuple[PeerId, ...] = ()
    """Sorted ids of all members that are considered alive, this peer included."""
    met: frozenset[tuple[PeerId, Incarnation]] = frozenset()
    """Incarnations that were in its swarm at the same time, its own included."""
    ended_by: str = ""
    """See `Peer.ended_by`."""
    has_left: bool = False
    """True if it left before the others were done, or is leaving."""

    @property
    def address(self) -> str | None:
        """Address where others reach it, the first of `addresses`."""
        return self.addresses[0] if self.addresses else None

    @property
    def weight(self) -> float:
        """Weight that it holds, in founders; with shards, the mean over them."""
        return founders(sum(self.weights)) / len(self.weights)

    @property
    def escrow(self) -> float:
        """Weight that it has pushed and is not settled yet, in the same unit."""
        return founders(self.escrowed) / len(self.weights)

    @property
    def weight_units(self) -> Units:
        """Exact weight held over all shards, without escrow: a whole number of units, or text such
        as ``"5/2^30"``, see `gossip.weight.from_units`."""
        return in_units(sum(self.weights))


def protocol_stats(protocol: Protocol) -> dict[str, Any]:
    """Return the fields of `PeerStats` that a protocol knows; call it under the protocol's lock."""
    return {
        "swarm": protocol.swarm.hex(),
        "escrowed": sum(o.escrow for a in protocol.accounts for o in a.outstanding.values()),
        "queue": protocol.staged,
        "swarm_steps": protocol.state.swarm_steps,
        "weights": tuple(account.weight for account in protocol.accounts),
        "members": tuple(member.id for member in protocol.table.live()),
    }


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a peer.

    Rows of ``metrics.jsonl``, loggers, ``rumor top --json`` and the page use its name; for
    Prometheus, ``rumor_`` goes before it, and ``_total`` after that of a counter.
    """

    name: str
    unit: str
    """Unit; empty for a dimensionless number."""
    help: str
    get: Callable[[PeerStats], float | None]
    """Reads the value; returns None if it is unknown."""
    is_counter: bool = False
    """True if it counts from the start of the peer, and never falls."""


def _counter(name: str, unit: str, help: str) -> Metric:
    return Metric(name, unit, help, attrgetter(f"counters.{name}"), is_counter=True)


def _measured(name: str, help: str) -> Metric:
    return Metric(name, "", help, lambda stats: stats.measured.get(name))


METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric("weight", "founders", "Weight that this peer holds.", attrgetter("weight")),
        Metric("escrow", "founders", "Weight pushed and not settled.", attrgetter("escrow")),
        Metric("queue", "shares", "Shares that came and are not mixed yet.", attrgetter("queue")),
        Metric(
            *("live", "members", "Members believed to run, with this one."),
            lambda stats: len(stats.members),
        ),
        _counter("pushes", "shares", "Shares pushed."),
        _counter("skipped", "pushes", "Pushes due without weight, neighbor, credit or memory."),
        _counter("refusals", "shares", "Pushes that came back whole."),
        _counter("refused", "shares", "Shares of others that were sent back."),
        _counter("mixed", "shares", "Shares mixed in."),
        _counter("no_memory", "shares", "Pushes skipped and shares refused for want of memory."),
        # Not a counter: it falls when a share comes from a peer that is ahead.
        Metric(
            *("staleness_steps_sum", "steps", "Steps by which all shares mixed in were behind."),
            attrgetter("counters.staleness_steps"),
        ),
        Metric(
            *("staleness_steps_max", "steps", "Staleness of the share that was farthest behind."),
            attrgetter("counters.staleness_steps_max"),
        ),
        _counter("messages", "messages", "Messages handed to the network."),
        _counter("frames", "messages", "Those that carried a part of a share."),
        _counter("bytes_sent", "bytes", "Bytes handed to the network."),
        _counter("membership_bytes", "bytes", "Sent bytes that say who lives."),
        _counter("bytes_received", "bytes", "Bytes received."),
        _counter("errors", "messages", "Messages dropped for breaking the protocol."),
        Metric(
            *("memory_bytes", "bytes", "Memory of shares on their way, in addition to the model."),
            attrgetter("memory_bytes"),
        ),
        Metric(
            *("model_bytes", "bytes", "Size of the vector itself."),
            attrgetter("model_bytes"),
        ),
        _measured("loss", "Loss on the last batch that the loop reported."),
        _measured("accuracy", "Accuracy on held-out data, the last measured."),
        _measured("test_loss", "Loss on held-out data, the last measured."),
    )
}
"""Metrics by name."""
