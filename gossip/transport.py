"""ZeroMQ sockets of one peer: messages in parts go out and come in, bounded everywhere.

One ROUTER is bound; toward each address there are two DEALERs, one for control and one for bulk,
because a message waits behind all that was sent before it on its connection. A peer that only
dials out is answered on the way its own messages came.

The object belongs to one thread; only `wake` may be called from another.
"""

import resource
import socket as sockets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import zmq

from .address import parse_address
from .codec import FRAME_BYTES_MAX, Buffer
from .errors import ConfigError, TransportError
from .messages import PeerId

__all__ = ["Received", "Route", "Transport", "local_host"]

Route = bytes
"""How to answer a message that came in on the bound socket; empty for one that did not."""

# A ROUTER and a DEALER put CURVE's 33 bytes, and nothing else, on top of a part.
_PART_BYTES_MAX: Final = FRAME_BYTES_MAX + 4096

_CONTROL_MESSAGES_MAX: Final = 512
_SOCKETS_MAX: Final = 8192
_ROUTES_MAX: Final = 16_384
_BATCH: Final = 128


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


@dataclass(slots=True)
class _Way:
    """The sockets toward one address."""

    control: "zmq.Socket[bytes]"
    bulk: "zmq.Socket[bytes] | None" = None


@dataclass(slots=True)
class _Routes:
    """How a peer was last heard, for the way back; by whether the message was bulk."""

    last: dict[bool, Route] = field(default_factory=dict)


