"""Parse addresses, and resolve host names outside of the network thread.

ZeroMQ resolves names in its only I/O thread. A name server that does not answer would block every
message of every connection until its timeout, and again at each reconnect.
"""

import errno
import ipaddress
import re
import resource
import socket as sockets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ..errors import ConfigError

__all__ = [
    "PORT",
    "PORT_MAX",
    "Resolver",
    "allow_more_files",
    "bind_advice",
    "bind_error",
    "is_loopback",
    "is_name_of_many",
    "is_own",
    "is_wildcard",
    "join_address",
    "key_in",
    "local_host",
    "look_up",
    "parse_address",
    "parse_seed",
    "sockets_max",
    "split_address",
    "with_key",
    "without_key",
]


_SHAPE = re.compile(
    r"(?:tcp://)?(?:(?P<key>[A-Za-z0-9_-]{43})@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|(?!\d+$)[\w.-]+|\*)(?::(?P<port>\d{1,9}|\*))?",
    re.ASCII,
)
PORT: Final = 7700
"""Port of an address that names none."""
PORT_MAX: Final = 65_535


def parse_address(text: str, *, any_port: bool = False) -> str:
    """Convert an address to the inner form, ``tcp://host:port`` or ``tcp://key@host:port``.

    Args:
        text: Such as ``node-a``, ``tcp://10.0.0.5:7701`` or ``[::1]:7701``, with port 7700 by
            default; with ``KEY@`` before the host if the machine's public key is known.
        any_port: Allow port ``*`` (or 0), "the system's choice", and host ``*``, "all
            interfaces"; for binding only.

    >>> parse_address("node-a"), parse_address("node-a:7701")
    ('tcp://node-a:7700', 'tcp://node-a:7701')
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"address {text!r} is malformed: write HOST or HOST:PORT, such as 10.0.0.5, "
            f"node-a:7700 or [::1]:7700"
        )
    host, port = match["host"], (match["port"] or str(PORT)).lstrip("0") or "*"
    if port == "*" and not any_port:
        raise ConfigError(f"address {text!r} needs a port from 1 to {PORT_MAX}")
    if host == "*" and not any_port:
        raise ConfigError(f"address {text!r} needs a host: * cannot be dialed")
    if port != "*" and int(port) > PORT_MAX:
        raise ConfigError(f"address {text!r}: the port must be from 1 to {PORT_MAX}")
    if match["key"] and any_port:
        raise ConfigError(f"address {text!r} has a key: to listen, it is given by --key")
    return with_key(f"tcp://{host}:{port}", match["key"] or "")


_OF_MANY: Final = "dns:"


def parse_seed(text: str) -> str:
    """Convert a seed address to the inner form, except ``dns:NAME:PORT``, for all addresses of a
    name.

    >>> parse_seed("dns:swarm.default.svc:7700")
    'dns:swarm.default.svc:7700'
    """
    if not is_name_of_many(text.strip()):
        return parse_address(text)
    name = text.strip().removeprefix(_OF_MANY)
    address = parse_address(name)
    if key_in(address):
        raise ConfigError(f"{text!r}: several machines have a name, and each a key of its own")
    return _OF_MANY + address.removeprefix("tcp://")


def is_name_of_many(address: str) -> bool:
    """True for ``dns:NAME:PORT``."""
    return address.startswith(_OF_MANY)


def with_key(address: str, key: str) -> str:
    """Return an address in the inner form with a public key, replacing any other key."""
    bare = without_key(address)
    return f"tcp://{key}@{bare.removeprefix('tcp://')}" if key else bare


def without_key(address: str) -> str:
    """Return an address in the inner form without a public key."""
    return f"tcp://{address.removeprefix('tcp://').rpartition('@')[2]}"


def key_in(address: str) -> str:
    """Return the public key in an address in the inner form; empty without one."""
    return address.removeprefix("tcp://").rpartition("@")[0]


def split_address(address: str) -> tuple[str, str]:
    """Return the host, without brackets, and port of an address in the inner form.

    >>> split_address("tcp://[::1]:7700")
    ('::1', '7700')
    """
    host, port = address.removeprefix("tcp://").rpartition("@")[2].rsplit(":", 1)
    return host.strip("[]"), port


def join_address(host: str, port: str) -> str:
    """Return the inner form of a host, given without brackets, and a port."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def is_loopback(address: str) -> bool:
    """True if only this machine can reach an address."""
    host = split_address(address)[0]
    return host in ("localhost", "::1") or host.startswith("127.")


def is_wildcard(address: str) -> bool:
    """True if an address binds all interfaces."""
    return split_address(address)[0] in ("0.0.0.0", "::", "*")


