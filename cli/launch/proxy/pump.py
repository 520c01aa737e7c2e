"""One direction of one connection, from a socket to another, under what holds on its way."""

import asyncio
import socket as sockets
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

from .conditions import Terms
from .zmtp import Follower, Piece

__all__ = ["Link", "pump"]

_READ_BYTES: Final = 1 << 17
_READ_S: Final = 0.02
_READ_BYTES_MIN: Final = 1 << 10
# What is on its way at most, where a delay makes it many: 64 pieces of 128 KiB.
_ON_THE_WAY: Final = 64


@dataclass(slots=True, eq=False)
class Link:
    """The way from one peer to another, which all connections between them share."""

    random: Random
    terms: Terms = field(default_factory=Terms)
    passed_bytes: int = 0
    messages: int = 0
    """That have begun to pass, each once."""
    lost: int = 0
    """Messages that did not pass."""
    doubled: int = 0
    """Messages that passed twice."""
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _free_s: float = 0.0
    """When what passes now has passed, under a limit of bytes per second."""

    def __post_init__(self) -> None:
        self._open.set()

    def impose(self, terms: Terms) -> None:
        """Change what holds; also for what is on its way."""
        self.terms = terms
        if terms.cut:
            self._open.clear()
        else:
            self._open.set()

    async def pass_through(self, count: int, due_s: float) -> None:
        """Wait until so many bytes, due at that time of the loop, may arrive."""
        clock = asyncio.get_running_loop().time
        self._free_s = max(self._free_s, clock())
        if self.terms.bytes_s < inf:
            self._free_s += count / self.terms.bytes_s
            due_s = max(due_s, self._free_s)
        while (rest_s := due_s - clock()) > 0 or not self._open.is_set():
            await asyncio.sleep(max(0.0, rest_s))
            await self._open.wait()
        self.passed_bytes += count

    async def open(self) -> None:
        """Wait until there is no cut."""
        await self._open.wait()

    def at_once(self) -> int:
        """How many bytes to read at once, so that a limit is no sequence of bursts."""
        if self.terms.bytes_s == inf:
            return _READ_BYTES
        return min(_READ_BYTES, max(_READ_BYTES_MIN, int(self.terms.bytes_s * _READ_S)))


class _Fates:
    """What becomes of each message of one connection in one direction."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._follower = Follower()
        self._loses = False
        self._copy: bytearray | None = None

    def passing(self, data: bytes) -> bytes:
        """What passes of the next bytes of the stream."""
        return b"".join(part for piece in self._follower.feed(data) for part in self._of(piece))

    def _of(self, piece: Piece) -> Iterator[bytes | memoryview]:
        if not piece.is_message:
            yield piece.data
            return
        if piece.first:
            self._draw()
        if not self._loses:
            yield piece.data
        if self._copy is not None:
            self._copy += piece.data
            if piece.last:
                yield bytes(self._copy)
                self._copy = None

    def _draw(self) -> None:
        link, terms = self._link, self._link.terms
        link.messages += 1
        self._loses = terms.loss > 0 and link.random.random() < terms.loss
        link.lost += self._loses
        if not self._loses and terms.duplicate > 0 and link.random.random() < terms.duplicate:
            link.doubled += 1
            self._copy = bytearray()


async def pump(source: sockets.socket, sink: sockets.socket, link: Link) -> None:
    """Carry bytes until the source ends, and tell the sink so.

    Args:
        source: Where they come from; not blocking.
        sink: Where they go; not blocking.
        link: What holds for them, now or later.
    """
    way: asyncio.Queue[tuple[bytes, float]] = asyncio.Queue(_ON_THE_WAY)
    reading = asyncio.create_task(_read(source, link, way))
    try:
        await _write(sink, link, way)
    except OSError:
        pass  # the sink is gone, which the other direction will say to the source
    finally:
        reading.cancel()
        await asyncio.wait([reading])
    try:
        sink.shutdown(sockets.SHUT_WR)
    except OSError:
        pass


async def _read(
    source: sockets.socket, link: Link, way: asyncio.Queue[tuple[bytes, float]]
) -> None:
    loop, fates = asyncio.get_running_loop(), _Fates(link)
    data = b"begin"
    while data:
        try:
            data = await loop.sock_recv(source, link.at_once())
        except OSError:
            data = b""
        passing = fates.passing(data) if data else b""
        if passing or not data:
            # The end, too, takes its time and comes after all before it.
            await way.put((passing, loop.time() + link.terms.delay_s))


async def _write(sink: sockets.socket, link: Link, way: asyncio.Queue[tuple[bytes, float]]) -> None:
    while True:
        data, due_s = await way.get()
        await link.pass_through(len(data), due_s)
        if not data:
            return
        await asyncio.get_running_loop().sock_sendall(sink, data)
