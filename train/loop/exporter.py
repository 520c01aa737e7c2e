"""A peer's metrics for Prometheus, read at each scrape."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...gossip.errors import ConfigError, how_to_install
from ...gossip.transport.addresses import PORT_MAX, bind_error, join_address

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from ..runtime.telling.stats import PeerStats  # imports torch, and settings are read without

__all__ = ["Exporter", "check_metrics_port", "require_free_ports"]


class Exporter:
    """Serves a peer's metrics at ``/metrics`` until it is closed; port 0 for a free one.

    Each scrape reads counters on a thread of the server, and holds no lock while the peer steps.

    Raises:
        ConfigError: The port is in use, or not available.
    """

    def __init__(
        self, stats: "Callable[[], PeerStats]", port: int, host: str = "127.0.0.1"
    ) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

        registry = CollectorRegistry()
        self._stats = stats
        registry.register(self)
        ProcessCollector(registry=registry)
        self._registry = registry
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise _port_in_use(host, port, error) from None
        address = join_address(host, str(self._server.server_port))
        self.url = f"http://{address.removeprefix('tcp://')}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        # The server's classes were created for it, and a class is a reference cycle, so it stays
        # for a while.
        self._registry.unregister(self)

    def collect(self) -> "Iterator[Metric]":
        """Yield all metrics at a scrape; before the peer is in a swarm, only its identity."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            InfoMetricFamily,
        )

        from ..runtime.telling.stats import METRICS

        stats = self._stats()
        labels = {"peer": stats.id, "rule": stats.rule, "topology": stats.topology}
        labels["swarm"] = stats.swarm
        yield InfoMetricFamily("rumor_peer", "Identity of this peer.", value=labels)
        if not stats.swarm:
            return
        yield CounterMetricFamily("rumor_steps", "Optimizer steps of this peer.", stats.steps)
        help = "Optimizer steps of all peers, as this one knows."
        yield GaugeMetricFamily("rumor_swarm_steps", help, stats.swarm_steps)
        for metric in METRICS.values():
            if (value := metric.get(stats)) is not None:
                family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                yield family(f"rumor_{metric.name}", metric.help, value)


def check_metrics_port(port: int, peers: int = 1) -> None:
    """Check that *peers* ports, from *port* on, are in range, and that prometheus_client is
    installed; raise `ConfigError` if not."""
    if not 0 <= port <= PORT_MAX or (port and port + peers - 1 > PORT_MAX):
        several = f" for {peers} peers" if peers > 1 else ""
        raise ConfigError(
            f"metrics_port is {port}{several}: ports go from 1 to {PORT_MAX}; 0 is a free one"
        )
    if find_spec("prometheus_client") is None:
        raise ConfigError(
            f"metrics_port needs a package that is not installed: {how_to_install('prometheus')}"
        )


def require_free_ports(port: int, peers: int, host: str = "127.0.0.1") -> None:
    """Check ports as `check_metrics_port` does, and that they are free; port 0 always passes."""
    check_metrics_port(port, peers)
    for each in range(port, port + peers) if port else ():
        if error := bind_error(host, each):
            raise _port_in_use(host, each, error)


def _port_in_use(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"metrics cannot be served at {host}:{port} ({error.strerror or error}): choose another "
        "metrics_port, or 0 for a free one"
    )
