"""A bound on what is being received: messages of which no end is in sight are cut off.

libzmq bounds the size of a frame and the number of whole messages that wait, but not the number of
frames of one message: it assembles the whole message before anybody can look at it, so that a
stranger who never sends the last frame fills the memory. The kernel counts what each connection
has received, and libzmq says on which connection a message came. A connection that goes on
receiving while no message comes of it is shut down: libzmq then frees what it has assembled, and
no other connection notices.
"""

import os
import socket as sockets
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import zmq

from ..wire.codec import FRAME_BYTES_MAX

__all__ = ["ReceiveLimit"]

MESSAGE_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
"""Most that a connection may receive without a message: one has two parts, each of a frame at most,
and the next may have begun."""

TOTAL_BYTES_MAX: Final = 64 * FRAME_BYTES_MAX
"""Most that all connections together may receive without a message."""

LOOK_S: Final = 1.0
"""Between two looks at all connections, seconds."""

GLANCE_S: Final = 0.05
"""Between two looks at the memory of the process, seconds."""

_GROWTH_BYTES: Final = 32 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

# struct tcp_info of Linux: `tcpi_bytes_received` since version 4.1.
_TCP_INFO: Final = 11
_RECEIVED: Final = struct.Struct("<Q")
_RECEIVED_AT: Final = 128


class ReceiveLimit:
    """What each connection of a process has received since a message came of it.

    Args:
        is_ours: Whether a connection, of which both ends are given, is one of ours: a process has
            others, and they are left alone.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        is_ours: Callable[[Any, Any], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_ours = is_ours
        self._clock = clock
        # Since the last look: who was heard (a route or a socket), and on which connections.
        self._heard: set[object] = set()
        self._alive: set[int] = set()
        self._before: dict[int, int] = {}
        self._suspects: set[int] = set()
        self._look_due_s = self._glance_due_s = clock()
        self._resident_bytes = 0
        self.cut = 0
        """Connections that were shut down."""
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._statm = -1

    def has_heard(self, who: object) -> bool:
        """Whether somebody was heard since the last look; if not, `came` wants to be told.

        Args:
            who: A route of the bound socket, or a socket that dials.
        """
        return who in self._heard

    def came(self, who: object, part: zmq.Frame) -> None:
        """Note that a message of somebody has come, on the connection that a part of it knows."""
        self._heard.add(who)
        with suppress(zmq.ZMQError, TypeError):  # it did not come by TCP
            self._alive.add(int(part.get(zmq.SRCFD)))

    def watch(self) -> None:
        """Cut off who has received too much without a message.

        To be called again and again, after the messages that lie ready have been taken.
        """
        now_s = self._clock()
        if now_s < self._glance_due_s or self._statm < 0:
            return
        self._glance_due_s = now_s + GLANCE_S
        resident_bytes = _PAGE_BYTES * int(os.pread(self._statm, 256, 0).split()[1])
        has_grown = resident_bytes > self._resident_bytes + _GROWTH_BYTES
        if has_grown or now_s >= self._look_due_s:
            self._resident_bytes = resident_bytes
            self._look_due_s = now_s + LOOK_S
            self._look()

    def close(self) -> None:
        """Stop watching."""
        if self._statm >= 0:
            os.close(self._statm)
            self._statm = -1

    def _look(self) -> None:
        received = _received(map(int, os.listdir("/proc/self/fd")))
        silent = {}
        for number, count in received.items():
            before = self._before.get(number, 0)
            # A number that counts anew is another connection's.
            silent[number] = count - before if count >= before else count
            if number not in self._alive:
                received[number] = count - silent[number]
        self._before = received
        self._heard.clear()
        waiting = {number: silent[number] for number in silent if number not in self._alive}
        self._alive.clear()
        self._cut(waiting)

    def _cut(self, waiting: dict[int, int]) -> None:
        total, before, self._suspects = 0, self._suspects, set()
        for number in sorted(waiting, key=waiting.__getitem__):
            count = waiting[number]
            if count <= MESSAGE_BYTES_MAX and total + count <= TOTAL_BYTES_MAX:
                total += count
            elif number not in before:
                # Messages that came while this process was busy may not all be taken yet.
                self._suspects.add(number)
            elif self._shut(number):
                self.cut += 1

    def _shut(self, number: int) -> bool:
        with suppress(OSError):
            # Its family is asked for here, or an address of IPv6 would be cut short.
            connection = sockets.socket(fileno=number)
            try:
                if self._is_ours(connection.getsockname(), connection.getpeername()):
                    connection.shutdown(sockets.SHUT_RDWR)
                    return True
            finally:
                connection.detach()
        return False


def _received(numbers: Iterable[int]) -> dict[int, int]:
    """How many bytes each of some files has received that are TCP connections."""
    found = {}
    for number in numbers:
        with suppress(OSError):
            # All three are given, or Python would ask the system for each of them every time.
            connection = sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM, 0, fileno=number)
            try:
                told = connection.getsockopt(sockets.IPPROTO_TCP, _TCP_INFO, 256)
            finally:
                connection.detach()
            if len(told) >= _RECEIVED_AT + _RECEIVED.size:
                (found[number],) = _RECEIVED.unpack_from(told, _RECEIVED_AT)
    return found
