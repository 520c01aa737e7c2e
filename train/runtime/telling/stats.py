"""All figures of one peer at one time, and the table that describes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from ....gossip.protocol.protocol import Protocol
from ....gossip.types import Incarnation, PeerId
from ....gossip.weight import Units, founders, in_units
from ...tasks.task import Evaluation
from .counters import Counters

__all__ = ["METRICS", "AverageEvaluation", "Metric", "PeerStats", "protocol_stats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageEvaluation:
    """Evaluation of the average on held-out data, at a step of the peer that measured it."""

    step: int
    evaluation: Evaluation
    peers: int
    """Number of models in the average."""
    missing: tuple[str, ...]
    """Live peers that are not in it, see `Peer.average`."""
    wall_s: float
    """Time to read, average and evaluate, seconds."""

    def as_row(self) -> dict[str, Any]:
        """Return its part of a row of metrics."""
        return {
            "average_accuracy": self.evaluation.accuracy,
            "average_test_loss": self.evaluation.loss,
            "average_peers": self.peers,
            "average_missing": list(self.missing),
        }


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
    averaged: AverageEvaluation | None = None
    """This peer's last evaluation of the average of all."""
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
