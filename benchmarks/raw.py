"""The least that moving a vector between two processes takes: plain pyzmq, nothing checked."""

import time
from types import TracebackType
from typing import Final, Self

import torch
import zmq

__all__ = ["FRAME_BYTES", "RawReceiver", "RawSender"]

FRAME_BYTES: Final = 1 << 20

_FRAMES_MAX: Final = 8
_FRACTION: Final = 0.25


class _Pair:
    """One end of a connection, and room for one vector in flight."""

    def __init__(self, n_params: int) -> None:
        self.vector = torch.ones(n_params)
        self.staged = torch.zeros(n_params)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        self.socket.setsockopt(zmq.SNDHWM, _FRAMES_MAX)
        self.socket.setsockopt(zmq.RCVHWM, _FRAMES_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.context.destroy(linger=0)


class RawSender(_Pair):
    """Copies its vector out and sends it in frames.

    Args:
        n_params: Length of the float32 vector.
        address: Where a `RawReceiver` listens.
    """

    def __init__(self, n_params: int, address: str) -> None:
        super().__init__(n_params)
        self.socket.connect(address)

    def send(self) -> float:
        """Send the vector as it is now.

        Returns:
            When the copying out began, seconds on the clock that all processes share.
        """
        start_s = time.monotonic()
        self.staged.copy_(self.vector)
        payload = self.staged.numpy().data.cast("B")
        for start in range(0, len(payload), FRAME_BYTES):
            self.socket.send(payload[start : start + FRAME_BYTES], copy=False)
        return start_s


class RawReceiver(_Pair):
    """Receives into a buffer that it keeps, and mixes at the end."""

    def __init__(self, n_params: int) -> None:
        super().__init__(n_params)
        self.socket.bind("tcp://127.0.0.1:*")
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self) -> float:
        """Take in one vector.

        Returns:
            When it was mixed, seconds on the clock that all processes share.
        """
        room = self.staged.numpy().data.cast("B")
        for start in range(0, len(room), FRAME_BYTES):
            self.socket.recv_into(room[start : start + FRAME_BYTES])
        self.vector.lerp_(self.staged, _FRACTION)
        return time.monotonic()
