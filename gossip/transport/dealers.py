"""Sockets that dial: two toward each place, one for control and one for bulk."""

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

# Not Python's global stream, which a task may draw from, and which may have to repeat itself.
_CHANCE: Final = random.SystemRandom()

# ZeroMQ adds as much as the first again, by chance, to each wait, and that is nothing beside the
# longest: a swarm whose network comes back would reconnect in lockstep. The first is short, or on a
# link that is reset five times a second there would be no time left to send in.
_REDIAL_MS: Final = (20, 40)
_REDIAL_MS_MAX: Final = (2_500, 5_000)


# After a refused handshake; twice as long after the next.
_RETRY_S: Final = 0.5
_RETRY_S_MAX: Final = 30.0
_REFUSALS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A handshake that failed."""

    why: str
    until_s: float
    """When it is tried again, seconds, monotonic."""
    wait_s: float


@dataclass(slots=True)
class _Dealer:
    """The sockets toward one place."""

    control: "zmq.Socket[bytes]"
    place: str
    key: bytes
    """Of the machine that is there; empty without keys."""
    bulk: "zmq.Socket[bytes] | None" = None
    heard: bool = False


class Dealers:
    """All places that are dialled; the poller is told of each socket while it is open."""

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
        """Dial a place, unless that is done; without *bulk* for control only."""
        if self._refusals and not self._is_worth_trying(place):
            return
        way = self._ways.get(place)
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
        """Whether this socket dials."""
        return socket in self._way_of

    def hear(self, socket: "zmq.Socket[bytes]") -> None:
        """Note that something came from where a socket dials."""
        self._way_of[socket].heard = True

    def end_of(self, socket: "zmq.Socket[bytes]") -> tuple[str, bytes]:
        """The place that a socket dials, and the key of the machine there."""
        way = self._way_of[socket]
        return way.place, way.key

    def places(self) -> list[str]:
        """All places that are dialled."""
        return list(self._ways)

    def refusal(self, place: str) -> str:
        """Why a handshake with a place failed the last time, or what comes from there cannot be
        understood; empty where neither is so. May be called from any thread."""
        refusal = self._refusals.get(place)
        return self._rejected.get(place, "") if refusal is None else refusal.why

    def reject(self, place: str, why: str, answer: Sequence[Buffer]) -> None:
        """Note why whoever is at a place cannot be understood, and answer, if at all."""
        if len(self._rejected) < _REFUSALS_MAX:
            self._rejected[place] = why
        if answer:
            self.send(place, answer, bulk=False)

    def look(self) -> None:
        """See what became of handshakes."""
        for place, monitor in tuple(self._monitors.items()):
            outcome = monitor.last()
            if outcome == "":
                self._refusals.pop(place, None)
            elif outcome is not None:
                self._give_up(place, outcome)

    def _give_up(self, place: str, why: str) -> None:
        # After a refusal, ZeroMQ gives up without a word: only another socket tries again.
        before = self._refusals.pop(place, None)
        wait_s = _RETRY_S if before is None else min(2 * before.wait_s, _RETRY_S_MAX)
        if len(self._refusals) >= _REFUSALS_MAX:
            self._refusals.clear()
        self._refusals[place] = _Refusal(why, time.monotonic() + wait_s, wait_s)
        self.close([place], linger_ms=0)

    def _is_worth_trying(self, place: str) -> bool:
        refusal = self._refusals.get(place)
        return refusal is None or place in self._ways or time.monotonic() >= refusal.until_s

    def _unwatch(self, place: str) -> None:
        monitor = self._monitors.pop(place, None)
        if monitor is not None:
            self._poller.unregister(monitor.socket)
            monitor.close()

    def heard_of(self, place: str) -> bool:
        """Whether anything came from a place since this was last asked."""
        way = self._ways.get(place)
        if way is None:
            return False
        heard, way.heard = way.heard, False
        return heard

    def send(self, place: str, parts: Sequence[Buffer], *, bulk: bool) -> bool:
        """Send to a place, never waiting; False where nobody is connected there (yet).

        Raises:
            TransportError: The socket failed.
        """
        way = self._ways.get(place)
        if way is None:
            return False
        return try_send((bulk and way.bulk) or way.control, parts)

    def reset(self, places: Collection[str]) -> None:
        """Break off the ways to some places, those that there are, and dial these anew."""
        for place in sorted(places):
            way = self._ways.get(place)
            if way is not None:
                self.close([place], linger_ms=0)
                self.open(place, bulk=way.bulk is not None)

    def close(self, places: Collection[str], linger_ms: int = 200) -> None:
        """Close the ways to some places, those that there are; last messages may take so long."""
        for place in sorted(places):
            self._unwatch(place)
            way = self._ways.pop(place, None)
            for socket in (way.control, way.bulk) if way else ():
                if socket is not None:
                    del self._way_of[socket]
                    self._poller.unregister(socket)
                    socket.close(linger=linger_ms)

    def _dial(self, place: str, messages_max: int) -> "zmq.Socket[bytes] | None":
        """A socket toward a place; None where there can be none, or one too many."""
        try:
            socket = open_socket(self._context, zmq.DEALER, messages_max)
        except zmq.ZMQError as error:
            self._say_crowded(error)
            return None
        try:
            socket.setsockopt(zmq.IPV6, 1)
            # Nothing is queued for a peer that is not connected: a send fails at once instead.
            socket.setsockopt(zmq.IMMEDIATE, 1)
            socket.setsockopt(zmq.RECONNECT_IVL, _CHANCE.randint(*_REDIAL_MS))
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, _CHANCE.randint(*_REDIAL_MS_MAX))
            if self._curve is not None:
                self._curve.dial(socket, key_in(place))
                if place not in self._ways:
                    # Of two connections to one place, one tells how the handshake went.
                    monitor = self._monitors[place] = HandshakeMonitor(socket)
                    self._poller.register(monitor.socket, zmq.POLLIN)
            socket.connect(without_key(place))
        except (zmq.ZMQError, ValueError):
            # Strangers name addresses, too: one that ZeroMQ cannot read is merely out of reach.
            self._unwatch(place)
            socket.close()
            return None
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def _say_crowded(self, error: zmq.ZMQError) -> None:
        # Said once: whoever has too few files for its neighbors meets with it at every push.
        if not self._is_crowded:
            self._is_crowded = True
            _log.warning(
                "no further neighbor can be dialled (%s): %d places are, for which there are two "
                "sockets each; allow this process more open files (ulimit -n)",
                reason(error),
                len(self._ways),
            )
