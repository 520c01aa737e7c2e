"""One connection that a peer makes through its proxy, from the request to the end."""

import asyncio
import socket as sockets
import struct
from typing import Final

from .pump import Link, pump
from .socks import Target, grant

__all__ = ["Connection"]

_DIAL_S: Final = 5.0
_REDIAL_S: Final = 0.25


class Connection:
    """Carries the bytes of one connection, both ways.

    Args:
        client: Whoever dials; its request was heard. It is closed at the end.
        target: Where it wants to be connected to.
        there: The way to whoever listens.
        back: The way from there.
    """

    def __init__(self, client: sockets.socket, target: Target, there: Link, back: Link) -> None:
        self._client = client
        self._target = target
        self._there = there
        self._back = back
        self._server: sockets.socket | None = None

    async def carry(self) -> None:
        """Connect, and carry bytes until both sides have ended."""
        reached = asyncio.create_task(self._reach())
        # Nothing is said before the grant, so whatever is read is the client's end.
        gone = asyncio.create_task(_ended(self._client))
        try:
            await asyncio.wait({reached, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(gone)
            await _cancel(reached)
        # Granted even where nobody answers, and closed then, as a far end does that resets.
        await grant(self._client)
        if self._server is not None:
            await asyncio.gather(
                pump(self._client, self._server, self._there),
                pump(self._server, self._client, self._back),
            )

    def close(self, *, reset: bool) -> None:
        """Close both sides.

        Args:
            reset: At once, so that what is on its way is lost and both sides are told of an error.
        """
        for side in (self._client, self._server):
            if side is None:
                continue
            if reset:
                side.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
            side.close()

    async def _reach(self) -> None:
        """Dial until somebody answers, or nobody has for some seconds; a cut is waited for."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + _DIAL_S
        while self._server is None:
            await self._there.open()
            await self._back.open()
            await asyncio.sleep(self._there.terms.delay_s + self._back.terms.delay_s)
            try:
                self._server = await _dial(self._target)
            except OSError:
                # A dial that fails at once would be made again at once, by every socket.
                if loop.time() > give_up_s:
                    return
                await asyncio.sleep(_REDIAL_S)


async def _dial(target: Target) -> sockets.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(*target, type=sockets.SOCK_STREAM)
    family, _, _, _, address = found[0]
    server = sockets.socket(family, sockets.SOCK_STREAM)
    try:
        server.setblocking(False)
        server.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        await loop.sock_connect(server, address)
    except BaseException:
        server.close()
        raise
    return server


async def _ended(client: sockets.socket) -> None:
    try:
        await asyncio.get_running_loop().sock_recv(client, 1)
    except OSError:
        pass


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
