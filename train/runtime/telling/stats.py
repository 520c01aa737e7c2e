"""How one peer is doing: all its figures at one moment, and the table that says what they mean."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ....gossip.protocol.protocol import Protocol
from ....gossip.types import Incarnation, PeerId
from ....gossip.weight import Units, founders, in_units
from ...tasks.task import Evaluation
from .counters import Counters

if TYPE_CHECKING:
    from ...tensors.buffers import MemoryUse

__all__ = ["METRICS", "AverageEvaluation", "Metric", "PeerStats", "protocol_stats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageEvaluation:
    """The average on held-out data, at some step of the peer that measured it."""

    step: int
    evaluation: Evaluation
    peers: int
    """How many models it was made of."""
    missing: tuple[str, ...]
    """Live peers that are not in it, see `Peer.average`."""
    wall_s: float
    """How long it took to read, average and measure, seconds."""

    def as_row(self) -> dict[str, Any]:
        """What a row of metrics says of it."""
        return {
            "average_accuracy": self.evaluation.accuracy,
            "average_test_loss": self.evaluation.loss,
            "average_peers": self.peers,
            "average_missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStats:
    """What is known of a peer at one moment."""

    id: PeerId
    memory: "MemoryUse"
    """What shares on their way take beside the model."""
    counters: Counters
    measured: Mapping[str, float] = field(default_factory=dict)
    """What the loop measured last: ``loss``, ``accuracy``, ``test_loss``."""
    rule: str = ""
    """Name of the algorithm."""
    p: float | None = None
    """The rule's parameter of that name, where it has one."""
    topology: str = ""
    """Spec of the graph."""
    addresses: tuple[str, ...] = ()
    """All addresses that others may dial; empty where it only dials out."""
    metrics_url: str | None = None
    """Where Prometheus finds its metrics; None where they are not served, or not now."""
    swarm: str = ""
    """Hash of its swarm's first model, 32 hexadecimal digits; empty before it is in one."""
    steps: int = 0
    """Optimizer steps, those before the checkpoint it resumed from included."""
    swarm_steps: int = 0
    """Of all peers that ever were in the swarm, as far as this one knows."""
    weights: tuple[int, ...] = (0,)
    """Held of each shard, in quanta, without escrow."""
    escrowed: int = 0
    """Pushed and not settled yet, of all shards, in quanta."""
    queue: int = 0
    """Shares that have come, or are coming, and are not mixed yet."""
    members: tuple[PeerId, ...] = ()
    """Ids of all that are believed to run, this peer included, sorted."""
    met: frozenset[tuple[PeerId, Incarnation]] = frozenset()
    """All that have been in its swarm while it was, itself included."""
    averaged: AverageEvaluation | None = None
    """What this peer measured last of the average of all; see *evaluate* of `Peer`."""
    ended_by: str = ""
    """See `Peer.ended_by`."""
    has_left: bool = False
    """Whether it left before the others were done, or is leaving."""

    @property
    def address(self) -> str | None:
        """Where others reach it; the first of `addresses`."""
        return self.addresses[0] if self.addresses else None

    @property
    def weight(self) -> float:
        """What it holds, in founders; with shards, the mean over them."""
        return founders(sum(self.weights)) / len(self.weights)

    @property
    def escrow(self) -> float:
        """What it has pushed and is not settled yet, likewise."""
        return founders(self.escrowed) / len(self.weights)

    @property
    def weight_units(self) -> Units:
        """What it holds of all shards together, without escrow, exactly: a number of units where
        that is whole, else text such as ``"5/2^30"``, see `gossip.weight.from_units`."""
        return in_units(sum(self.weights))


def protocol_stats(protocol: Protocol) -> dict[str, Any]:
    """The fields of `PeerStats` that a protocol knows, read while no event changes it."""
    return {
        "swarm": protocol.swarm.hex(),
        "swarm_steps": protocol.state.swarm_steps,
        "weights": tuple(account.weight for account in protocol.accounts),
        "escrowed": sum(o.escrow for a in protocol.accounts for o in a.outstanding.values()),
        "queue": protocol.staged,
        "members": tuple(member.id for member in protocol.table.live()),
    }


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a peer.

    Rows of ``metrics.jsonl``, loggers, ``rumor top --json`` and the page call it by its name;
    Prometheus puts ``rumor_`` before it, and ``_total`` behind that of a counter.
    """

    name: str
    unit: str
    """Empty for a number without one."""
    help: str
    get: Callable[[PeerStats], float | None]
    """None where it is not known."""
    is_counter: bool = False
    """Whether it counts from the start of the peer on, and never falls."""


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
        # No counter: a sender may be ahead, so that it falls now and then.
        Metric(
            *(
                "staleness_steps_sum",
                "steps",
                "Steps by which all shares mixed in were behind.",
            ),
            attrgetter("counters.staleness_steps"),
        ),
        Metric(
            *("staleness_steps_max", "steps", "Of the share that was the farthest behind."),
            attrgetter("counters.staleness_steps_max"),
        ),
        _counter("messages", "messages", "Messages handed to the network."),
        _counter("frames", "messages", "Those that carried a part of a share."),
        _counter("bytes_sent", "bytes", "Bytes handed to the network."),
        _counter("membership_bytes", "bytes", "Sent bytes that say who lives."),
        _counter("bytes_received", "bytes", "Bytes received."),
        _counter("errors", "messages", "Messages dropped for breaking the protocol."),
        Metric(
            *("memory_bytes", "bytes", "Memory that shares on their way take beside the model."),
            attrgetter("memory.total_bytes"),
        ),
        Metric(
            *("model_bytes", "bytes", "Size of the vector itself."),
            attrgetter("memory.model_bytes"),
        ),
        _measured("loss", "Loss on the last batch that the loop reported."),
        _measured("accuracy", "Accuracy on held-out data, the last measured."),
        _measured("test_loss", "Loss on held-out data, the last measured."),
    )
}
"""By name."""
