"""Where a peer's metrics may be served: checked before anything is started."""

import socket as sockets
from importlib.util import find_spec

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import PORT_MAX

__all__ = ["check_metrics_port", "port_in_use", "require_free_ports"]


def check_metrics_port(port: int, peers: int = 1) -> None:
    """Make sure that so many ports can be served, from *port* on.

    Raises:
        ConfigError: One is no port, or prometheus_client is not installed.
    """
    if not 0 <= port <= PORT_MAX or (port and port + peers - 1 > PORT_MAX):
        several = f" for {peers} peers" if peers > 1 else ""
        raise ConfigError(
            f"metrics_port is {port}{several}: ports go from 1 to {PORT_MAX}; 0 is a free one"
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
                raise port_in_use(host, each, error) from None


def port_in_use(host: str, port: int, error: OSError) -> ConfigError:
    """What to say where metrics cannot be served."""
    return ConfigError(
        f"metrics cannot be served at {host}:{port} ({error.strerror or error}): choose another "
        "metrics_port, or 0 for a free one"
    )
