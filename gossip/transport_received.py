"""A message that has come in over ZeroMQ, read part by part."""

import zmq

from .codec import Buffer

__all__ = ["Received", "Route"]

Route = bytes
"""How to answer a message that came in on the bound socket; empty for one that did not."""


class Received:
    """A message that has come in, of which only the first part is read.

    The frame, where there is one, stays with the socket until it is asked for, so that it can be
    received where it belongs. That must be done before the next message is taken.

    Attributes:
        header: The first part.
        route: How to answer it.
        more: Whether there is a part that was not read yet.
    """

    __slots__ = ("_socket", "header", "more", "route")

    def __init__(self, header: bytes, route: Route, socket: "zmq.Socket[bytes]") -> None:
        self.header = header
        self.route = route
        self.more = bool(socket.getsockopt(zmq.RCVMORE))
        self._socket = socket

    def frame_into(self, room: memoryview) -> int:
        """Receive the next part into memory at hand.

        Returns:
            How long the part is, in bytes: where that is more than the room, it was cut off.
        """
        size = self._socket.recv_into(room, flags=zmq.NOBLOCK)
        self.more = bool(self._socket.getsockopt(zmq.RCVMORE))
        return size

    def frame(self) -> Buffer:
        """Receive the next part into memory of its own; empty where there is none."""
        if not self.more:
            return b""
        part = self._socket.recv(zmq.NOBLOCK, copy=False)
        self.more = part.more
        return part.buffer

    def finish(self) -> bool:
        """Throw away what was not read; whether there was anything."""
        unread = self.more
        while self.more:
            self.frame()
        return unread
