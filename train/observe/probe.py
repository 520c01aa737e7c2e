"""Questions to single peers of a swarm, from outside of it.

A peer answers a hello for another model at once with the model that is trained here, and forgets
it: the asker gets into no view, holds no weight and asks for none. The time until the answer is a
round trip; with bytes beside the question, which are dropped, it says how fast these travel. A peer
answers a hello for its own model that names no member with its view.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ...gossip import TransportError
from ...gossip.errors import RemoteProtocolError
from ...gossip.transport.addresses import key_in, parse_address, without_key
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.zmq_transport import Transport
from ...gossip.wire.codec import FRAME_BYTES_MAX, decode_header, encode
from ...gossip.wire.messages import Body, Describe, Envelope, Hello
from ...gossip.wire.schema import Schema
from ..runtime.search import with_keys

__all__ = ["LinkProbe", "Probe", "asker_name", "bare_address", "question"]

_HELLO: Final = Hello(members=(), rooted=False, reply=True)

_TRIPS: Final = 20
_LARGE_S: Final = 0.3
# What else is on its way holds up a message, and does not last: so it is sent several times, if
# that takes no longer than this.
_LARGE_TRIPS: Final = 3
_LARGE_S_MAX: Final = 2.0
_NAP_S: Final = 0.005

# No schema hashes to it, so that no peer trains its model.
_NO_MODEL: Final = b"\xff" * 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProbe:
    """The link from here to one peer and back."""

    address: str
    roundtrip_s: float
    """The least of several, seconds: the network's part, and a moment of the peer's attention."""
    roundtrip_s_mean: float
    """What a message mostly takes, seconds: the peer's own threads are in the way."""
    bytes_s: float
    """Toward the peer, bytes per second."""
    share_bytes: int
    """Size of the vector that is trained there, bytes."""


