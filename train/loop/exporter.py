"""A peer's figures for Prometheus, read when they are scraped."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...gossip.transport.addresses import join_address
from ..runtime.telling.stats import METRICS, PeerStats
from .metrics_port import port_in_use

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["Exporter"]


class Exporter:
    """Serves a peer's figures at ``/metrics`` until it is closed.

    Nothing is counted for it: each scrape reads what the peer has counted, and holds no lock
    while the peer takes a step or waits for a round.

    Args:
        stats: Reads the peer's figures, on threads of the server.
        port: Where; 0 for a free one.
        host: The address of this machine at which it is served.

    Raises:
        ConfigError: The port is in use, or cannot be had.
    """

    def __init__(self, stats: Callable[[], PeerStats], port: int, host: str = "127.0.0.1") -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

        registry = CollectorRegistry()
        self._collector = _Collector(stats)
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

    def __init__(self, stats: Callable[[], PeerStats]) -> None:
        self._stats = stats

    def collect(self) -> "Iterator[Metric]":
        """All metrics; before the peer belongs to a swarm, only who it is."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            InfoMetricFamily,
        )

        stats = self._stats()
        labels = {"peer": stats.id, "rule": stats.rule, "topology": stats.topology}
        labels["swarm"] = stats.swarm
        yield InfoMetricFamily("rumor_peer", "Who this is.", value=labels)
        if not stats.swarm:
            return
        yield CounterMetricFamily("rumor_steps", "Optimizer steps of this peer.", stats.steps)
        help = "Optimizer steps of all peers, as this one knows."
        yield GaugeMetricFamily("rumor_swarm_steps", help, stats.swarm_steps)
        for metric in METRICS.values():
            if (value := metric.get(stats)) is not None:
                family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                yield family(f"rumor_{metric.name}", metric.help, value)
