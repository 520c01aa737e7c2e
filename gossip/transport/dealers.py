"""Dialing sockets: two for each place, one for control and one for bulk."""

import logging
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import zmq

from ..wire.codec import Buffer
from .addresses import key_in, without_key
from .keys.curve import Curve, HandshakeMonitor
from .keys.key import key_bytes
from .sockets import open_socket, reason, try_send

__all__ = ["Dealers"]

_log = logging.getLogger("rumor")

_CONTROL_MESSAGES_MAX: Final = 512

# Not Python's global generator, which a task may use and seed.
_CHANCE: Final = random.SystemRandom()

# ZeroMQ adds up to the first interval at random to each wait, which is little compared with the
# longest: after a network failure a swarm would reconnect in lockstep. The first is short, so that
# a link which is reset five times a second still has time to send.
_REDIAL_MS: Final = (20, 40)
_REDIAL_MS_MAX: Final = (2_500, 5_000)

# Delay before the first retry of a refused handshake; doubled after each further refusal.
_RETRY_S: Final = 0.5
_RETRY_S_MAX: Final = 30.0
_REFUSALS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A failed handshake, with the time of the next retry, seconds, monotonic."""

    why: str
    until_s: float
    wait_s: float


@dataclass(slots=True)
class _Dealer:
    """The sockets connected to one place, and the key of its machine (empty without keys)."""

    control: "zmq.Socket[bytes]"
    place: str
    key: bytes
    bulk: "zmq.Socket[bytes] | None" = None
    heard: bool = False


class Dealers:
    """The sockets to all dialed places; each is registered with the poller while it is open."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        poller: zmq.Poller,
        bulk_messages_max: int,
        curve: Curve | None = None,
    ) -> None:
        self._context = context
        self._poller = poller
        self._curve = curve
        self._monitors: dict[str, HandshakeMonitor] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._rejected: dict[str, str] = {}
        self._bulk_messages_max = bulk_messages_max
        self._ways: dict[str, _Dealer] = {}
        self._way_of: dict[zmq.Socket[bytes], _Dealer] = {}
        self._is_crowded = False

    def open(self, place: str, *, bulk: bool) -> None:
        """Dial a place, if not done yet; without *bulk* for control only."""
        way, refusal = self._ways.get(place), self._refusals.get(place)
        if way is None and refusal is not None and time.monotonic() < refusal.until_s:
            return
        if way is None:
            control = self._dial(place, _CONTROL_MESSAGES_MAX)
            if control is None:
                return
            key = b"" if self._curve is None else key_bytes(key_in(place))
            way = self._ways[place] = self._way_of[control] = _Dealer(control, place, key)
        if bulk and way.bulk is None:
            way.bulk = self._dial(place, self._bulk_messages_max)
            if way.bulk is not None:
                self._way_of[way.bulk] = way

    def __contains__(self, place: str) -> bool:
        return place in self._ways

    def has(self, socket: "zmq.Socket[bytes]") -> bool:
        return socket in self._way_of

    def hear(self, socket: "zmq.Socket[bytes]") -> None:
        self._way_of[socket].heard = True

    def end_of(self, socket: "zmq.Socket[bytes]") -> tuple[str, bytes]:
        """Return the place that a socket dials, and the key of the machine there."""
        way = self._way_of[socket]
        return way.place, way.key

    def places(self) -> list[str]:
        return list(self._ways)

    def refusal(self, place: str) -> str:
        """Return why communication with a place fails, or an empty string; for any thread."""
        refusal = self._refusals.get(place)
        return self._rejected.get(place, "") if refusal is None else refusal.why

    def reject(self, place: str, why: str, answer: Sequence[Buffer]) -> None:
        """Note why messages from a place cannot be understood, and send the answer, if any."""
        if len(self._rejected) < _REFUSALS_MAX:
            self._rejected[place] = why
        if answer:
            self.send(place, answer, bulk=False)

    def look(self) -> None:
        for place, monitor in tuple(self._monitors.items()):
            outcome = monitor.last()
            if outcome == "":
                self._refusals.pop(place, None)
            elif outcome is not None:
                self._give_up(place, outcome)

    def _give_up(self, place: str, why: str) -> None:
        # After a refusal, ZeroMQ gives up silently: only a new socket tries again.
        before = self._refusals.pop(place, None)
        wait_s = _RETRY_S if before is None else min(2 * before.wait_s, _RETRY_S_MAX)
        if len(self._refusals) >= _REFUSALS_MAX:
            self._refusals.clear()
        self._refusals[place] = _Refusal(why, time.monotonic() + wait_s, wait_s)
        self.close([place], linger_ms=0)

    def _unwatch(self, place: str) -> None:
        monitor = self._monitors.pop(place, None)
        if monitor is not None:
            self._poller.unregister(monitor.socket)
            monitor.close()

    def heard_of(self, place: str) -> bool:
        """True if a message arrived from a place since the last call."""
        way = self._ways.get(place)
        if way is None:
            return False
        heard, way.heard = way.heard, False
        return heard

    def send(self, place: str, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        """Send to a place, without waiting; False if it is not connected (yet)."""
        way = self._ways.get(place)
        return way is not None and bool(try_send((bulk and way.bulk) or way.control, parts))

    def reset(self, places: Collection[str]) -> None:
        """Close the connections to the given places, where there are any, and dial again."""
        for place in sorted(places):
            way = self._ways.get(place)
            if way is not None:
                self.close([place], linger_ms=0)
                self.open(place, bulk=way.bulk is not None)

    def close(self, places: Collection[str], linger_ms: int = 200) -> None:
        """Close the connections to the given places; last messages may take *linger_ms*."""
        for place in sorted(places):
            self._unwatch(place)
            way = self._ways.pop(place, None)
            for socket in (way.control, way.bulk) if way else ():
                if socket is not None:
                    del self._way_of[socket]
                    self._poller.unregister(socket)
                    socket.close(linger=linger_ms)

    def _dial(self, place: str, messages_max: int) -> "zmq.Socket[bytes] | None":
        """Return a socket connected to a place; None if the place is invalid or sockets run out."""
        try:
            socket = open_socket(self._context, zmq.DEALER, messages_max)
        except zmq.ZMQError as error:
            # Logged once: a peer with too few files would repeat it at every push.
            if not self._is_crowded:
                self._is_crowded = True
                _log.warning(
                    "no further neighbor can be dialed (%s): %d places are, for which there are "
                    "two sockets each; allow this process more open files (ulimit -n)",
                    reason(error),
                    len(self._ways),
                )
            return None
        try:
            socket.setsockopt(zmq.IPV6, 1)
            # Queue nothing for a peer that is not connected: a send fails at once instead.
            socket.setsockopt(zmq.IMMEDIATE, 1)
            socket.setsockopt(zmq.RECONNECT_IVL, _CHANCE.randint(*_REDIAL_MS))
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, _CHANCE.randint(*_REDIAL_MS_MAX))
            if self._curve is not None:
                self._curve.dial(socket, key_in(place))
                if place not in self._ways:
                    # One monitor is enough for the two connections to a place.
                    monitor = self._monitors[place] = HandshakeMonitor(socket)
                    self._poller.register(monitor.socket, zmq.POLLIN)
            socket.connect(without_key(place))
        except (zmq.ZMQError, ValueError):
            # Addresses also come from remote peers: if ZeroMQ cannot parse it, it is unreachable.
            self._unwatch(place)
            socket.close()
            return None
        self._poller.register(socket, zmq.POLLIN)
        return socket