class Probe:
    """Asks and measures; *timeout_s* is how long to wait for one answer, seconds."""

    def __init__(
        self,
        *,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.perf_counter,
        keyring: Keyring | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._id = asker_name("sounder", keyring)
        self._keyring = keyring
        self._answering: dict[str, str] = {}
        self._transport = Transport(None, keyring=keyring)
        self._schemas: dict[str, Schema] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def sound(self, address: str, *, bytes_max: int = 16 << 20) -> LinkProbe:
        """Measure the link to the peer at *address*, with *bytes_max* at a time at most; with less
        than what passes in a third of a second, the bandwidth is underestimated.

        Raises:
            TransportError: It does not answer.
        """
        place = self._reached(address)
        schema = self.schema(place)
        trips = [self._trip(place, ()) for _ in range(_TRIPS)]
        return LinkProbe(
            address=place,
            roundtrip_s=min(trips),
            roundtrip_s_mean=sum(trips) / len(trips),
            bytes_s=self._bytes_s(place, min(trips), bytes_max),
            share_bytes=schema.share_bytes,
        )

    def hello(self, address: str) -> Envelope:
        """What the peer at *address* answers to one of its own swarm: a `Hello` with all members
        that it knows, itself first, also those that have not joined yet or have left.

        Raises:
            TransportError: It does not answer.
        """
        place = self._reached(address)
        self._send(place, question(self._id, _HELLO, self.schema(place).hash))
        return self._await(place, Hello)

    def schema(self, address: str) -> Schema:
        """Of the model that is trained at *address*.

        Raises:
            TransportError: It does not answer.
        """
        place = self._reached(address)
        if place not in self._schemas:
            self._send(place, question(self._id, _HELLO))
            answer = self._await(place, Describe).body
            assert isinstance(answer, Describe)
            self._schemas[place] = answer.schema
        return self._schemas[place]

    def _bytes_s(self, place: str, roundtrip_s: float, bytes_max: int) -> float:
        """Send more and more, until it takes long enough to be measured; the quickest counts."""
        size, trips = min(bytes_max, 1 << 18), list[float]()
        while True:
            whole, rest = divmod(size, FRAME_BYTES_MAX)
            sizes = (FRAME_BYTES_MAX,) * whole + ((rest,) if rest else ())
            trips.append(self._trip(place, sizes))
            if min(trips) - roundtrip_s < _LARGE_S and size < bytes_max:
                size, trips = min(bytes_max, 4 * size), []
            elif len(trips) == _LARGE_TRIPS or sum(trips) >= _LARGE_S_MAX:
                took_s = min(trips)
                return size / max(took_s - roundtrip_s, took_s / 10)

    def _trip(self, place: str, sizes: Sequence[int]) -> float:
        """Seconds from questions with so many bytes beside them to the last answer."""
        began_s = self._clock()
        for size in sizes or (0,):
            self._send(place, replace(question(self._id, _HELLO), frame_bytes=size))
        for _ in sizes or (0,):
            self._await(place, Describe)
        return self._clock() - began_s

    def _reached(self, address: str) -> str:
        """The place that answers: with the key of the machine there, where there are keys."""
        place = parse_address(address)
        if self._keyring is None or key_in(place):
            return place
        if place not in self._answering:
            self._answering[place] = self._first_of(tuple(with_keys([place], self._keyring)))
        return self._answering[place]

    def _first_of(self, places: Sequence[str]) -> str:
        """The first of some places that lets us in.

        Raises:
            TransportError: None does.
        """
        parts = encode(question(self._id, _HELLO))
        give_up_s = self._clock() + self._timeout_s
        while self._clock() < give_up_s:
            for place in places:
                if self._transport.greet(place, parts):
                    self._await(place, Describe)
                    return place
            for _ in self._transport.poll(_NAP_S):
                pass
        refusals = [*filter(None, map(self._transport.refusal, places))]
        # Of many keys that it might have, all but one are wrong: what it says to that one counts.
        refusals.sort(key=lambda told: not told.startswith("refuses"))
        why = refusals[0] if refusals else "is a peer listening there?"
        raise TransportError(f"{bare_address(places[0])} does not answer: {why}")

    def _send(self, place: str, envelope: Envelope) -> None:
        """Send until it goes out, which it does once there is a connection.

        Raises:
            TransportError: There is none in time.
        """
        parts = encode(envelope, bytes(envelope.frame_bytes))
        give_up_s = self._clock() + self._timeout_s
        while not self._transport.greet(place, parts):
            if self._clock() >= give_up_s:
                why = self._transport.unresolved(place)
                told = f"the name does not resolve ({why})" if why else ""
                told = told or self._transport.refusal(place) or "is a peer listening there?"
                raise TransportError(f"{bare_address(place)} does not answer: {told}")
            for _ in self._transport.poll(_NAP_S):
                pass

    def _await(self, place: str, kind: type[Body]) -> Envelope:
        """The next envelope with a body of some kind.

        Raises:
            TransportError: None comes in time.
            RemoteProtocolError: What comes is not from a peer of this version.
        """
        until_s = self._clock() + self._timeout_s
        while (rest_s := until_s - self._clock()) > 0:
            for received in self._transport.poll(rest_s):
                try:
                    envelope, _ = decode_header(received.header)
                except RemoteProtocolError as error:
                    told = f"what answers is no peer of this version: {error}"
                    raise type(error)(told, error.sender) from None
                if envelope.destination == self._id and isinstance(envelope.body, kind):
                    return envelope
        raise TransportError(
            f"{bare_address(place)} took the question and did not answer within "
            f"{self._timeout_s:g} s"
        )


def question(asker: str, body: Body, schema: bytes = _NO_MODEL) -> Envelope:
    """A message from outside of a swarm to the peer that listens at an address."""
    return Envelope(
        swarm=b"",
        schema=schema,
        source=asker,
        # The first possible incarnation: no peer takes it for the later one of another.
        source_incarnation=1,
        destination="",
        destination_incarnation=0,
        body=body,
    )


def asker_name(word: str, keyring: Keyring | None) -> str:
    """A name for an asker: with keys, one that a peer on its machine may have."""
    chance = f"{word}-{os.urandom(6).hex()}"
    if keyring is None:
        return chance
    names = keyring.names
    return f"{names[:-1]}{chance}" if names.endswith("*") else f"{names}.{chance}"


def bare_address(place: str) -> str:
    """An address as people write it: ``host:port``."""
    return without_key(place).removeprefix("tcp://")
