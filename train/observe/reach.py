"""How far a connection to an address comes, before any message: name, port, firewall, greeting."""

import errno
import resource
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ...gossip.transport.addresses import split_address

__all__ = ["Obstacle", "Reach", "mechanism_at", "reach", "reach_all"]

_AT_ONCE_MAX: Final = 32

# As ZMTP has it (RFC 23): a signature of ten bytes, the version, and the name of what keeps
# strangers out. An end says the rest of its greeting once it has the first eleven bytes of the
# other's.
_SIGNATURE: Final = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
_OPENING: Final = _SIGNATURE + b"\x03"
_MECHANISM: Final = slice(12, 32)

_SERVERS: Final = (
    (b"HTTP/", "an HTTP server"),
    (b"<", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (b"\x15\x03", "a TLS server"),
    (b"220", "a mail or FTP server"),
)


class Obstacle(StrEnum):
    """Why a connection comes no farther."""

    NAME = "name"
    """The name does not resolve."""
    CLOSED = "closed"
    """Nobody listens at the port."""
    SILENT = "silent"
    """Nothing comes back: a firewall drops it, or the machine is off."""
    UNREACHABLE = "unreachable"
    """There is no way there, or a firewall says so."""
    FILES = "files"
    """This process may not open another socket."""
    FOREIGN = "foreign"
    """Something listens there that is no peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far one connection came."""

    obstacle: Obstacle | None = None
    """What it met with; None where it was made."""
    why: str = ""
    """The same in words; empty where it was made."""
    place: str = ""
    """The number behind the name that was connected to."""
    is_here: bool = False
    """Whether the other end is on this machine, too."""
    mechanism: str = ""
    """Of ZeroMQ at the other end, ``NULL`` or, with keys, ``CURVE``; empty where not asked for."""


def reach(address: str, timeout_s: float) -> Reach:
    """Connect to an address, and say nothing there.

    Args:
        address: In the inner form; a key in it is passed over.
        timeout_s: How long each number behind the name may take, seconds.
    """
    met = None
    for found in _connected(address, timeout_s):
        if isinstance(found, Reach):
            met = met or found
            continue
        with found:
            return _made(found)
    assert met is not None, "a name that resolves stands for something"
    return met


def reach_all(addresses: Sequence[str], timeout_s: float) -> dict[str, Reach]:
    """`reach`, for several addresses at once."""
    if not addresses:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE_MAX, len(addresses))) as pool:
        found = pool.map(lambda address: reach(address, timeout_s), addresses)
        return dict(zip(addresses, found, strict=True))


def mechanism_at(address: str, timeout_s: float) -> Reach:
    """Connect, and exchange as much of a greeting as says what listens there."""
    met = None
    for found in _connected(address, timeout_s):
        if isinstance(found, Reach):
            met = met or found
            continue
        with found:
            return _greeted(found, timeout_s)
    assert met is not None, "a name that resolves stands for something"
    return met


def _connected(address: str, timeout_s: float) -> Iterator[socket.socket | Reach]:
    """A connection to each number behind a name, or why there is none."""
    host, port = split_address(address)
    try:
        answers = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        told = getattr(error, "strerror", None) or str(error)
        yield Reach(obstacle=Obstacle.NAME, why=f"the name {host} does not resolve ({told})")
        return
    for family, kind, protocol, _, place in answers:
        yield _connect(family, kind, protocol, place, timeout_s)


def _connect(
    family: int, kind: int, protocol: int, place: tuple[object, ...], timeout_s: float
) -> socket.socket | Reach:
    try:
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        return _failed(error, place, timeout_s)
    try:
        made.settimeout(timeout_s)
        made.connect(place)
    except OSError as error:
        made.close()
        return _failed(error, place, timeout_s)
    return made


def _failed(error: OSError, place: tuple[object, ...], timeout_s: float) -> Reach:
    where, told = str(place[0]), error.strerror or str(error)
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        why = f"nothing comes back from {where} within {timeout_s:g} s"
        return Reach(obstacle=Obstacle.SILENT, why=why, place=where)
    if isinstance(error, ConnectionResetError):
        why = f"what listens there hangs up ({told})"
        return Reach(obstacle=Obstacle.FOREIGN, why=why, place=where)
    if isinstance(error, ConnectionRefusedError):
        why = f"nobody listens at port {place[1]} of {where} (connection refused)"
        return Reach(obstacle=Obstacle.CLOSED, why=why, place=where)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        why = f"this process may not open another socket ({told}; at most {limit} files)"
        return Reach(obstacle=Obstacle.FILES, why=why, place=where)
    why = f"there is no way to {where} from this machine ({told})"
    return Reach(obstacle=Obstacle.UNREACHABLE, why=why, place=where)


def _made(connection: socket.socket, mechanism: str = "") -> Reach:
    here, there = connection.getsockname()[0], connection.getpeername()[0]
    return Reach(place=str(there), is_here=here == there, mechanism=mechanism)


def _greeted(connection: socket.socket, timeout_s: float) -> Reach:
    made = _made(connection)
    try:
        connection.settimeout(timeout_s)
        connection.sendall(_OPENING)
        told = _received(connection, _MECHANISM.stop)
        if not told:
            # Some servers wait for a whole line before they answer.
            connection.sendall(b"\r\n\r\n")
            told = _received(connection, _MECHANISM.stop)
    except OSError as error:
        why = f"what listens there hangs up ({error.strerror or error})"
        return Reach(obstacle=Obstacle.FOREIGN, why=why, place=made.place)
    name = next((what for start, what in _SERVERS if told.startswith(start)), "")
    if len(told) == _MECHANISM.stop and told[0] == 0xFF and told[9] == 0x7F:
        return _made(connection, told[_MECHANISM].rstrip(b"\0").decode("ascii", "replace"))
    if name:
        why = f"{name} listens there, not a peer"
    elif told:
        why = f"what listens there says {told[:16]!r}, which no peer does"
    else:
        why = "what listens there says nothing: it is no peer, or one that stands still"
    return Reach(obstacle=Obstacle.FOREIGN, why=why, place=made.place)


def _received(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer where no more come."""
    told = b""
    while len(told) < size:
        try:
            more = connection.recv(size - len(told))
        except TimeoutError:
            break
        if not more:
            break
        told += more
        if told[0] != 0xFF:
            break  # this is no greeting
    return told
