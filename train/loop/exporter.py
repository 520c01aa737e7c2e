"""A peer's figures for Prometheus, read when they are scraped."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from ...gossip.transport.addresses import join_address
from ..tensors.buffers import MemoryUse
from .metrics import Observed
from .metrics_port import port_in_use

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = [
    "Configured",
    "Exported",
    "Exporter",
]


class Configured(Protocol):
    """The part of a `PeerConfig` that it is told of."""

    @property
    def topology(self) -> str:
        """Spec of the graph."""


class Exported(Observed, Protocol):
    """The part of a `Peer` that Prometheus is told of; it is read on threads of the server."""

    @property
    def config(self) -> Configured:
        """Its settings."""

    def memory(self) -> MemoryUse:
        """What shares on their way take."""

    @property
    def told(self) -> dict[str, float]:
        """What the loop measured last: ``loss``, ``accuracy``, ``test_loss``."""


# Name, field of the counters, help. Prometheus adds _total.
_COUNTERS: Final = (
    ("rumor_pushes", "pushes", "Shares pushed."),
    ("rumor_skipped_pushes", "skipped", "Pushes due without weight, neighbor, credit or memory."),
    ("rumor_no_memory", "no_memory", "Pushes skipped and shares refused for want of memory."),
    ("rumor_refused_pushes", "refusals", "Pushes that came back whole."),
    ("rumor_mixed_shares", "mixed", "Shares mixed in."),
    ("rumor_sent_messages", "messages", "Messages handed to the network."),
    ("rumor_sent_bytes", "bytes_sent", "Bytes handed to the network."),
    ("rumor_membership_bytes", "membership_bytes", "Sent bytes that say who lives."),
    ("rumor_received_bytes", "bytes_received", "Bytes received."),
    ("rumor_dropped_messages", "errors", "Messages dropped for breaking the protocol."),
)

_TOLD: Final = {
    "loss": "Loss on the last batch that the loop told of.",
    "accuracy": "Accuracy on held-out data, the last measured.",
    "test_loss": "Loss on held-out data, the last measured.",
}


class Exporter:
    """Serves a peer's figures at ``/metrics`` until it is closed.

    Nothing is counted for it: each scrape reads what the peer has counted, and holds no lock
    while the peer takes a step or waits for a round.

    Args:
        peer: Whose.
        port: Where; 0 for a free one.
        host: The address of this machine at which it is served.

    Raises:
        ConfigError: The port is in use, or cannot be had.
    """

    def __init__(self, peer: Exported, port: int, host: str = "127.0.0.1") -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

        registry = CollectorRegistry()
        self._collector = _Collector(peer)
        registry.register(self._collector)
        ProcessCollector(registry=registry)
        self._registry = registry
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise port_in_use(host, port, error) from None
        self.port = self._server.server_port
        """Where it is served."""
        address = join_address(host, str(self.port))
        self.url = f"http://{address.removeprefix('tcp://')}/metrics"
        """The same, whole."""

    def close(self) -> None:
        """Serve nothing any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        # The server's classes were made for it, and a class is a cycle: it stays for a while.
        self._registry.unregister(self._collector)


class _Collector:
    """Makes metrics of a peer at each scrape."""

    def __init__(self, peer: Exported) -> None:
        self._peer = peer

    def collect(self) -> "Iterator[Metric]":
        """All metrics; before the peer belongs to a swarm, only who it is."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            InfoMetricFamily,
        )

        peer = self._peer
        swarm = peer.swarm
        labels = {"peer": peer.id, "rule": peer.rule.name, "topology": peer.config.topology}
        labels["swarm"] = swarm
        yield InfoMetricFamily("rumor_peer", "Who this is.", value=labels)
        if not swarm:
            return
        yield CounterMetricFamily("rumor_steps", "Optimizer steps of this peer.", peer.steps)
        for name, field, help in _COUNTERS:
            yield CounterMetricFamily(name, help, getattr(peer.counters, field))
        gauges = {
            "rumor_swarm_steps": ("Steps of all peers, as this one knows.", peer.swarm_steps),
            "rumor_weight": ("Weight that this peer holds, in founders.", peer.weight),
            "rumor_live_members": ("Members believed to run, with this one.", len(peer.live)),
            "rumor_queued_shares": ("Shares that came and are not mixed yet.", peer.queue),
        }
        for name, (help, value) in gauges.items():
            yield GaugeMetricFamily(name, help, value)
        yield _memory(peer.memory())
        if mixed := peer.counters.mixed:
            # No counter: a sender may be ahead, so that the sum falls now and then.
            mean = peer.counters.staleness_steps / mixed
            help = "Steps that the senders of the shares mixed in were behind, the mean of all."
            yield GaugeMetricFamily("rumor_staleness_steps_mean", help, mean)
        for name, value in peer.told.items():
            yield GaugeMetricFamily(f"rumor_{name}", _TOLD[name], value)


def _memory(use: MemoryUse) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    help = "Memory that shares on their way take beside the model."
    family = GaugeMetricFamily("rumor_memory_bytes", help, labels=("kind",))
    for kind in ("snapshots", "segments", "staged", "idle"):
        family.add_metric([kind], getattr(use, f"{kind}_bytes"))
    return family