def bind_error(host: str, port: int) -> OSError | None:
    """Return why nothing can listen at a port of this machine; None if it is free."""
    family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
    with sockets.socket(family) as probe:
        probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def bind_advice(address: str, code: int | None) -> str:
    """Return advice about an address that cannot be bound, by the system's error number."""
    host, port = split_address(address)
    if code in (errno.ENODEV, sockets.EAI_NONAME, sockets.EAI_AGAIN):
        return (
            f"{host} is neither a network interface of this machine nor a name that resolves: "
            "bind one of its addresses, or 0.0.0.0 for all of them"
        )
    if code == errno.EADDRNOTAVAIL:
        return (
            f"{host} is not an address of this machine: bind one of its own, or 0.0.0.0 for all of "
            "them, and advertise the address that others are to dial"
        )
    if code == errno.EADDRINUSE:
        return f"port {port} is in use: free it, or bind another; * lets the system choose one"
    if code == errno.EACCES:
        return f"port {port} is reserved for the system: bind one above 1023"
    return "bind another address of this machine"


# Lifetime of a cached result; after that the name is resolved again when next requested.
_BELIEVED_S: Final = 30.0
_THREADS_MAX: Final = 16
_PLACES_MAX: Final = 4


@dataclass(slots=True)
class _Found:
    places: tuple[str, ...] = ()
    why: str = ""
    since_s: float | None = None
    searching: bool = False


class Resolver:
    """Resolves names in addresses in background threads, so that callers never wait."""

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}
        self._threads = 0
        self._lock = threading.Lock()

    def places(self, address: str) -> tuple[str, ...]:
        """Return the numeric addresses of an address, as far as known: ask again later."""
        if _is_number(split_address(address)[0]):
            return (address,)
        with self._lock:
            found = self._found.setdefault(address, _Found())
            is_old = found.since_s is None or time.monotonic() - found.since_s > _BELIEVED_S
            if is_old and not found.searching and self._threads < _THREADS_MAX:
                found.searching = True
                self._threads += 1
                # A lookup cannot be canceled, but a daemon thread does not block process exit.
                threading.Thread(target=self._search, args=(address, found), daemon=True).start()
            return found.places

    def why_not(self, address: str) -> str:
        """Return the system's reason why an address did not resolve, or an empty string."""
        with self._lock:
            found = self._found.get(address)
            return "" if found is None or found.places else found.why

    def _search(self, address: str, found: _Found) -> None:
        places, why = look_up(address)
        with self._lock:
            # If the name server is out of reach, the last result is still the best guess.
            found.places = places[:_PLACES_MAX] or found.places
            found.why = why
            found.since_s = time.monotonic()
            found.searching = False
            self._threads -= 1


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def look_up(address: str) -> tuple[tuple[str, ...], str]:
    """Return the numeric addresses of an address, or the system's reason why there are none."""
    host, port = split_address(address)
    try:
        answers = sockets.getaddrinfo(host, int(port), type=sockets.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return (), getattr(error, "strerror", None) or str(error)
    key = key_in(address)
    places = dict.fromkeys(
        with_key(join_address(str(answer[4][0]), port), key) for answer in answers
    )
    return tuple(places), ""


def local_host(toward: str | None = None) -> str:
    """Return this machine's address (of IPv6 if *toward* is) on the interface toward a host."""
    # Without a route it is the machine's name.
    family = sockets.AF_INET6 if ":" in (toward or "") else sockets.AF_INET
    with sockets.socket(family, sockets.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing, but selects a route.
            probe.connect((toward or "192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except (OSError, UnicodeError):  # the latter for an invalid name
            return sockets.gethostname()


def is_own(host: str) -> bool:
    """True if a host is this machine; a name that does not resolve is another one."""
    if host == sockets.gethostname():
        return True
    with suppress(OSError, UnicodeError):
        for family, kind, _, _, place in sockets.getaddrinfo(host, 0, type=sockets.SOCK_DGRAM):
            with sockets.socket(family, kind) as probe, suppress(OSError):
                # The system binds only addresses of its own interfaces.
                probe.bind(place)
                return True
    return False


_FILES_WANTED: Final = 65_536
_SOCKETS_MAX: Final = 8192


def allow_more_files() -> None:
    """Raise the limit on open files for this process and its children, as far as is allowed."""
    # A neighbor takes two sockets, which are four files, and as many again if it also dials: the
    # usual 1,024 are not enough for 128 neighbors.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def sockets_max() -> int:
    """Return the most sockets that a process may have, from its limit on open files."""
    # A dialing socket takes two files. As many are left for incoming connections and other files.
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = files_max == resource.RLIM_INFINITY
    return _SOCKETS_MAX if unlimited else min(_SOCKETS_MAX, files_max // 4)
