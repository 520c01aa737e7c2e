"""Sockets below ZeroMQ: who waits to be dialled where it was never told to listen, and who sends
one message that has no end."""

import selectors
import socket as sockets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from rumor.gossip.transport.addresses import split_address

__all__ = ["Listeners", "endless"]

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
_PART = b"\x03" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20)
"""A part of a mebibyte, after which more follow."""


class Listeners:
    """Ports of this machine that count who dials them.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._sockets = [sockets.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.addresses = [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in self._sockets]
        self._selector = selectors.DefaultSelector()
        for number, each in enumerate(self._sockets):
            self._selector.register(each, selectors.EVENT_READ, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._selector.close()
        for each in self._sockets:
            each.close()

    def dialled(self) -> int:
        """At how many of them somebody waits to be let in."""
        return len(self._selector.select(0))


@contextmanager
def endless(address: str) -> Iterator[threading.Event]:
    """Send a message without an end in ZMTP 3.0 meanwhile: libzmq itself sends none that is not
    whole. The event is set as soon as the other end hangs up."""
    host, port = split_address(address)
    stop, over = threading.Event(), threading.Event()
    connection = sockets.create_connection((host, int(port)))

    def send() -> None:
        with suppress(OSError), connection:
            connection.settimeout(0.2)
            connection.sendall(_GREETING + bytes([4, len(_READY)]) + _READY)
            while not stop.is_set():
                rest = memoryview(_PART)
                while rest and not stop.is_set():
                    with suppress(TimeoutError):
                        rest = rest[connection.send(rest) :]
        over.set()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield over
    finally:
        stop.set()
        thread.join()
