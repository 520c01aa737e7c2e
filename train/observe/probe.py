"""Query single peers of a swarm from outside.

A peer answers a hello for another model at once, with the schema of its own, and keeps no record of
it: the sender enters no view, holds no weight and asks for none. The time until the answer is a
round trip; extra bytes in the hello, which the peer drops, give the bandwidth. A peer answers a
hello for its own model that names no member with its view.
"""

import os
import time
from collections.abc import Sequence
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

__all__ = ["LinkProbe", "Probe", "asker_name", "bare_address", "question", "why_silent"]

_HELLO: Final = Hello(members=(), rooted=False, reply=True)

_TRIPS: Final = 20
_LARGE_S: Final = 0.3
# Other traffic delays a message only for a moment, so a message is sent several times if that takes
# no longer than this.
_LARGE_TRIPS: Final = 3
_LARGE_S_MAX: Final = 2.0
_NAP_S: Final = 0.005

# No schema has this hash, so no peer trains such a model.
_NO_MODEL: Final = b"\xff" * 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProbe:
    """The link from here to one peer and back."""

    address: str
    roundtrip_s: float
    """The shortest of several, seconds: network latency, and little of the peer's own delay."""
    roundtrip_s_mean: float
    """The typical time, seconds, with the delays from the peer's own threads."""
    bytes_s: float
    """Bandwidth toward the peer, bytes per second."""
    share_bytes: int
    """Size of the vector that is trained there, bytes."""


class Probe:
    """Queries peers and measures links; *timeout_s* is the timeout for one answer, seconds."""

    def __init__(
        self,
        *,
        timeout_s: float = 10.0,
        keyring: Keyring | None = None,
    ) -> None:
        self._timeout_s = timeout_s
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
        """Measure the link to the peer at *address*, with at most *bytes_max* at a time.

        If fewer bytes than that pass in a third of a second, the bandwidth is underestimated.

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
        """Return the answer of the peer at *address* to a member of its swarm: a `Hello` with all
        members that it knows, itself first, including those that have not joined yet or have left.

        Raises:
            TransportError: It does not answer.
        """
        place = self._reached(address)
        self._send([place], question(self._id, _HELLO, self.schema(place).hash))
        return self._await(place, Hello)

    def schema(self, address: str) -> Schema:
        """Return the schema of the model that is trained at *address*.

        Raises:
            TransportError: It does not answer.
        """
        place = self._reached(address)
        if place not in self._schemas:
            self._send([place], question(self._id, _HELLO))
            answer = self._await(place, Describe).body
            assert isinstance(answer, Describe)
            self._schemas[place] = answer.schema
        return self._schemas[place]

    def _bytes_s(self, place: str, roundtrip_s: float, bytes_max: int) -> float:
        """Send more and more bytes until the time is measurable; the fastest trip counts."""
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
        """Return the seconds from hellos with *sizes* extra bytes to the last answer."""
        began_s = time.perf_counter()
        for size in sizes or (0,):
            self._send([place], replace(question(self._id, _HELLO), frame_bytes=size))
        for _ in sizes or (0,):
            self._await(place, Describe)
        return time.perf_counter() - began_s

    def _reached(self, address: str) -> str:
        """Return the place that answers: with keys, the one with that machine's key."""
        place = parse_address(address)
        if self._keyring is None or key_in(place):
            return place
        if place not in self._answering:
            places = tuple(with_keys([place], self._keyring))
            self._answering[place] = self._send(places, question(self._id, _HELLO))
            self._await(place, Describe)
        return self._answering[place]

    def _send(self, places: Sequence[str], envelope: Envelope) -> str:
        """Send a message to the first place that accepts a connection, and return that place.

        Raises:
            TransportError: None does in time.
        """
        parts = encode(envelope, bytes(envelope.frame_bytes))
        give_up_s = time.perf_counter() + self._timeout_s
        while True:
            for place in places:
                if self._transport.greet(place, parts):
                    return place
            if time.perf_counter() >= give_up_s:
                raise TransportError(why_silent(self._transport, places))
            for _ in self._transport.poll(_NAP_S):
                pass

    def _await(self, place: str, kind: type[Body]) -> Envelope:
        """Return the next envelope whose body is a *kind*.

        Raises:
            TransportError: None arrives in time.
            RemoteProtocolError: A message arrives that is not from a peer of this version.
        """
        until_s = time.perf_counter() + self._timeout_s
        while (rest_s := until_s - time.perf_counter()) > 0:
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
    """Return a message from outside a swarm to the peer that listens at an address."""
    return Envelope(
        swarm=b"",
        schema=schema,
        source=asker,
        # The first possible incarnation, so that no peer mistakes it for another's later one.
        source_incarnation=1,
        destination="",
        destination_incarnation=0,
        body=body,
    )


def asker_name(word: str, keyring: Keyring | None) -> str:
    """Return a name to query under: with keys, a name that the roster allows on this machine."""
    chance = f"{word}-{os.urandom(6).hex()}"
    if keyring is None:
        return chance
    names = keyring.names
    return f"{names[:-1]}{chance}" if names.endswith("*") else f"{names}.{chance}"


def bare_address(place: str) -> str:
    """Return an address as people write it: ``host:port``."""
    return without_key(place).removeprefix("tcp://")


def why_silent(transport: Transport, places: Sequence[str]) -> str:
    """Say why none of the places of one address has taken a message.

    With keys, there is a place for each machine of the roster: all but one of them have the wrong
    key, and the refusal by the right one is the reason.
    """
    refusals = sorted(
        filter(None, map(transport.refusal, places)), key=lambda told: told.startswith("refuses")
    )
    hint = "is a peer listening there? (a swarm with keys answers nobody without its keys)"
    why = refusals[-1] if refusals else hint
    return f"{bare_address(places[0])} does not answer: {why}"
