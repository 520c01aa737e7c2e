"""The server's half of SOCKS 5, as much of it as ZeroMQ speaks: connect, and no passwords.

Source: RFC 1928.
"""

import asyncio
import socket as sockets
from typing import Final, NamedTuple

__all__ = ["Target", "accept_request", "grant"]

_VERSION: Final = b"\x05"
_NO_PASSWORD: Final = b"\x05\x00"
_CONNECT: Final = b"\x05\x01\x00"
_GRANTED: Final = b"\x05\x00\x00\x01" + bytes(6)
_IPV4, _NAME, _IPV6 = 1, 3, 4


class Target(NamedTuple):
    """Where a client wants to be connected to."""

    host: str
    """Name or address."""
    port: int


async def accept_request(client: sockets.socket) -> Target:
    """Hear a client out.

    Args:
        client: Just accepted, and not blocking.

    Raises:
        EOFError: The client went away.
        ValueError: It speaks something else, or wants something else than a connection.
    """
    version, methods = await _read(client, 2)
    await _read(client, methods)
    if version != _VERSION[0]:
        raise ValueError("this is not SOCKS 5")
    await asyncio.get_running_loop().sock_sendall(client, _NO_PASSWORD)
    wanted = await _read(client, 4)
    if wanted[:3] != _CONNECT:
        raise ValueError("only connections can be had")
    match wanted[3]:
        case 1:
            host = sockets.inet_ntop(sockets.AF_INET, await _read(client, 4))
        case 4:
            host = sockets.inet_ntop(sockets.AF_INET6, await _read(client, 16))
        case 3:
            (length,) = await _read(client, 1)
            host = (await _read(client, length)).decode("ascii")
        case _:
            raise ValueError("this is no kind of address")
    return Target(host, int.from_bytes(await _read(client, 2), "big"))


async def grant(client: sockets.socket) -> None:
    """Tell the client that it is connected; what follows are the bytes of that connection."""
    await asyncio.get_running_loop().sock_sendall(client, _GRANTED)


async def _read(client: sockets.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = await asyncio.get_running_loop().sock_recv(client, count - len(data))
        if not more:
            raise EOFError("the client went away")
        data += more
    return data
