"""TCP relays between real peers: they delay, slow down or hold bytes, or lose them in a reset."""

import asyncio
import socket as sockets
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeVar

from rumor.gossip.transport.addresses import split_address

__all__ = ["Network", "Way"]

_T = TypeVar("_T")

_READ_BYTES: Final = 1 << 16
_READ_S: Final = 0.02
_QUEUE_MAX: Final = 64
_POLL_S: Final = 0.005


@dataclass(slots=True)
class Way:
    """One direction of a relay, for all its connections."""

    delay_s: float = 0.0
    bytes_s: float = inf
    stopped: bool = False
    passed_bytes: int = 0
    stops_after_bytes: float = inf
    """Number of bytes after which the direction stops, so that a test can act in mid-transfer."""
    free_s: float = 0.0
    """Time at which the bytes in transfer have passed, at *bytes_s*."""

    @property
    def holds(self) -> bool:
        """The direction passes no bytes now."""
        return self.stopped or self.passed_bytes > self.stops_after_bytes

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward all bytes in order."""
        queue: asyncio.Queue[tuple[bytes, float]] = asyncio.Queue(_QUEUE_MAX)
        reading = asyncio.create_task(self._read(reader, queue))
        try:
            while data := await self._arrived(queue):
                writer.write(data)
                self.passed_bytes += len(data)
                await writer.drain()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(
        self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[bytes, float]]
    ) -> None:
        data = b"begin"
        while data:
            size_max = min(_READ_BYTES, max(1024, self.bytes_s * _READ_S))
            try:
                data = await reader.read(int(size_max))
            except OSError:
                data = b""
            await queue.put((data, asyncio.get_running_loop().time() + self.delay_s))

    async def _arrived(self, queue: asyncio.Queue[tuple[bytes, float]]) -> bytes:
        clock = asyncio.get_running_loop().time
        data, due_s = await queue.get()
        self.free_s = max(self.free_s, clock()) + len(data) / self.bytes_s
        due_s = max(due_s, self.free_s)
        while (rest_s := due_s - clock()) > 0 or self.holds:
            await asyncio.sleep(rest_s if rest_s > 0 else _POLL_S)
        return data


class _Relay:
    """Listens in place of a peer and forwards all bytes to it."""

    def __init__(self, target: str) -> None:
        self.forth, self.back = Way(), Way()
        self.address = ""
        self._target = split_address(target)
        self._tasks: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._ends: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self._is_closed = False

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def reset(self) -> int:
        """Reset both ends of each connection; return the number of connections."""
        reset_tasks = dict(self._tasks)
        for task, ends in reset_tasks.items():
            for end in ends:
                socket = end.get_extra_info("socket")
                # An end that the other side has closed already cannot be reset.
                if socket.fileno() >= 0:
                    linger_now = struct.pack("ii", 1, 0)
                    socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, linger_now)
                end.transport.abort()
            task.cancel()
        await asyncio.gather(*reset_tasks, return_exceptions=True)
        return len(reset_tasks)

    async def close(self) -> None:
        assert self._server is not None
        self._is_closed = True
        self._server.close()
        await self.reset()
        # An end that was closed before may still hold bytes for a peer that no longer reads.
        for end in self._ends:
            end.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_closed:  # accepted before the relay closed, but served only now
            writer.transport.abort()
            return
        ends = self._tasks[task] = [writer]
        self._ends.append(writer)
        ways: list[asyncio.Task[None]] = []
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            ends.append(far_writer)
            self._ends.append(far_writer)
            ways.append(asyncio.create_task(self.forth.carry(reader, far_writer)))
            ways.append(asyncio.create_task(self.back.carry(far_reader, writer)))
            # ZeroMQ never closes one direction only, so the first end closes both.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # no listener, or a reset
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in ends:
            end.close()
        del self._tasks[task]


class Network:
    """One relay for each pair of dialer and listener, so that the source of each is known."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        """Address of each listener; the test fills it in."""
        self._relays: dict[tuple[str, str], _Relay] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def toward(self, dialer: str, listener: str) -> str:
        """Return the address that *dialer* uses for *listener*."""
        if (dialer, listener) not in self._relays:
            relay = self._relays[dialer, listener] = _Relay(self.addresses[listener])
            self._run(relay.open())
        return self._relays[dialer, listener].address

    def ways(self, source: str | None = None, to: str | None = None) -> list[Way]:
        """Return all ways from *source* to *to* (None: any peer), in connections of either side."""
        forward = [relay.forth for pair, relay in self._relays.items() if _fits(pair, source, to)]
        return forward + [r.back for (d, a), r in self._relays.items() if _fits((a, d), source, to)]

    def cut(self, source: str, to: str) -> None:
        """Hold all bytes from *source* to *to*."""
        for way in self.ways(source, to):
            way.stopped = True

    def heal(self) -> None:
        """End all cuts."""
        for way in self.ways():
            way.stopped = False

    def limit(self, peer: str | None, bytes_s: float) -> None:
        """Limit the rate of each way from and to a peer (None: all peers)."""
        for way in self.ways(source=peer) + self.ways(to=peer):
            way.bytes_s = bytes_s

    def reset(self, *peers: str) -> int:
        """Reset all connections, or those between two peers; return their number."""
        chosen = [relay for pair, relay in self._relays.items() if set(peers) <= set(pair)]
        return sum([self._run(relay.reset()) for relay in chosen])

    def close(self) -> None:
        """Close all relays and their event loop."""
        for relay in self._relays.values():
            self._run(relay.close())
        self._run(_last_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _last_tasks() -> None:
    """Wait for connections that were being accepted and for tasks of closed connections."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    await asyncio.sleep(0)


def _fits(pair: tuple[str, str], source: str | None, to: str | None) -> bool:
    return source in (None, pair[0]) and to in (None, pair[1])
