"""The file that names machines: one line each, with its own settings."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import PORT_MAX, is_loopback, join_address, parse_address

__all__ = ["SLOTS_MAX", "Host", "read_hosts"]

SLOTS_MAX: Final = 1024

_KEYS: Final = ("slots", "device", "dir", "python", "address", "listen")
"""Fields of a `Host` that a line may set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine."""

    line: int
    """Its line in the file."""

    name: str
    """Name for ssh: with ``user@`` in front, for instance, or from its own config file."""

    address: str
    """Address for other machines, without brackets."""

    slots: int = 1
    """Number of peers there."""

    device: str | None = None
    """Device as in ``rumor run --device``, or several separated by commas, which its peers use in
    turn; default: that of the run."""

    dir: str = "."
    """Folder where peers run; a relative path starts at the home folder, as ssh does."""

    python: str | None = None
    """The interpreter with rumor; default: the launcher's own path if that exists, else python3."""

    listen: int | None = None
    """The first port of its peers; default: that of the run."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its peers."""


def read_hosts(path: Path) -> tuple[Host, ...]:
    """Read the machines from a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    hosts: list[Host] = []
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
            if words:
                host = _parse(number, words)
                if host.address in {other.address for other in hosts}:
                    raise ConfigError(f"{host.address} has a line already: give it more slots=")
                hosts.append(host)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
    if not hosts:
        raise ConfigError(f"{path} names no machine: write one address per line")
    near = [host for host in hosts if is_loopback(join_address(host.address, "1"))]
    if near and len(near) < len(hosts):
        raise ConfigError(
            f"{path}, line {near[0].line}: other machines cannot reach {near[0].address}: say with "
            "address= how they do"
        )
    return tuple(hosts)


def _parse(line: int, words: list[str]) -> Host:
    name = words[0]
    address = name.rpartition("@")[2].strip("[]")
    if not address or name.startswith("-") or "=" in name:
        raise ConfigError(f"{name!r} is not a machine: the address comes first")
    found: dict[str, Any] = {"line": line, "name": name, "address": address}
    variables: dict[str, str] = {}
    for word in words[1:]:
        key, equals, text = word.partition("=")
        if key.startswith("env:"):
            if not equals or not re.fullmatch(r"[A-Za-z_]\w*", key[4:], re.ASCII):
                raise ConfigError(f"{word!r}: write env:NAME=VALUE")
            variables[key[4:]] = text
            continue
        if key not in _KEYS or not text:
            known = ", ".join(f"{known}=" for known in _KEYS)
            raise ConfigError(f"{word!r} is not understood: known are {known} and env:NAME=")
        found[key] = text
        if most := {"slots": SLOTS_MAX, "listen": PORT_MAX}.get(key):
            if not (text.isascii() and text.isdecimal() and 0 < int(text) <= most):
                raise ConfigError(f"{word}: it must be a whole number from 1 to {most}")
            found[key] = int(text)
    parse_address(join_address(found["address"], "1"))
    return Host(**found, variables=variables)
