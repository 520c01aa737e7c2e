"""ZeroMQ sockets of one peer: messages in parts go out and come in, bounded everywhere.

One ROUTER is bound; toward each address there are two DEALERs, one for control and one for bulk,
because a message waits behind all that was sent before it on its connection. A peer that only
dials out is answered on the way its own messages came.

The object belongs to one thread; only `wake` may be called from another.
"""

import socket as sockets
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Protocol

import zmq

from ..errors import ConfigError, TransportError
from ..types import PeerId
from ..wire.codec import Buffer
from .addresses import (
    Resolver,
    join_address,
    local_host,
    parse_address,
    sockets_max,
    split_address,
)
from .dealers import Dealers, open_socket, reason, try_send
from .receive_limit import GLANCE_S, ReceiveLimit

__all__ = ["Received", "Route", "Transport", "local_host"]


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


class _OnSocket:
    """A message whose frame is still with the socket; see `Received`."""

    __slots__ = ("_socket", "header", "more", "route")

    def __init__(self, header: bytes, route: Route, socket: "zmq.Socket[bytes]") -> None:
        self.header = header
        self.route = route
        self.more = bool(socket.getsockopt(zmq.RCVMORE))
        self._socket = socket

    def frame_into(self, room: memoryview) -> int:
        size = self._socket.recv_into(room, flags=zmq.NOBLOCK)
        self.more = bool(self._socket.getsockopt(zmq.RCVMORE))
        return size

    def frame(self) -> Buffer:
        if not self.more:
            return b""
        part = self._socket.recv(zmq.NOBLOCK, copy=False)
        self.more = part.more
        return part.buffer

    def finish(self) -> bool:
        unread = self.more
        while self.more:
            self.frame()
        return unread


_ROUTES_MAX: Final = 16_384
_GLANCE_MS: Final = int(GLANCE_S * 1000)
_BATCH: Final = 128


