"""Addresses as people write them: ``host:port`` or ``tcp://host:port``."""

import re

from .errors import ConfigError

__all__ = ["is_loopback", "is_wildcard", "join_address", "parse_address", "split_address"]

_SHAPE = re.compile(
    r"(?:tcp://)?(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[\w.-]+|\*):(?P<port>\d{1,9}|\*)", re.ASCII
)
_PORT_MAX = 65_535


def parse_address(text: str, *, any_port: bool = False) -> str:
    """Bring an address into the one form that is used inside.

    Args:
        text: Such as ``node-a:7700``, ``tcp://10.0.0.5:7700`` or ``[::1]:7700``.
        any_port: Whether port ``*`` (or 0), "the system's choice", and host ``*``, "all
            interfaces", are allowed: for binding only.

    Returns:
        The address as ``tcp://host:port``.

    Raises:
        ConfigError: It has another form, or the port is out of range.

    >>> parse_address("node-a:7700")
    'tcp://node-a:7700'
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"address {text!r} is malformed: write HOST:PORT, such as 10.0.0.5:7700, "
            f"node-a:7700 or [::1]:7700"
        )
    host, port = match["host"], match["port"].lstrip("0") or "*"
    if port == "*" and not any_port:
        raise ConfigError(f"address {text!r} needs a port from 1 to {_PORT_MAX}")
    if host == "*" and not any_port:
        raise ConfigError(f"address {text!r} needs a host: * is no place to dial")
    if port != "*" and int(port) > _PORT_MAX:
        raise ConfigError(f"address {text!r}: the port must be from 1 to {_PORT_MAX}")
    return f"tcp://{host}:{port}"


def split_address(address: str) -> tuple[str, str]:
    """Host, without brackets, and port of an address in the inner form.

    >>> split_address("tcp://[::1]:7700")
    ('::1', '7700')
    """
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    return host.strip("[]"), port


def join_address(host: str, port: str) -> str:
    """The address in the inner form of a host, without brackets, and a port.

    >>> join_address("::1", "7700")
    'tcp://[::1]:7700'
    """
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    host = split_address(address)[0]
    return host in ("localhost", "::1") or host.startswith("127.")


def is_wildcard(address: str) -> bool:
    """Whether an address binds all of a machine's interfaces."""
    return split_address(address)[0] in ("0.0.0.0", "::", "*")
