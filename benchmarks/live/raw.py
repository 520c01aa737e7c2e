"""Plain pyzmq doing the work of a push without checks: copy out, send, receive, mix.

Two ways. ``plain`` copies the vector whole, and mixes it whole once a buffer has all of it;
``held`` copies and sends it frame by frame, and mixes from the messages of ZeroMQ, before it is
certain that all will arrive.
"""

import time
from typing import Final, Self

import torch
import zmq
from torch import Tensor

from .processes import Partner

__all__ = ["WAYS", "RawReceiver", "RawSender"]

_FRAME_BYTES: Final = 1 << 20

WAYS: Final = ("plain", "held")

_FRAMES_MAX: Final = 8
_FRAMES_MAX_HELD: Final = 32
_FRACTION: Final = 0.25


class _Pair:
    """One end of a connection, and room for one vector in flight."""

    def __init__(self, n_params: int, way: str, buffers: tuple[Tensor, Tensor] | None) -> None:
        self.way = way
        self.vector, self.staged = buffers or (torch.ones(n_params), torch.zeros(n_params))
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        frames_max = _FRAMES_MAX if way == "plain" else _FRAMES_MAX_HELD
        self.socket.setsockopt(zmq.SNDHWM, frames_max)
        self.socket.setsockopt(zmq.RCVHWM, frames_max)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)


class RawSender(_Pair):
    """Copies its float32 vector out and sends it in frames to a `RawReceiver`."""

    def __init__(
        self,
        n_params: int,
        address: str,
        way: str = "plain",
        buffers: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__(n_params, way, buffers)
        self.socket.connect(address)

    def send_to(self, other: Partner) -> float:
        """Send the vector to a process; return the seconds until its reported time of the mix."""
        other.say(self.way)
        start_s = time.monotonic()
        if self.way == "plain":
            self.staged.copy_(self.vector)
        count = _FRAME_BYTES // 4
        for frame, own in zip(self.staged.split(count), self.vector.split(count), strict=True):
            if self.way != "plain":
                frame.copy_(own)
            self.socket.send(frame.numpy().data.cast("B"), copy=False)
        return float(other.hear()) - start_s


class RawReceiver(_Pair):
    """Receives the vectors of a `RawSender` of the same way, and mixes them."""

    def __init__(
        self,
        n_params: int,
        way: str = "plain",
        buffers: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__(n_params, way, buffers)
        self.socket.bind("tcp://127.0.0.1:*")
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self) -> float:
        """Receive one vector; return when it was mixed, seconds on the clock of all processes."""
        count = _FRAME_BYTES // 4
        for room, own in zip(self.staged.split(count), self.vector.split(count), strict=True):
            if self.way == "held":
                message = self.socket.recv(copy=False)
                own.lerp_(torch.frombuffer(message.buffer, dtype=torch.float32), _FRACTION)
                continue
            self.socket.recv_into(room.numpy().data.cast("B"))
        if self.way == "plain":
            self.vector.lerp_(self.staged, _FRACTION)
        return time.monotonic()