class Transport:
    """Sockets of one peer.

    Args:
        bind: Where to listen, as ``tcp://host:port`` (port ``*``: the system's choice), at one
            place or several; ``[::]`` takes IPv4 in, too. None for a peer that only dials out.
        bulk_messages_max: Messages of bulk that may be queued toward one peer, and as many from
            one. Credit keeps honest peers below it; this is the backstop beneath it.

    Raises:
        ConfigError: This is no address.
        TransportError: An address cannot be bound; nothing stays open.
    """

    def __init__(
        self,
        bind: str | Sequence[str] | None = "tcp://127.0.0.1:*",
        *,
        bulk_messages_max: int = 80,
    ) -> None:
        binds = (bind,) if isinstance(bind, str) else tuple(bind or ())
        binds = tuple(parse_address(each, any_port=True) for each in binds)
        self._bulk_messages_max = bulk_messages_max
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, sockets_max())
        self._poller = zmq.Poller()
        self._ways = Dealers(self._context, self._poller, bulk_messages_max)
        self._places: dict[str, tuple[str, ...]] = {}
        self._peers: dict[PeerId, tuple[str, ...]] = {}
        self._reached: dict[tuple[PeerId, bool], str] = {}
        # How each peer was last heard, for the way back; by whether the message was bulk.
        self._routes: OrderedDict[PeerId, dict[bool, Route]] = OrderedDict()
        self._router: zmq.Socket[bytes] | None = None
        self.addresses: tuple[str, ...] = ()
        """Where it listens, the ports filled in."""
        self.malformed = 0
        """Messages dropped for having too many parts."""
        if binds:
            self._bind(binds)
        self._names = Resolver()
        self.limit = ReceiveLimit(self._is_connection)
        """What cuts off whoever sends a message without an end."""
        # Not a pipe: after `close` its number may be another file's, and a late wake write there.
        self._wake_in, self._wake_out = sockets.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller.register(self._wake_in.fileno(), zmq.POLLIN)

    @property
    def address(self) -> str | None:
        """Where it listens, the port filled in; the first, where there are several."""
        return self.addresses[0] if self.addresses else None

    def meet(self, peer: PeerId, addresses: Sequence[str]) -> None:
        """Open the ways to *peer*, or change them where its addresses are others now.

        One that cannot be dialled costs nothing but the trying; a name is looked up meanwhile.
        """
        before = self._peers.get(peer, ())
        self._peers[peer] = tuple(filter(self._is_dialable, addresses))
        for address in self._peers[peer]:
            for place in self._dialled(address):
                self._ways.open(place, bulk=True)
        self._close_unused(set(before) - set(self._peers[peer]))

    def part(self, peer: PeerId) -> None:
        """Close the ways to *peer*, unless another is reached by the same."""
        self._routes.pop(peer, None)
        for bulk in (False, True):
            self._reached.pop((peer, bulk), None)
        self._close_unused(self._peers.pop(peer, ()))

    def reset(self, peers: Collection[PeerId]) -> None:
        """Break off the ways to some peers, and dial them anew.

        What is queued or half sent on these ways is lost, and so is what has come on them and was
        not taken yet.
        """
        addresses = {address for peer in peers for address in self._peers.get(peer, ())}
        self._ways.reset({place for each in addresses for place in self._places.get(each, (each,))})

    def learn(self, peer: PeerId, route: Route, *, bulk: bool) -> None:
        """Note on which way a message of *peer* came in, to answer on it where no other is."""
        if route:
            self._routes.setdefault(peer, {})[bulk] = route
            self._routes.move_to_end(peer)
        # Anybody can speak in any number of names; who was heard longest ago is forgotten.
        if len(self._routes) > _ROUTES_MAX:
            self._routes.popitem(last=False)

    def greet(self, address: str, parts: Sequence[Buffer]) -> bool:
        """Send to whoever listens at *address*.

        Returns:
            False where nobody could be reached (yet); the message is gone then.
        """
        if not self._is_dialable(address):
            return False
        places = self._dialled(address)
        for place in places:
            self._ways.open(place, bulk=False)
        return any(self._ways.send(place, parts, bulk=False) for place in places)

    def unresolved(self, address: str) -> str:
        """Why the name in an address that was greeted does not resolve; empty where it does, or is
        being looked up. May be called from any thread."""
        return self._names.why_not(address)

    def dismiss(self, address: str) -> None:
        """Close what dialing *address* has opened, unless a peer is reached there.

        It stays open, too, where something has come on it since this was last asked for: somebody
        lives there under another address, and may have no other way back.
        """
        places = self._places.get(address, (address,))
        # All are asked, so that each counts anew from now on.
        if not any([self._ways.heard_of(place) for place in places]):
            self._close_unused([address])

    def send(self, peer: PeerId, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        """Send to a peer, never waiting: where it was last reached, or else at other addresses.

        Returns:
            False where the network refused, so that the message can never arrive. True promises
            nothing but that it was handed over.
        """
        addresses = self._peers.get(peer, ())
        places = [place for address in addresses for place in self._dialled(address)]
        # To jump to and fro between two that work would change the order of messages.
        places.sort(key=lambda place: place != self._reached.get((peer, bulk)))
        for place in places:
            self._ways.open(place, bulk=True)
            if self._ways.send(place, parts, bulk=bulk):
                self._reached[peer, bulk] = place
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
        left_ms = max(0, int(timeout_s * 1000) + 1)
        found: list[tuple[Any, int]] = []
        # What never becomes a message wakes nobody.
        while not found and left_ms > 0:
            found = self._poller.poll(min(left_ms, _GLANCE_MS))
            left_ms -= _GLANCE_MS
            if not found:
                self.limit.watch()
        for ready, _ in found:
            if isinstance(ready, int):
                self._swallow_wakes()
            else:
                yield from self._drain(ready)
        self.limit.watch()

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
        self.limit.close()
        self._wake_in.close()
        self._wake_out.close()

    def _bind(self, binds: Sequence[str]) -> None:
        try:
            router = open_socket(self._context, zmq.ROUTER, self._bulk_messages_max)
            # Unset, a message for a peer that has left would vanish without an error.
            router.setsockopt(zmq.ROUTER_MANDATORY, 1)
            for bind in binds:
                # With it, ZeroMQ reports an IPv4 address in IPv6's clothes.
                router.setsockopt(zmq.IPV6, int("[" in bind))
                router.bind(bind)
                self.addresses += (router.getsockopt_string(zmq.LAST_ENDPOINT),)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise TransportError(f"cannot listen at {bind}: {reason(error)}") from None
        self._router = router
        self._poller.register(router, zmq.POLLIN)

    def _is_dialable(self, address: str) -> bool:
        # Addresses come from strangers, and ZeroMQ would open files and multicast for some.
        try:
            return parse_address(address) == address and address not in self.addresses
        except ConfigError:
            return False

    def _dialled(self, address: str) -> tuple[str, ...]:
        """The places that an address stands for now; ways to those that it stood for are closed."""
        places = self._names.places(address)
        if places == (address,):
            return places
        former = self._places.get(address, ())
        if places != former:
            self._places[address] = places
            self._close_places(set(former) - set(places))
        return places

    def _close_unused(self, addresses: Collection[str]) -> None:
        if addresses:
            unused = set(addresses) - self._used()
            self._close_places(
                {place for each in unused for place in self._places.pop(each, (each,))}
            )

    def _close_places(self, places: Collection[str]) -> None:
        if places:
            kept = {place for each in self._used() for place in self._places.get(each, (each,))}
            self._ways.close(set(places) - kept)

    def _used(self) -> set[str]:
        return {address for several in self._peers.values() for address in several}

    def _send_back(self, peer: PeerId, parts: Sequence[Buffer], bulk: bool) -> bool:
        routes = self._routes.get(peer)
        if self._router is None or routes is None:
            return False
        route = routes.get(bulk)
        if route is None:
            # Where its own way was open before, it is full now, or opens again in a moment; control
            # would wait behind bulk that takes its way.
            if (peer, bulk) in self._reached:
                return False
            route = next(iter(routes.values()))
        return try_send(self._router, [route, *parts])

    def _drain(self, socket: "zmq.Socket[bytes]") -> Iterator[Received]:
        for _ in range(_BATCH):
            # Whoever takes the messages may part from a peer in between.
            if socket.closed:
                return
            route = b""
            try:
                if socket is self._router:
                    route = socket.recv(zmq.NOBLOCK)
                    if not socket.getsockopt(zmq.RCVMORE):
                        self.malformed += 1
                        continue
                first = self._first(socket, route or socket)
            except zmq.Again:
                return
            if not route:
                self._ways.heard(socket)
            received = _OnSocket(first, route, socket)
            yield received
            if not socket.closed and received.finish():
                self.malformed += 1

    def _first(self, socket: "zmq.Socket[bytes]", who: object) -> bytes:
        """The first part of a message that is one of somebody's."""
        if self.limit.has_heard(who):
            return socket.recv(zmq.NOBLOCK)
        part = socket.recv(zmq.NOBLOCK, copy=False)
        self.limit.came(who, part)
        return part.bytes

    def _is_connection(self, here: tuple[Any, ...], there: tuple[Any, ...]) -> bool:
        """Whether a TCP connection between two ends is one of these sockets'."""
        if str(here[1]) in {split_address(address)[1] for address in self.addresses}:
            return True
        host = str(there[0]).removeprefix("::ffff:")
        return join_address(host, str(there[1])) in self._ways.places

    def _swallow_wakes(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            pass
