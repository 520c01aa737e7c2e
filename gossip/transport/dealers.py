"""Sockets that dial: two toward each place, one for control and one for bulk."""

import logging
import random
from collections.abc import Collection, Sequence
from typing import Final

import zmq

from ..errors import TransportError
from ..wire.codec import FRAME_BYTES_MAX, Buffer

__all__ = ["Dealers", "open_socket", "reason", "try_send"]

_log = logging.getLogger("rumor")

# A ROUTER and a DEALER put CURVE's 33 bytes, and nothing else, on top of a part.
_PART_BYTES_MAX: Final = FRAME_BYTES_MAX + 4096

_CONTROL_MESSAGES_MAX: Final = 512

# Not Python's global stream, which a task may draw from, and which may have to repeat itself.
_CHANCE: Final = random.SystemRandom()

# ZeroMQ adds as much as the first again, by chance, to each wait, and that is nothing beside the
# longest: a swarm whose network comes back would reconnect in lockstep. The first is short, or on a
# link that is reset five times a second there would be no time left to send in.
_REDIAL_MS: Final = (20, 40)
_REDIAL_MS_MAX: Final = (2_500, 5_000)


class _Dealer:
    """The sockets toward one place."""

    __slots__ = ("bulk", "control", "heard")

    def __init__(self, control: "zmq.Socket[bytes]") -> None:
        self.control = control
        self.bulk: zmq.Socket[bytes] | None = None
        self.heard = False


class Dealers:
    """All places that are dialled.

    Args:
        context: Of all sockets.
        poller: Is told of each socket while it is open.
        bulk_messages_max: That may be queued toward a place.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        poller: zmq.Poller,
        bulk_messages_max: int,
    ) -> None:
        self._context = context
        self._poller = poller
        self._bulk_messages_max = bulk_messages_max
        self._ways: dict[str, _Dealer] = {}
        self._way_of: dict[zmq.Socket[bytes], _Dealer] = {}
        self._is_crowded = False

    def open(self, place: str, *, bulk: bool) -> None:
        """Dial a place, unless that is done; without *bulk* for control only."""
        way = self._ways.get(place)
        if way is None:
            control = self._dial(place, _CONTROL_MESSAGES_MAX)
            if control is None:
                return
            way = self._ways[place] = self._way_of[control] = _Dealer(control)
        if bulk and way.bulk is None:
            way.bulk = self._dial(place, self._bulk_messages_max)
            if way.bulk is not None:
                self._way_of[way.bulk] = way

    @property
    def places(self) -> Collection[str]:
        """All that are dialled."""
        return self._ways.keys()

    def heard(self, socket: "zmq.Socket[bytes]") -> None:
        """Note that something came from where a socket dials."""
        self._way_of[socket].heard = True

    def heard_of(self, place: str) -> bool:
        """Whether anything came from a place since this was last asked."""
        way = self._ways.get(place)
        if way is None:
            return False
        heard, way.heard = way.heard, False
        return heard

    def send(self, place: str, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        """Send to a place, never waiting.

        Returns:
            False where it was not dialled, or nobody is connected there (yet).

        Raises:
            TransportError: The socket failed.
        """
        way = self._ways.get(place)
        return way is not None and try_send((bulk and way.bulk) or way.control, parts)

    def reset(self, places: Collection[str]) -> None:
        """Break off the ways to some places, those that there are, and dial these anew."""
        for place in sorted(places):
            way = self._ways.get(place)
            if way is not None:
                self.close([place], linger_ms=0)
                self.open(place, bulk=way.bulk is not None)

    def close(self, places: Collection[str], linger_ms: int = 200) -> None:
        """Close the ways to some places, those that there are.

        Args:
            places: Which.
            linger_ms: How long last messages may take to get out, milliseconds.
        """
        for place in sorted(places):
            way = self._ways.pop(place, None)
            for socket in (way.control, way.bulk) if way else ():
                if socket is not None:
                    del self._way_of[socket]
                    self._poller.unregister(socket)
                    socket.close(linger=linger_ms)

    def _dial(self, place: str, messages_max: int) -> "zmq.Socket[bytes] | None":
        """A socket toward a place; None where there can be none, or one too many."""
        try:
            socket = open_socket(self._context, zmq.DEALER, messages_max)
        except zmq.ZMQError as error:
            self._say_crowded(error)
            return None
        try:
            socket.setsockopt(zmq.IPV6, 1)
            # Nothing is queued for a peer that is not connected: a send fails at once instead.
            socket.setsockopt(zmq.IMMEDIATE, 1)
            socket.setsockopt(zmq.RECONNECT_IVL, _CHANCE.randint(*_REDIAL_MS))
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, _CHANCE.randint(*_REDIAL_MS_MAX))
            socket.connect(place)
        except zmq.ZMQError:
            # Strangers name addresses, too: one that ZeroMQ cannot read is merely out of reach.
            socket.close()
            return None
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def _say_crowded(self, error: zmq.ZMQError) -> None:
        # Said once: whoever has too few files for its neighbors meets with it at every push.
        if not self._is_crowded:
            self._is_crowded = True
            _log.warning(
                "no further neighbor can be dialled (%s): %d places are, for which there are two "
                "sockets each; allow this process more open files (ulimit -n)",
                reason(error),
                len(self._ways),
            )


def open_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, messages_max: int
) -> "zmq.Socket[bytes]":
    """A socket with the limits that all have.

    Raises:
        zmq.ZMQError: There are too many.
    """
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, messages_max)
    socket.setsockopt(zmq.RCVHWM, messages_max)
    # Without it, one handshake of 512 MiB by a stranger costs 512 MiB.
    socket.setsockopt(zmq.MAXMSGSIZE, _PART_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 5_000)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    return socket


def try_send(socket: "zmq.Socket[bytes]", parts: Sequence[Buffer]) -> bool:
    """Send, never waiting; whether the message was taken.

    Raises:
        TransportError: The socket failed.
    """
    try:
        socket.send_multipart(parts, zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return False
        raise TransportError(f"sending failed: {reason(error)}") from None
    return True


def reason(error: zmq.ZMQError) -> str:
    """What went wrong, without the address that pyzmq adds."""
    return zmq.strerror(error.errno or 0)
