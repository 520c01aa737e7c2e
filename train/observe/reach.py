"""Connect to an address as far as the greeting: name, port, firewall, and what listens there."""

import errno
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ...gossip.transport.addresses import split_address

__all__ = ["NotReached", "mechanism_at"]

# The opening of a ZMTP greeting (RFC 23): a signature of ten bytes and the version. The rest of
# the 64 bytes begins with a minor version and the name of the security mechanism.
_OPENING: Final = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03"
_MECHANISM: Final = slice(12, 32)

_SERVERS: Final = (
    (b"HTTP/", "an HTTP server"),
    (b"<", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (b"\x15\x03", "a TLS server"),
    (b"220", "a mail or FTP server"),
)


class NotReached(Exception):
    """No peer can be reached at an address.

    Args:
        cause: ``name``, ``closed``, ``silent``, ``unreachable`` or ``foreign``.
        why: The same in words.
    """

    def __init__(self, cause: str, why: str) -> None:
        super().__init__(why)
        self.cause = cause


def mechanism_at(address: str, timeout_s: float) -> str:
    """Connect to an address and read the security mechanism from the greeting there.

    Args:
        address: In the inner form (``tcp://host:port``).
        timeout_s: How long each step may take for each address behind the name, seconds.

    Returns:
        ``NULL`` for a peer without keys, ``CURVE`` for one with keys.

    Raises:
        NotReached: Nothing answers there, or no peer.
    """
    host, port = split_address(address)
    try:
        answers = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        told = getattr(error, "strerror", None) or str(error)
        raise NotReached("name", f"the name {host} does not resolve ({told})") from None
    first: NotReached | None = None
    for family, kind, protocol, _, place in answers:
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(timeout_s)
            try:
                connection.connect(place)
            except OSError as error:
                first = first or _failed(error, place, timeout_s)
                continue
            return _greeted(connection)
    assert first is not None, "a name that resolves has an address"
    raise first


def _failed(error: OSError, place: tuple[object, ...], timeout_s: float) -> NotReached:
    where, told = str(place[0]), error.strerror or str(error)
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return NotReached("silent", f"nothing comes back from {where} within {timeout_s:g} s")
    if isinstance(error, ConnectionRefusedError):
        why = f"nobody listens at port {place[1]} of {where} (connection refused)"
        return NotReached("closed", why)
    return NotReached("unreachable", f"{where} cannot be reached from this machine ({told})")


def _greeted(connection: socket.socket) -> str:
    told = b""
    with suppress(OSError):
        # Some servers wait for a whole line before they answer.
        for words in (_OPENING, b"\r\n\r\n"):
            connection.sendall(words)
            for more in _received(connection):
                told += more
                if told[0] != 0xFF or len(told) >= _MECHANISM.stop:
                    break
            if told:
                break
    if len(told) >= _MECHANISM.stop and told[0] == 0xFF and told[9] == 0x7F:
        return told[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")
    name = next((what for start, what in _SERVERS if told.startswith(start)), "")
    if name:
        why = f"{name} listens there, not a peer"
    elif told:
        why = f"what listens there says {told[:16]!r}, which no peer does"
    else:
        why = "what listens there says nothing: it is no peer, or one that is stopped"
    raise NotReached("foreign", why)


def _received(connection: socket.socket) -> Iterator[bytes]:
    """What comes, until the other end closes or stays silent."""
    with suppress(TimeoutError):
        while more := connection.recv(64):
            yield more
