"""The common part of a peer's sockets: their limits, sending, and received messages."""

from collections.abc import Sequence
from typing import Final, Protocol

import zmq

from ..errors import TransportError
from ..wire.codec import FRAME_BYTES_MAX, Buffer

__all__ = ["OnSocket", "Received", "Route", "open_socket", "reason", "try_send"]

# A ROUTER and a DEALER add only CURVE's 33 bytes to a part.
_PART_BYTES_MAX: Final = FRAME_BYTES_MAX + 4096


def open_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, messages_max: int
) -> "zmq.Socket[bytes]":
    """Open a socket with the common limits; raise zmq.ZMQError if there are too many."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, messages_max)
    socket.setsockopt(zmq.RCVHWM, messages_max)
    # Without it, an unknown peer's handshake of 512 MiB costs 512 MiB of memory.
    socket.setsockopt(zmq.MAXMSGSIZE, _PART_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 5_000)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    return socket


def try_send(socket: "zmq.Socket[bytes]", parts: Sequence[Buffer]) -> bool | None:
    """Send without waiting; True if the message was taken, False if the queue is full, None if a
    ROUTER has no connection of that route. A failed socket is a TransportError."""
    try:
        socket.send_multipart(parts, zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return None
        raise TransportError(f"sending failed: {reason(error)}") from None
    return True


def reason(error: zmq.ZMQError) -> str:
    """Return an error's message, without the address that pyzmq adds."""
    return zmq.strerror(error.errno or 0)


Route = bytes
"""How to answer a message from the bound socket; empty for messages from other sockets."""


class Received(Protocol):
    """A received message, of which only the first part, the header, is read.

    The frame, if any, is read only on request, which must be before the next message is taken.
    """

    header: bytes
    route: Route
    key: bytes
    """Public key of the machine that sent it; empty without keys."""
    place: str
    """The place dialed by its socket; empty on the bound socket."""

    @property
    def more(self) -> bool:
        """True if a part was not read yet."""

    def frame(self) -> Buffer:
        """Receive the next part, not copied; empty without a next part."""

    def finish(self) -> bool:
        """Discard unread parts; True if there were any."""


class OnSocket:
    """A message whose frame is still in the socket; see `Received`."""

    __slots__ = ("_socket", "header", "key", "more", "place", "route")

    def __init__(
        self,
        header: bytes,
        route: Route,
        socket: "zmq.Socket[bytes]",
        key: bytes = b"",
        place: str = "",
    ) -> None:
        self.header = header
        self.route = route
        self.key = key
        self.place = place
        self.more = bool(socket.getsockopt(zmq.RCVMORE))
        self._socket = socket

    def finish(self) -> bool:
        unread = self.more
        while self.more:
            self.frame()
        return unread

    def frame(self) -> Buffer:
        if not self.more:
            return b""
        part = self._socket.recv(zmq.NOBLOCK, copy=False)
        self.more = part.more
        return part.buffer
