"""The network of real peers: ZeroMQ on the loopback interface, through relays."""

import math
import time
from collections.abc import Callable
from contextlib import suppress

from rumor.gossip.errors import TransportError
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.wire.codec import decode, encode

from ..live.relay import Network
from ..waiting import until
from .post import Letter

__all__ = ["End", "ZeroMQPost"]

_SETTLED_S = 0.4
_IN_FLIGHT_BYTES = 1_000_000


class End:
    def __init__(self, post: "ZeroMQPost", name: str, transport: Transport) -> None:
        self.name = name
        self.received: list[Letter] = []
        self.paused = False
        self.transport = transport
        self._post = post

    def greet(self, name: str, message: Letter) -> bool:
        address = self._post.network.toward(self.name, name)
        return self.transport.greet(address, encode(message.envelope, message.frame))

    def send(self, name: str, message: Letter) -> bool:
        parts = encode(message.envelope, message.frame)
        return self.transport.send(name, parts, bulk=message.bulk)

    def read(self) -> bool:
        before = len(self.received)
        for incoming in () if self.paused else self.transport.poll(0):
            frame = bytes(incoming.frame())
            envelope = decode([incoming.header, frame] if frame else [incoming.header])
            self.received.append(Letter(envelope, frame))
            self.transport.learn(envelope.source, incoming.route, bulk=self.received[-1].bulk)
        return len(self.received) > before


class ZeroMQPost:
    # Two connections. Each holds 80 messages in the queue of either side, 32 (8 MB) in the relay,
    # and those in the buffers of four sockets, which depend on the system: about 40 as measured,
    # 300 if it lets a socket buffer grow to 32 MB.
    unread_max: int | None = 2 * (80 + 80 + 32 + 300)

    def __init__(self) -> None:
        self.network = Network()
        self._ends: dict[str, End] = {}

    def open(self, name: str, *, listens: bool = True) -> End:
        # A later incarnation listens at the address of the earlier one.
        bind = self.network.addresses.get(name, "tcp://127.0.0.1:*") if listens else None
        transport = _opened(bind)
        if transport.address is not None:
            self.network.addresses[name] = transport.address
        end = self._ends[name] = End(self, name, transport)
        return end

    def meet(self, one: str, other: str) -> None:
        self._ends[one].transport.meet(other, [self.network.toward(one, other)])

    def kill(self, name: str) -> None:
        self._ends.pop(name).transport.close(0)

    def pause(self, name: str) -> None:
        self._ends[name].paused = True

    def resume(self, name: str) -> None:
        self._ends[name].paused = False

    def cut(self, source: str, to: str) -> None:
        self.network.cut(source, to)

    def heal(self) -> None:
        self.network.heal()

    def reset(self, one: str, other: str) -> None:
        self.network.reset(one, other)

    def reset_in_transfer(self, source: str, to: str, send: Callable[[], object]) -> None:
        ways = self.network.ways(source, to)
        for way in ways:
            way.stops_after_bytes = way.passed_bytes + _IN_FLIGHT_BYTES
        send()
        self.until(lambda: any(way.holds for way in ways))
        self.network.reset(source, to)
        for way in ways:
            way.stops_after_bytes = math.inf

    def settle(self) -> None:
        last_s = time.monotonic()
        while time.monotonic() - last_s < _SETTLED_S:
            if self._read():
                last_s = time.monotonic()

    def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            self._read()
            return condition()

        until(holds, poll_s=0)

    def close(self) -> None:
        for name in tuple(self._ends):
            self.kill(name)
        self.network.close()

    def _read(self) -> bool:
        received = [end.read() for end in self._ends.values()]
        if not any(received):
            time.sleep(0.002)
        return any(received)


def _opened(bind: str | None) -> Transport:
    """Open a transport; the system may need a moment to free the address of a dead peer."""
    made: list[Transport] = []

    def is_free() -> bool:
        with suppress(TransportError):
            made.append(Transport(bind))
        return bool(made)

    until(is_free, f"{bind} is free")
    return made[0]