class Transport:
    """Sockets of one peer.

    Args:
        bind: Where to listen, as ``tcp://host:port`` (port ``*``: the system's choice); None for
            a peer that only dials out.
        bulk_messages_max: Messages of bulk that may be queued toward one peer, and as many from
            one. Credit keeps honest peers below it; this is the backstop beneath it.

    Raises:
        ConfigError: This is no address.
        TransportError: The address cannot be bound; nothing stays open.
    """

    def __init__(
        self, bind: str | None = "tcp://127.0.0.1:*", *, bulk_messages_max: int = 80
    ) -> None:
        self._bulk_messages_max = bulk_messages_max
        bind = bind and parse_address(bind, any_port=True)
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, _sockets_max())
        self._poller = zmq.Poller()
        self._ways: dict[str, _Way] = {}
        self._addresses: dict[PeerId, tuple[str, ...]] = {}
        self._routes: OrderedDict[PeerId, _Routes] = OrderedDict()
        self._router: zmq.Socket[bytes] | None = None
        self.address: str | None = None
        """Where it listens, the port filled in."""
        self.malformed = 0
        """Messages dropped for having too many parts."""
        if bind is not None:
            self._bind(bind)
        # Not a pipe: after `close` its number may be another file's, and a late wake write there.
        self._wake_in, self._wake_out = sockets.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller.register(self._wake_in.fileno(), zmq.POLLIN)

    def meet(self, peer: PeerId, addresses: Sequence[str]) -> None:
        """Open the ways to *peer*, or change them where its addresses are others now."""
        addresses = tuple(filter(self._is_dialable, addresses))
        before = self._addresses.get(peer, ())
        self._addresses[peer] = addresses
        for address in addresses:
            way = self._way(address)
            if way is not None and way.bulk is None:
                way.bulk = self._dial(address, self._bulk_messages_max)
        self._close_unused(set(before) - set(addresses))

    def _is_dialable(self, address: str) -> bool:
        # Addresses come from strangers, and ZeroMQ would open files and multicast for some.
        try:
            return parse_address(address) == address != self.address
        except ConfigError:
            return False

    def part(self, peer: PeerId) -> None:
        """Close the ways to *peer*, unless another is reached by the same."""
        self._routes.pop(peer, None)
        self._close_unused(self._addresses.pop(peer, ()))

    def learn(self, peer: PeerId, route: Route, *, bulk: bool) -> None:
        """Note on which way a message of *peer* came in, to answer on it where no other is."""
        if route:
            self._routes.setdefault(peer, _Routes()).last[bulk] = route
            self._routes.move_to_end(peer)
        # Anybody can speak in any number of names; who was heard longest ago is forgotten.
        if len(self._routes) > _ROUTES_MAX:
            self._routes.popitem(last=False)

    def greet(self, address: str, parts: Sequence[Buffer]) -> bool:
        """Send to whoever listens at *address*.

        Returns:
            False where nobody could be reached (yet); the message is gone then.
        """
        way = self._way(address) if self._is_dialable(address) else None
        return way is not None and _try_send(way.control, parts)

    def send(self, peer: PeerId, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        """Send to a peer, never waiting.

        Returns:
            False where the network refused, so that the message can never arrive. True promises
            nothing but that it was handed over.
        """
        for address in self._addresses.get(peer, ()):
            way = self._way(address)
            if way is not None and _try_send((bulk and way.bulk) or way.control, parts):
                return True
        return self._send_back(peer, parts, bulk)

    def poll(self, timeout_s: float) -> Iterator[Received]:
        """Wait until something has come in, `wake` is called or the time is over.

        Args:
            timeout_s: Seconds.

        Yields:
            The messages that lie ready, at most a batch of each socket. The frame of one can be
            read until the next is asked for.
        """
        # ZeroMQ counts in milliseconds: rounding down would spin through the last one.
        for ready, _ in self._poller.poll(max(0, int(timeout_s * 1000) + 1)):
            if isinstance(ready, int):
                self._swallow_wakes()
            else:
                yield from self._drain(ready)

    def wake(self) -> None:
        """Make `poll` return; may be called from any thread, and after `close` does nothing."""
        try:
            self._wake_out.send(b"\0")
        except OSError:
            pass  # it is full of wakes already, or closed

    def close(self, linger_s: float = 0.2) -> None:
        """Close everything.

        Args:
            linger_s: How long last messages may take to get out, seconds.
        """
        self._context.destroy(linger=int(linger_s * 1000))
        self._wake_in.close()
        self._wake_out.close()

    def _bind(self, bind: str) -> None:
        try:
            router = self._socket(zmq.ROUTER, self._bulk_messages_max)
            # Unset, a message for a peer that has left would vanish without an error.
            router.setsockopt(zmq.ROUTER_MANDATORY, 1)
            # With it, ZeroMQ reports an IPv4 address in IPv6's clothes.
            router.setsockopt(zmq.IPV6, int("[" in bind))
            router.bind(bind)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise TransportError(f"cannot listen at {bind}: {_reason(error)}") from None
        self.address = router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._router = router
        self._poller.register(router, zmq.POLLIN)

    def _socket(self, kind: int, messages_max: int) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, messages_max)
        socket.setsockopt(zmq.RCVHWM, messages_max)
        # Without it, one handshake of 512 MiB by a stranger costs 512 MiB.
        socket.setsockopt(zmq.MAXMSGSIZE, _PART_BYTES_MAX)
        socket.setsockopt(zmq.HANDSHAKE_IVL, 5_000)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        return socket

    def _dial(self, address: str, messages_max: int) -> "zmq.Socket[bytes] | None":
        """A socket toward *address*; None where there can be none, or one too many."""
        try:
            socket = self._socket(zmq.DEALER, messages_max)
        except zmq.ZMQError:
            return None
        socket.setsockopt(zmq.IPV6, 1)
        # Nothing is queued for a peer that is not connected: a send fails at once instead.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5_000)
        try:
            socket.connect(address)
        except zmq.ZMQError:
            # Strangers name addresses, too: one that ZeroMQ cannot read is merely out of reach.
            socket.close()
            return None
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def _way(self, address: str) -> _Way | None:
        way = self._ways.get(address)
        if way is None:
            control = self._dial(address, _CONTROL_MESSAGES_MAX)
            if control is None:
                return None
            way = self._ways[address] = _Way(control)
        return way

    def _close_unused(self, addresses: Sequence[str] | set[str]) -> None:
        used = {address for several in self._addresses.values() for address in several}
        for address in sorted(set(addresses) - used):
            way = self._ways.pop(address, None)
            for socket in (way.control, way.bulk) if way else ():
                if socket is not None:
                    self._poller.unregister(socket)
                    socket.close(linger=200)

    def _send_back(self, peer: PeerId, parts: Sequence[Buffer], bulk: bool) -> bool:
        routes = self._routes.get(peer)
        if self._router is None or routes is None:
            return False
        route = routes.last.get(bulk) or next(iter(routes.last.values()))
        return _try_send(self._router, [route, *parts])

    def _drain(self, socket: "zmq.Socket[bytes]") -> Iterator[Received]:
        for _ in range(_BATCH):
            # Whoever takes the messages may part from a peer in between.
            if socket.closed:
                return
            try:
                first = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            route = b""
            if socket is self._router:
                if not socket.getsockopt(zmq.RCVMORE):
                    self.malformed += 1
                    continue
                route, first = first, socket.recv(zmq.NOBLOCK)
            received = Received(first, route, socket)
            yield received
            if not socket.closed and received.finish():
                self.malformed += 1

    def _swallow_wakes(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            pass


def _sockets_max() -> int:
    # A socket that dials takes two files. As many are left for those who dial us, and for others.
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        _SOCKETS_MAX if files_max == resource.RLIM_INFINITY else min(_SOCKETS_MAX, files_max // 4)
    )


def _try_send(socket: "zmq.Socket[bytes]", parts: Sequence[Buffer]) -> bool:
    try:
        socket.send_multipart(parts, zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return False
        raise TransportError(f"sending failed: {_reason(error)}") from None
    return True


def _reason(error: zmq.ZMQError) -> str:
    """What went wrong, without the address that pyzmq adds."""
    return zmq.strerror(error.errno or 0)


def local_host(toward: str | None = None) -> str:
    """This machine's address on the network.

    Args:
        toward: A host: the address is that of the interface which leads to it. The interface of
            the default route unless given.

    Returns:
        An IPv4 address, or the machine's name where it has no route.
    """
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only looks the route up.
            probe.connect((toward or "192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except (OSError, UnicodeError):  # the latter for a name that can be none
            return sockets.gethostname()
