"""A message that has come in, part by part."""

from typing import Protocol

import zmq

from ..wire.codec import Buffer

__all__ = ["OnSocket", "Received", "Route"]


Route = bytes
"""How to answer a message that came in on the bound socket; empty for one that did not."""


class Received(Protocol):
    """A message that has come in, of which only the first part is read.

    The frame, where there is one, stays where it is until it is asked for, so that it can be
    received where it belongs. That must be done before the next message is taken.
    """

    header: bytes
    """The first part."""

    route: Route
    """How to answer it."""

    key: bytes
    """Public key of the machine that sent it; empty without keys."""

    place: str
    """Where the socket dials on which it came; empty for one that came on the bound socket."""

    @property
    def more(self) -> bool:
        """Whether there is a part that was not read yet."""

    def frame_into(self, room: memoryview) -> int:
        """Receive the next part into memory at hand.

        Returns:
            How long the part is, in bytes: where that is more than the room, it was cut off.
        """

    def frame(self) -> Buffer:
        """Receive the next part into memory of its own; empty where there is none."""

    def finish(self) -> bool:
        """Throw away what was not read; whether there was anything."""


class OnSocket:
    """A message whose frame is still with the socket; see `Received`."""

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

    def frame_into(self, room: memoryview) -> int:
        size = self._socket.recv_into(room, flags=zmq.NOBLOCK)
        self.more = bool(self._socket.getsockopt(zmq.RCVMORE))
        return size

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
