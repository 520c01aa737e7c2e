"""ZeroMQ sockets of one peer: messages in parts go out and come in, bounded everywhere.

One ROUTER is bound; toward each address there are two DEALERs, one for control and one for bulk,
because a message waits behind all that was sent before it on its connection. A peer that only
dials out is answered on the way its own messages came.

The object belongs to one thread; only `wake` may be called from another.
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
from .received import OnSocket, Received, Route
from .sockets import try_send

__all__ = ["Received", "Route", "Transport", "local_host"]


_BATCH: Final = 128

# With keys: how long at most nobody looks who asks to be let in, and at the roster.
_LOOK_S: Final = 0.25


class Transport:
    """Sockets of one peer.

    Args:
        bind: Where to listen, as ``tcp://host:port`` (port ``*``: the system's choice), at one
            place or several; ``[::]`` takes IPv4 in, too. None for a peer that only dials out.
        bulk_messages_max: Messages of bulk that may be queued toward one peer, and as many from
            one. Credit keeps honest peers below it; this is the backstop beneath it.
        keyring: Whom to let in, and by which key to be known to them; None for anybody, without
            keys.

    Raises:
        ConfigError: This is no address, or there can be no keys.
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
        # First: a socket that is bound before somebody answers for keys could let anybody in.
        self._curve = None if keyring is None else Curve(self._context, keyring)
        if self._curve is not None:
            self._poller.register(self._curve.zap, zmq.POLLIN)
        self._expelled: set[PeerId] = set()
        self._members: set[bytes] = set() if keyring is None else {*keyring.machines}
        self._ways = Dealers(self._context, self._poller, bulk_messages_max, self._curve)
        self._places: dict[str, tuple[str, ...]] = {}
        self._peers: dict[PeerId, tuple[str, ...]] = {}
        self._reached: dict[tuple[PeerId, bool], str] = {}
        # How each peer was last heard, for the way back; by whether the message was bulk.
        self._routes: dict[PeerId, dict[bool, Route]] = {}
        # Where each peer answered that was dialled, which need not be where it says that it is.
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
        # Not a pipe: after `close` its number may be another file's, and a late wake write there.
        self._wake_in, self._wake_out = sockets.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller.register(self._wake_in.fileno(), zmq.POLLIN)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, the ports filled in."""
        return self._listener.addresses

    @property
    def address(self) -> str | None:
        """Where it listens, the port filled in; the first, where there are several."""
        return self.addresses[0] if self.addresses else None

    @property
    def keyring(self) -> Keyring | None:
        """Who is let in; None without keys."""
        return None if self._curve is None else self._curve.keyring

    @property
    def refused(self) -> Mapping[str, int]:
        """Connections and messages that were refused for their key, by the reason."""
        return {} if self._curve is None else self._curve.refused

    def may_speak_as(self, key: bytes, name: PeerId) -> bool:
        """Whether the machine with a key may send in the name of a peer. One that may not is
        counted, and told of in the log."""
        return self._curve is None or self._curve.may_speak_as(key, name)

    def take_expelled(self) -> set[PeerId]:
        """Names in which only machines spoke that were let in and are no more; each once."""
        expelled, self._expelled = self._expelled, set()
        return expelled

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
        self._heard_at.pop(peer, None)
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

    def learn(self, peer: PeerId, route: Route, *, bulk: bool, place: str = "") -> None:
        """Note on which way a message of *peer* came in, to answer on it where no other is."""
        if route:
            self._routes.setdefault(peer, {})[bulk] = route
        elif place:
            self._heard_at[peer] = place

    def greet(self, address: str, parts: Sequence[Buffer]) -> bool:
        """Send to whoever listens at *address*; False where nobody could be reached (yet)."""
        if not self._is_dialable(address):
            return False
        places = self._dialled(address)
        for place in places:
            self._ways.open(place, bulk=False)
        return any(self._ways.send(place, parts, bulk=False) for place in places)

    def unresolved(self, address: str) -> str:
        """Why the name in an address does not resolve; empty where it does. On any thread."""
        return self._names.why_not(address)

    def refusal(self, address: str) -> str:
        """Why whoever listens at an address cannot be dealt with; see `Dealers.refusal`."""
        places = self._places.get(address, (address,))
        return next(filter(None, map(self._ways.refusal, places)), "")

    def reject(self, received: Received, why: str, answer: Sequence[Buffer]) -> None:
        """Note why a message cannot be understood, and say so, if at all, on the way it came."""
        if place := received.place:
            self._ways.reject(place, why, answer)
        elif answer:
            self.answer(received, answer)

    def dismiss(self, address: str) -> None:
        """Close what dialing *address* has opened, unless a peer is reached there, or something has
        come on it since this was last asked for: who sent that may have no other way back."""
        places = self._places.get(address, (address,))
        # All are asked, so that each counts anew from now on.
        if not any([self._ways.heard_of(place) for place in places]):
            self._close_unused([address])

    def send(self, peer: PeerId, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        """Send to a peer, never waiting: where it was last reached, or else at other addresses.

        False where the network refused, so that the message can never arrive. True promises nothing
        but that it was handed over.
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
        return self._send_back(peer, parts, bulk) or self._send_there(peer, parts, bulk)

    def answer(self, question: Received, parts: Sequence[Buffer]) -> bool:
        """Send back to where a message came from, unless that is full, or was dialled from here."""
        route, router = question.route, self._router
        return bool(route) and router is not None and try_send(router, [route, *parts])

    def poll(self, timeout_s: float) -> Iterator[Received]:
        """Wait until something has come in, `wake` is called or the time is over.

        Yields:
            The messages that lie ready, at most a batch of each socket. The frame of one can be
            read until the next is asked for.
        """
        if self._curve is not None:
            timeout_s = min(timeout_s, _LOOK_S)
        # ZeroMQ counts in milliseconds: rounding down would spin through the last one.
        for ready, _ in self._poller.poll(max(0, int(timeout_s * 1000) + 1)):
            if isinstance(ready, int):
                self._swallow_wakes()
            elif ready is self._router or self._ways.has(ready):
                yield from self._drain(ready)
        if self._curve is not None:
            self._look(self._curve)

    def wake(self) -> None:
        """Make `poll` return; may be called from any thread, and after `close` does nothing."""
        try:
            self._wake_out.send(b"\0")
        except OSError:
            pass  # it is full of wakes already, or closed

    def close(self, linger_s: float = 0.2) -> None:
        """Close everything; last messages may take so many seconds to get out."""
        self._context.destroy(linger=int(linger_s * 1000))
        self._wake_in.close()
        self._wake_out.close()

    def _look(self, curve: Curve) -> None:
        """See who asks to be let in, how handshakes went, and whether the roster has changed.

        Raises:
            TransportError: This machine is let in no more.
        """
        curve.answer()
        self._ways.look()
        if curve.keyring.look():
            self._follow_roster(curve)

    def _follow_roster(self, curve: Curve) -> None:
        """Break off all ways to whom the roster lets in no more, and tell others of it.

        Raises:
            TransportError: The address cannot be bound again.
        """
        lost = self._members - curve.keyring.machines.keys()
        self._members = {*curve.keyring.machines}
        for place in self._ways.places():
            if not curve.is_member(key_in(place)):
                self._ways.close([place], linger_ms=0)
            elif not curve.is_told(place):
                self._tell(curve, place)
        if lost:
            self._expelled |= curve.gone(lost)
            self._routes.clear()
            self._listener.bind_again()

    @property
    def _router(self) -> "zmq.Socket[bytes] | None":
        return self._listener.socket

    def _tell(self, curve: Curve, link: str | Route) -> None:
        parts = curve.message()
        if isinstance(link, str):
            is_sent = self._ways.send(link, parts, bulk=False)
        else:
            is_sent = self._router is not None and try_send(self._router, [link, *parts])
        if not is_sent:
            curve.untold(link)

    def _is_dialable(self, address: str) -> bool:
        # Addresses come from strangers, and ZeroMQ would open files and multicast for some.
        try:
            if parse_address(address) != address or without_key(address) in self.addresses:
                return False
        except ConfigError:
            return False
        return bool(key_in(address)) is (self._curve is not None)

    def _dialled(self, address: str) -> tuple[str, ...]:
        """The places that an address stands for now; ways to those that it stood for are closed."""
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

    def _send_there(self, peer: PeerId, parts: Sequence[Buffer], bulk: bool) -> bool:
        """Send to where a peer answered, which is elsewhere than it says: behind a router that
        translates addresses, or where its name means another machine."""
        place = self._heard_at.get(peer)
        # What was dismissed meanwhile is not dialled again.
        if place is None or place not in self._ways:
            return False
        self._ways.open(place, bulk=True)
        return self._ways.send(place, parts, bulk=bulk)

    def _drain(self, socket: "zmq.Socket[bytes]") -> Iterator[Received]:
        for _ in range(_BATCH):
            # Whoever takes the messages may part from a peer in between.
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
        """The next message; None for one that is dropped, and for a roster.

        Raises:
            zmq.Again: There is none.
            TransportError: A roster lets this machine in no more.
        """
        curve, place, route, key = self._curve, "", b"", b""
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        if socket is self._router:
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

    def _swallow_wakes(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            pass
