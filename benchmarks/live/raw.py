"""Plain pyzmq doing the work of a push without checks: copy out, send, receive, mix.

It copies and sends the vector frame by frame, and mixes from the messages of ZeroMQ before it is
certain that all will arrive, which a share must not.
"""

import time
from typing import Final, Self

import torch
import zmq

from .processes import Partner

__all__ = ["RawReceiver", "RawSender"]

_COUNT: Final = 1 << 18
"""Numbers in a frame, of 1 MiB."""
_FRAMES_MAX: Final = 32
_FRACTION: Final = 0.25


class _Pair:
    """One end of a connection."""

    def __init__(self, n_params: int) -> None:
        self.vector, self.staged = torch.ones(n_params), torch.zeros(n_params)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        self.socket.setsockopt(zmq.SNDHWM, _FRAMES_MAX)
        self.socket.setsockopt(zmq.RCVHWM, _FRAMES_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)


class RawSender(_Pair):
    """Copies its float32 vector out and sends it in frames to a `RawReceiver`."""

    def __init__(self, n_params: int, address: str) -> None:
        super().__init__(n_params)
        self.socket.connect(address)

    def send_to(self, other: Partner) -> float:
        """Send the vector to a process; return the seconds until its reported time of the mix."""
        other.say("raw")
        start_s = time.monotonic()
        for frame, own in zip(self.staged.split(_COUNT), self.vector.split(_COUNT), strict=True):
            frame.copy_(own)
            self.socket.send(frame.numpy().data.cast("B"), copy=False)
        return float(other.hear()) - start_s


class RawReceiver(_Pair):
    """Receives the vectors of a `RawSender`, and mixes them."""

    def __init__(self, n_params: int) -> None:
        super().__init__(n_params)
        self.socket.bind("tcp://127.0.0.1:*")
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self) -> float:
        """Receive one vector; return when it was mixed, seconds on the clock of all processes."""
        for own in self.vector.split(_COUNT):
            message = self.socket.recv(copy=False)
            own.lerp_(torch.frombuffer(message.buffer, dtype=torch.float32), _FRACTION)
        return time.monotonic()
