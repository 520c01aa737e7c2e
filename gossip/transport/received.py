"""A message that has come in, part by part."""

import socket as sockets
from dataclasses import replace
from typing import Protocol

import zmq

from ..errors import ConfigError
from ..wire.codec import Buffer, encode
from ..wire.messages import Envelope, Hello, Member, Refer
from .addresses import is_loopback, is_near, join_address, parse_address

__all__ = ["OnSocket", "Received", "Route", "as_heard", "is_here", "reachable"]


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

    is_here: bool
    """Whether it came from this machine."""

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

    __slots__ = ("_socket", "header", "is_here", "key", "more", "place", "route")

    def __init__(
        self,
        header: bytes,
        route: Route,
        socket: "zmq.Socket[bytes]",
        key: bytes = b"",
        place: str = "",
        *,
        is_here: bool = False,
    ) -> None:
        self.is_here = is_here
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


def is_here(part: zmq.Frame) -> bool:
    """Whether a part of a message came over a connection both ends of which are on this machine.

    Of a connection that was closed meanwhile nobody can say: whoever breaks off has no say either.
    """
    try:
        connection = sockets.socket(fileno=int(part.get(zmq.SRCFD)))
    except (OSError, TypeError, zmq.ZMQError):
        return False
    try:
        here, there = connection.getsockname()[0], connection.getpeername()[0]
        return bool(here == there or is_loopback(join_address(there, "1")))
    except OSError:
        return False
    finally:
        connection.detach()


def as_heard(envelope: Envelope, received: Received) -> tuple[Envelope, Buffer]:
    """What a message says, and its first part, without addresses that are another machine's own.

    Whoever is reached over a network could have this machine dial its own services by them, and
    those of its neighbors.

    Args:
        envelope: What it says as it came.
        received: How it came.
    """
    body = envelope.body
    if received.is_here or not isinstance(body, Hello | Refer):
        return envelope, received.header
    told = body.members if isinstance(body, Hello) else body.donors
    fit = tuple(map(reachable, told))
    if fit == told:
        return envelope, received.header
    changed = replace(body, members=fit) if isinstance(body, Hello) else Refer(fit)
    envelope = replace(envelope, body=changed)
    return envelope, encode(envelope)[0]


def reachable(member: Member) -> Member:
    """A member that another machine tells of, without addresses that are that machine's own."""
    fit = tuple(address for address in member.addresses if not _leads_here(address))
    return member if fit == member.addresses else replace(member, addresses=fit)


def _leads_here(address: str) -> bool:
    try:
        return is_near(parse_address(address))
    except ConfigError:
        return False  # nobody dials it
