"""What all sockets of a peer have in common: their limits, and how something is sent."""

from collections.abc import Sequence
from typing import Final

import zmq

from ..errors import TransportError
from ..wire.codec import FRAME_BYTES_MAX, Buffer

__all__ = ["open_socket", "reason", "try_send"]

# A ROUTER and a DEALER put CURVE's 33 bytes, and nothing else, on top of a part.
_PART_BYTES_MAX: Final = FRAME_BYTES_MAX + 4096


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
