"""A received message, part by part."""

from typing import Protocol

import zmq

from ..wire.codec import Buffer

__all__ = ["OnSocket", "Received", "Route"]


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
