"""Ways through a SOCKS 5 proxy: for each address a place on this machine that stands for it.

ZeroMQ speaks SOCKS itself, but libzmq 4.3.5 ends the whole process when a socket is closed whose
proxy has refused it or is gone. So it dials a port of loopback instead; behind that a thread asks
the proxy, and passes bytes to and fro.

Source: RFC 1928.
"""

import asyncio
import ipaddress
import socket as sockets
import struct
import threading
from collections.abc import Coroutine
from functools import partial
from typing import Final

from .addresses import split_address

__all__ = ["SocksBridge"]

_PLACES_MAX: Final = 1024
_ROOM_BYTES: Final = 256 << 10
_BREATH_S: Final = 0.05

_HELLO, _WELCOME = b"\x05\x01\x00", b"\x05\x00"
_CONNECT: Final = b"\x05\x01\x00"
# What follows a grant depends on the kind of address in it.
_REST_BYTES: Final = {1: 6, 4: 18}


class SocksBridge:
    """Places that stand for addresses behind a proxy. `places` and `forget` are for one thread.

    Args:
        proxy: HOST:PORT of a SOCKS 5 proxy that wants no password.
    """

    def __init__(self, proxy: str) -> None:
        host, port = split_address(proxy)
        self._proxy = host, int(port)
        self._listeners: dict[str, sockets.socket] = {}
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rumor-bridge")
        self._thread.daemon = True
        self._thread.start()

    def places(self, address: str) -> tuple[str, ...]:
        """Where to dial for an address, which may have a name: the proxy knows what that means.

        Args:
            address: In the inner form.

        Returns:
            One place; none where there are too many already.
        """
        listener = self._listeners.get(address)
        if listener is None:
            if len(self._listeners) >= _PLACES_MAX:
                return ()
            try:
                listener = sockets.create_server(("127.0.0.1", 0))
            except OSError:
                return ()
            listener.setblocking(False)
            self._listeners[address] = listener
            self._loop.call_soon_threadsafe(self._listen, address, listener)
        return (f"tcp://127.0.0.1:{listener.getsockname()[1]}",)

    def forget(self, address: str) -> None:
        """Close the place of an address."""
        listener = self._listeners.pop(address, None)
        if listener is not None:
            ending = self._end(address, listener)
            asyncio.run_coroutine_threadsafe(ending, self._loop).result()

    def close(self) -> None:
        """Close all."""
        for address in tuple(self._listeners):
            self.forget(address)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _begin(self, address: str, does: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(does)
        self._tasks[task] = address
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def _end(self, address: str, listener: sockets.socket) -> None:
        self._loop.remove_reader(listener)
        ended = [task for task, of in self._tasks.items() if of == address]
        for task in ended:
            task.cancel()
        if ended:
            await asyncio.wait(ended)
        listener.close()

    def _listen(self, address: str, listener: sockets.socket) -> None:
        # It may have been forgotten since.
        if self._listeners.get(address) is listener:
            self._loop.add_reader(listener, self._accept, address, listener)

    def _accept(self, address: str, listener: sockets.socket) -> None:
        """Take one client in. A task that is cancelled just when it has got one would lose it."""
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            # There are no more files to be had.
            self._loop.remove_reader(listener)
            self._loop.call_later(_BREATH_S, self._listen, address, listener)
            return
        client.setblocking(False)
        # A task that is ended before it begins would close nothing.
        task = self._begin(address, self._serve(address, client))
        task.add_done_callback(partial(_close, client))

    async def _serve(self, address: str, client: sockets.socket) -> None:
        try:
            with client, await self._reach(address) as server:
                for side in (client, server):
                    side.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
                    # Whichever ends first, the other is reset: ZeroMQ never closes half.
                    linger = struct.pack("ii", 1, 0)
                    side.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, linger)
                await self._carry(client, server)
        except (OSError, EOFError, ValueError):
            pass  # it ended early; whoever dialled will again

    async def _carry(self, client: sockets.socket, server: sockets.socket) -> None:
        ways = [self._pass_on(client, server), self._pass_on(server, client)]
        tasks = [self._loop.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, source: sockets.socket, to: sockets.socket) -> None:
        room = memoryview(bytearray(_ROOM_BYTES))
        while size := await self._loop.sock_recv_into(source, room):
            await self._loop.sock_sendall(to, room[:size])

    async def _reach(self, address: str) -> sockets.socket:
        """Have the proxy connect to an address.

        Raises:
            OSError: It cannot be reached, or ends the connection.
            EOFError: It ends the connection.
            ValueError: It refuses, or speaks something else.
        """
        found = await self._loop.getaddrinfo(*self._proxy, type=sockets.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        server = sockets.socket(family, kind, protocol)
        server.setblocking(False)
        try:
            await self._loop.sock_connect(server, place)
            await self._loop.sock_sendall(server, _HELLO)
            if await self._read(server, 2) != _WELCOME:
                raise ValueError("it wants a password")
            await self._loop.sock_sendall(server, _CONNECT + _target(address))
            answer = await self._read(server, 4)
            if answer[1]:
                raise ValueError("it refuses")
            await self._read(server, _REST_BYTES[answer[3]])
        except BaseException as error:
            server.close()
            if isinstance(error, KeyError):
                raise ValueError("it grants something unknown") from None
            raise
        return server

    async def _read(self, server: sockets.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self._loop.sock_recv(server, count - len(data))
            if not more:
                raise EOFError("the proxy went away")
            data += more
        return data


def _close(client: sockets.socket, task: "asyncio.Task[None]") -> None:
    client.close()


def _target(address: str) -> bytes:
    """An address as a proxy is told it."""
    host, port = split_address(address)
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        told = bytes((3, len(name))) + name
    else:
        told = bytes((1 if number.version == 4 else 4,)) + number.packed
    return told + int(port).to_bytes(2, "big")
