"""A peer's figures for Prometheus, read when they are scraped."""

import socket as sockets
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

from ...gossip import Rule
from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import join_address, split_address
from ..runtime.counters import Counters

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = [
    "Configured",
    "Exported",
    "Exporter",
    "check_metrics_port",
    "host_of",
    "require_free_ports",
]

_PORT_MAX: Final = 65_535


class Configured(Protocol):
    """The part of a `PeerConfig` that it is told of."""

    @property
    def topology(self) -> str:
        """Spec of the graph."""


class Exported(Protocol):
    """The part of a `Peer` that Prometheus is told of; it is read on threads of the server."""

    id: str
    rule: Rule
    counters: Counters

    @property
    def config(self) -> Configured:
        """Its settings."""

    @property
    def swarm(self) -> str:
        """As `Peer` has it, and so the others; empty before it belongs to one."""

    @property
    def steps(self) -> int:
        """Its own."""

    @property
    def swarm_steps(self) -> int:
        """Of all peers."""

    @property
    def weight(self) -> float:
        """In founders."""

    @property
    def queue(self) -> int:
        """Shares not mixed yet."""

    @property
    def live(self) -> tuple[str, ...]:
        """Ids."""

    @property
    def told(self) -> dict[str, float]:
        """What the loop measured last: ``loss``, ``accuracy``, ``test_loss``."""


# Name, field of the counters, help. Prometheus adds _total.
_COUNTERS: Final = (
    ("rumor_pushes", "pushes", "Shares pushed."),
    ("rumor_skipped_pushes", "skipped", "Pushes due without weight, neighbor or credit."),
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


def check_metrics_port(port: int, peers: int = 1) -> None:
    """Make sure that so many ports can be served, from *port* on.

    Raises:
        ConfigError: One is no port, or prometheus_client is not installed.
    """
    if not 0 <= port <= _PORT_MAX or (port and port + peers - 1 > _PORT_MAX):
        several = f" for {peers} peers" if peers > 1 else ""
        raise ConfigError(
            f"metrics_port is {port}{several}: ports go from 1 to {_PORT_MAX}; 0 is a free one"
        )
    if find_spec("prometheus_client") is None:
        raise ConfigError(
            "metrics_port needs a package that is not installed: pip install 'rumor[prometheus]'"
        )


def require_free_ports(port: int, peers: int, host: str = "127.0.0.1") -> None:
    """Make sure that nobody listens on the ports of so many peers; with port 0, all are free.

    Raises:
        ConfigError: One is in use, and named; or see `check_metrics_port`.
    """
    check_metrics_port(port, peers)
    for each in range(port, port + peers) if port else ():
        with sockets.socket() as probe:
            probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            try:
                probe.bind((host, each))
            except OSError as error:
                raise _in_use(host, each, error) from None


def _in_use(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"metrics cannot be served at {host}:{port} ({error.strerror or error}): choose another "
        "metrics_port, or 0 for a free one"
    )


class Exporter:
    """Serves a peer's figures at ``/metrics`` until it is closed.

    Nothing is counted for it: each scrape reads what the peer has counted, and holds no lock
    while the peer takes a step or waits for a round.

    Args:
        peer: Whose.
        port: Where; 0 for a free one.
        bind: The addresses that the peer listens on; the metrics are served at the first one's
            host, and at this machine's own where there is none.

    Raises:
        ConfigError: The port is in use, or cannot be had.
    """

    def __init__(self, peer: Exported, port: int, bind: str | Sequence[str] | None) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

        registry = CollectorRegistry()
        registry.register(_Collector(peer))
        ProcessCollector(registry=registry)
        host = host_of(bind)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise _in_use(host, port, error) from None
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


def host_of(bind: str | Sequence[str] | None) -> str:
    """Where the metrics of a peer that listens at *bind* are served."""
    if not bind:
        return "127.0.0.1"
    address = bind if isinstance(bind, str) else bind[0]
    host = split_address(address)[0]
    # A star means all interfaces to ZeroMQ alone.
    return "0.0.0.0" if host == "*" else host


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
        if mixed := peer.counters.mixed:
            # No counter: a sender may be ahead, so that the sum falls now and then.
            mean = peer.counters.staleness_steps / mixed
            help = "Steps that the senders of the shares mixed in were behind, the mean of all."
            yield GaugeMetricFamily("rumor_staleness_steps_mean", help, mean)
        for name, value in peer.told.items():
            yield GaugeMetricFamily(f"rumor_{name}", _TOLD[name], value)
