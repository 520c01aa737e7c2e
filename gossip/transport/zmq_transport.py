"""ZeroMQ sockets of one peer: multipart messages out and in, through bounded queues.

One ROUTER is bound; each address is dialed by two DEALERs, one for control and one for bulk,
because a message waits behind all earlier ones on its connection. A peer that only dials out is
answered on the connection of its own messages.
"""

import socket as sockets
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import zmq

from ..errors import ConfigError, TransportError
from ..types import PeerId
from ..wire.codec import Buffer
from .addresses import (
    Resolver,
    key_in,
    local_host,
    parse_address,
    sockets_max,
    without_key,
)
from .dealers import Dealers
from .keys.curve import ROSTER_MAGIC, Curve
from .keys.keyring import Keyring
from .listener import Listener
from .sockets import OnSocket, Received, Route, try_send

__all__ = ["Received", "Route", "Transport", "local_host"]


_BATCH: Final = 128

# With keys: longest interval between checks of pending admissions and of the roster.
_LOOK_S: Final = 0.25


class Transport:
    """Sockets of one peer; belongs to one thread, except for `wake`.

    Args:
        bind: One or several addresses to listen at, as ``tcp://host:port`` (port ``*``: the
            system's choice); ``[::]`` includes IPv4. None for a peer that only dials out.
        bulk_messages_max: Most bulk messages queued to one peer, and from one. Credit keeps honest
            peers below it; this is the backstop.
        keyring: This machine's key, and the machines to admit; None to admit all, without keys.

    Raises:
        ConfigError: An address is malformed, or keys are not available.
        TransportError: An address cannot be bound; nothing stays open.
    """

    def __init__(
        self,
        bind: str | Sequence[str] | None = "tcp://127.0.0.1:*",
        *,
        bulk_messages_max: int = 80,
        keyring: Keyring | None = None,
    ) -> None:
        binds = (bind,) if isinstance(bind, str) else tuple(bind or ())
        binds = tuple(parse_address(each, any_port=True) for each in binds)
        self._bulk_messages_max = bulk_messages_max
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, sockets_max())
        self._poller = zmq.Poller()
        # First, because a socket bound before the key handler would admit any key.
        self._curve = None if keyring is None else Curve(self._context, keyring)
        if self._curve is not None:
            self._poller.register(self._curve.zap, zmq.POLLIN)
        self._expelled: set[PeerId] = set()
        self._members: set[bytes] = set() if keyring is None else {*keyring.machines}
        self._ways = Dealers(self._context, self._poller, bulk_messages_max, self._curve)
        self._places: dict[str, tuple[str, ...]] = {}
        self._peers: dict[PeerId, tuple[str, ...]] = {}
        self._reached: dict[tuple[PeerId, bool], str] = {}
        # The route of each peer's last message, for answers; by whether the message was bulk.
        self._routes: dict[PeerId, dict[bool, Route]] = {}
        # The place at which each dialed peer answered, which may differ from its own addresses.
        self._heard_at: dict[PeerId, str] = {}
        self.malformed = 0
        """Messages dropped for having too many parts."""
        self._listener = Listener(self._context, self._poller, self._curve, bulk_messages_max)
        if binds:
            try:
                self._listener.bind(binds)
            except TransportError:
                self._context.destroy(linger=0)
                raise
        self._names = Resolver()
        # Not a pipe: after `close` its number may belong to another file, where a late wake would
        # write.
        self._wake_in, self._wake_out = sockets.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller.register(self._wake_in.fileno(), zmq.POLLIN)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Listening addresses, with their actual ports."""
        return self._listener.addresses

    @property
    def address(self) -> str | None:
        return self.addresses[0] if self.addresses else None

    @property
    def keyring(self) -> Keyring | None:
        """Own key and admitted machines; None without keys."""
        return None if self._curve is None else self._curve.keyring

    @property
    def refused(self) -> Mapping[str, int]:
        """Number of connections and messages refused for their key, by reason."""
        return {} if self._curve is None else self._curve.refused

    def may_speak_as(self, key: bytes, name: PeerId) -> bool:
        """True if the machine with a key may send in a peer's name; refusals are counted and
        logged."""
        return self._curve is None or self._curve.may_speak_as(key, name)

    def take_expelled(self) -> set[PeerId]:
        """Return each newly expelled name: all machines that used it have been revoked."""
        expelled, self._expelled = self._expelled, set()
        return expelled

    def meet(self, peer: PeerId, addresses: Sequence[str]) -> None:
        """Connect to *peer*, or update its connections if its addresses have changed."""
        # An address that cannot be dialed does no harm; names are resolved in the background.
        before = self._peers.get(peer, ())
        self._peers[peer] = tuple(filter(self._is_dialable, addresses))
        for address in self._peers[peer]:
            for place in self._dialled(address):
                self._ways.open(place, bulk=True)
        self._close_unused(set(before) - set(self._peers[peer]))

    def part(self, peer: PeerId) -> None:
        """Close the connections to *peer*, except those that other peers also use."""
        self._routes.pop(peer, None)
        self._heard_at.pop(peer, None)
        for bulk in (False, True):
            self._reached.pop((peer, bulk), None)
        self._close_unused(self._peers.pop(peer, ()))

    def reset(self, peers: Collection[PeerId]) -> None:
        """Close the connections to some peers, with all messages queued on them, and dial again."""
        addresses = {address for peer in peers for address in self._peers.get(peer, ())}
        self._ways.reset({place for each in addresses for place in self._places.get(each, (each,))})

    def learn(self, peer: PeerId, route: Route, *, bulk: bool, place: str = "") -> None:
        """Note how a message of *peer* arrived, to answer the same way if necessary."""
        if route:
            self._routes.setdefault(peer, {})[bulk] = route
        elif place:
            self._heard_at[peer] = place

    def greet(self, address: str, parts: Sequence[Buffer]) -> bool:
        """Send to the peer that listens at *address*; False if it is not connected (yet)."""
        if not self._is_dialable(address):
            return False
        places = self._dialled(address)
        for place in places:
            self._ways.open(place, bulk=False)
        return any(self._ways.send(place, parts, bulk=False) for place in places)

    def refusal(self, address: str) -> str:
        """Return why communication with an address fails, or an empty string; for any thread."""
        if why := self._names.why_not(address):
            return f"has a name that does not resolve ({why})"
        places = self._places.get(address, (address,))
        return next(filter(None, map(self._ways.refusal, places)), "")

    def reject(self, received: Received, why: str, answer: Sequence[Buffer]) -> None:
        """Note why a message cannot be understood, and send the answer, if any, to its sender."""
        if place := received.place:
            self._ways.reject(place, why, answer)
        elif answer:
            self.answer(received, answer)

    def dismiss(self, address: str) -> None:
        """Close connections to *address* that no peer uses, and on which nothing arrived lately."""
        # A sender that was heard may have no other way to be answered.
        places = self._places.get(address, (address,))
        # A list, not a generator: each place must be queried, which resets its state.
        if not any([self._ways.heard_of(place) for place in places]):
            self._close_unused([address])

    def send(self, peer: PeerId, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        """Send to a peer, without waiting; False if the network refused, so that it can never
        arrive."""
        # First the place where it was last reached, then its other addresses.
        addresses = self._peers.get(peer, ())
        places = [place for address in addresses for place in self._dialled(address)]
        # Alternating between two places that work would change the order of messages.
        places.sort(key=lambda place: place != self._reached.get((peer, bulk)))
        for place in places:
            self._ways.open(place, bulk=True)
            if self._ways.send(place, parts, bulk=bulk):
                self._reached[peer, bulk] = place
                return True
        return self._send_back(peer, parts, bulk) or self._send_there(peer, parts, bulk)

    def answer(self, question: Received, parts: Sequence[Buffer]) -> bool:
        """Answer a message from the bound socket; False for any other, or if the queue is full."""
        route, router = question.route, self._listener.socket
        return bool(route and router is not None and try_send(router, [route, *parts]))

    def poll(self, timeout_s: float) -> Iterator[Received]:
        """Wait until a message arrives, `wake` is called or the timeout expires.

        Yields the messages that are ready, each of which can be read until the next is requested.
        """
        if self._curve is not None:
            timeout_s = min(timeout_s, _LOOK_S)
        # ZeroMQ counts in milliseconds: rounding down would busy-wait through the last one.
        for ready, _ in self._poller.poll(max(0, int(timeout_s * 1000) + 1)):
            if isinstance(ready, int):
                self._wake_in.recv(4096)
            elif ready is self._listener.socket or self._ways.has(ready):
                yield from self._drain(ready)
        if self._curve is not None:
            self._look(self._curve)

    def wake(self) -> None:
        """Make `poll` return; may be called from any thread, and after `close` does nothing."""
        try:
            self._wake_out.send(b"\0")
        except OSError:
            pass  # already full of wakes, or closed

    def close(self, linger_s: float = 0.2) -> None:
        """Close everything; last messages may take *linger_s* to be sent."""
        self._context.destroy(linger=int(linger_s * 1000))
        self._wake_in.close()
        self._wake_out.close()

    def _look(self, curve: Curve) -> None:
        curve.answer()
        self._ways.look()
        if curve.keyring.look():
            self._follow_roster(curve)

    def _follow_roster(self, curve: Curve) -> None:
        lost = self._members - curve.keyring.machines.keys()
        self._members = {*curve.keyring.machines}
        # Disconnect machines that it no longer admits, and send it to the others.
        for place in self._ways.places():
            if not curve.is_member(key_in(place)):
                self._ways.close([place], linger_ms=0)
            elif not curve.is_told(place):
                self._tell(curve, place)
        if lost:
            self._expelled |= curve.gone(lost)
            self._routes.clear()
            self._listener.bind_again()

    def _tell(self, curve: Curve, link: str | Route) -> None:
        if isinstance(link, str):
            is_sent = self._ways.send(link, [curve.message], bulk=False)
        else:
            router = self._listener.socket
            is_sent = bool(router is not None and try_send(router, [link, curve.message]))
        if is_sent:
            curve.note_told(link)

    def _is_dialable(self, address: str) -> bool:
        # Addresses come from remote peers; for some, ZeroMQ would open files or use multicast.
        try:
            if parse_address(address) != address or without_key(address) in self.addresses:
                return False
        except ConfigError:
            return False
        return bool(key_in(address)) is (self._curve is not None)

    def _dialled(self, address: str) -> tuple[str, ...]:
        """Return the places that an address resolves to now, and close its former ones."""
        if self._curve is not None and not self._curve.is_member(key_in(address)):
            return ()
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
        if self._listener.socket is None or not routes:
            return False
        route = routes.get(bulk)
        if route is None:
            # If a dialed connection was open before, it is full now or will reopen in a moment.
            # Sending bulk here instead would delay control.
            if (peer, bulk) in self._reached:
                return False
            route = next(iter(routes.values()))
        is_sent = try_send(self._listener.socket, [route, *parts])
        if is_sent is None:
            # The peer has dialed again, and may have sent nothing on the new connection yet.
            self._routes[peer] = {kind: each for kind, each in routes.items() if each != route}
            return self._send_back(peer, parts, bulk)
        return is_sent

    def _send_there(self, peer: PeerId, parts: Sequence[Buffer], bulk: bool) -> bool:
        # It answered elsewhere than at its own addresses: behind a router that translates them, or
        # if its name resolves to another machine there.
        place = self._heard_at.get(peer)
        # A place that was dismissed meanwhile is not dialed again.
        if place is None or place not in self._ways:
            return False
        self._ways.open(place, bulk=True)
        return self._ways.send(place, parts, bulk=bulk)

    def _drain(self, socket: "zmq.Socket[bytes]") -> Iterator[Received]:
        for _ in range(_BATCH):
            # The caller may close this connection between two messages.
            if socket.closed:
                return
            try:
                received = self._taken(socket)
            except zmq.Again:
                return
            if received is None:
                continue
            yield received
            if not socket.closed and received.finish():
                self.malformed += 1

    def _taken(self, socket: "zmq.Socket[bytes]") -> OnSocket | None:
        """Receive the next message; None if it is dropped, or is a roster."""
        curve, place, route, key = self._curve, "", b"", b""
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        if socket is self._listener.socket:
            if not frame.more:
                self.malformed += 1
                return None
            route = frame.bytes
            key = b"" if curve is None else curve.key_of(frame)
            frame = socket.recv(zmq.NOBLOCK, copy=False)
        else:
            place, key = self._ways.end_of(socket)
        received = OnSocket(frame.bytes, route, socket, key, place)
        if curve is not None and not curve.admits(key):
            received.finish()
            return None
        if place:
            self._ways.hear(socket)
        if curve is None:
            return received
        if received.header.startswith(ROSTER_MAGIC):
            received.finish()
            if curve.take(received.header):
                self._follow_roster(curve)
            return None
        if not curve.is_told(link := place or route):
            self._tell(curve, link)
        return received
