"""Query single peers of a swarm from outside.

A peer answers a hello for another model at once, with the schema of its own, and keeps no record of
it. The time until the answer is a round trip; extra bytes in the hello, which the peer drops, give
the bandwidth. A peer answers a hello for its own model that names no member with its view.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from ...gossip import TransportError
from ...gossip.transport.addresses import parse_address
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.zmq_transport import Transport
from ...gossip.wire.codec import FRAME_BYTES_MAX, Buffer, decode, encode
from ...gossip.wire.messages import Body, Describe, Envelope, Hello
from ...gossip.wire.schema import Schema
from ..runtime.search import bare_address, with_keys

__all__ = ["LinkProbe", "Probe", "asker_name", "question", "why_silent"]

_Kind = TypeVar("_Kind", bound=Body)

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


class Probe:
    """Queries one peer, and measures the link to it.

    Each query raises `TransportError` if no answer arrives in time, and `RemoteProtocolError` if
    what answers is not a peer of this version.
    """

    def __init__(
        self, address: str, *, timeout_s: float = 10.0, keyring: Keyring | None = None
    ) -> None:
        # With keys, one place per machine of the roster, until one of them has answered.
        self._places = tuple(with_keys([parse_address(address)], keyring))
        self._timeout_s = timeout_s
        self._name = asker_name(keyring)
        self._transport = Transport(None, keyring=keyring)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def sound(self, *, bytes_max: int = 16 << 20) -> LinkProbe:
        """Measure the link, with at most *bytes_max* at a time.

        If fewer bytes than that pass in a third of a second, the bandwidth is underestimated.
        """
        self._trip(0)  # The first one connects, which takes longer.
        trips = [self._trip(0) for _ in range(_TRIPS)]
        return LinkProbe(
            address=self._places[0],
            roundtrip_s=min(trips),
            roundtrip_s_mean=sum(trips) / len(trips),
            bytes_s=self._bytes_s(min(trips), bytes_max),
        )

    def hello(self, schema: Schema) -> tuple[Envelope, Hello]:
        """Return all members that a peer of this *schema* knows, itself first."""
        self.send(_HELLO, schema.hash)
        return self._await(Hello)

    def schema(self) -> Schema:
        """Return the schema of the model that the peer trains."""
        self.send(_HELLO)
        return self._await(Describe)[1].schema

    def _bytes_s(self, roundtrip_s: float, bytes_max: int) -> float:
        """Send more and more bytes until the time is measurable; the fastest trip counts."""
        size, trips = min(bytes_max, 1 << 18), list[float]()
        while True:
            trips.append(self._trip(size))
            if min(trips) - roundtrip_s < _LARGE_S and size < bytes_max:
                size, trips = min(bytes_max, 4 * size), []
            elif len(trips) == _LARGE_TRIPS or sum(trips) >= _LARGE_S_MAX:
                took_s = min(trips)
                return size / max(took_s - roundtrip_s, took_s / 10)

    def _trip(self, size: int) -> float:
        """Return the seconds from hellos with *size* extra bytes in all to the last answer."""
        whole, rest = divmod(size, FRAME_BYTES_MAX)
        frames = [FRAME_BYTES_MAX] * whole + [rest]
        began_s = time.perf_counter()
        for frame_bytes in frames:
            self.send(_HELLO, frame_bytes=frame_bytes)
        for _ in frames:
            self._await(Describe)
        return time.perf_counter() - began_s

    def send(self, body: Body, schema: bytes = _NO_MODEL, **fields: Any) -> None:
        """Send a message to the first place that accepts a connection, and later to that alone."""
        envelope = question(self._name, body, schema, **fields)
        parts = encode(envelope, bytes(envelope.frame_bytes))
        give_up_s = time.perf_counter() + self._timeout_s
        while True:
            for place in self._places:
                if self._transport.greet(place, parts):
                    self._places = (place,)
                    return
            if time.perf_counter() >= give_up_s:
                raise TransportError(why_silent(self._transport, self._places))
            for _ in self._transport.poll(_NAP_S):
                pass

    def _await(self, kind: type[_Kind]) -> tuple[Envelope, _Kind]:
        """Return the next message of a *kind*."""
        for envelope, body, _ in self.answers(kind, time.perf_counter() + self._timeout_s):
            return envelope, body
        raise TransportError(
            f"{bare_address(self._places[0])} took the question and did not answer within "
            f"{self._timeout_s:g} s"
        )

    def answers(
        self, kind: type[_Kind], until_s: float
    ) -> Iterator[tuple[Envelope, _Kind, Buffer]]:
        """Yield messages of a *kind* with their bodies and frames as they arrive until a time."""
        while (rest_s := until_s - time.perf_counter()) > 0:
            for received in self._transport.poll(rest_s):
                frame = received.frame()
                envelope = decode([received.header, frame] if len(frame) else [received.header])
                if envelope.destination == self._name and isinstance(body := envelope.body, kind):
                    yield envelope, body, frame


def question(asker: str, body: Body, schema: bytes = _NO_MODEL, **fields: Any) -> Envelope:
    """Return a message from outside a swarm to the peer that listens at an address."""
    told: dict[str, Any] = {"swarm": b"", "destination": "", "destination_incarnation": 0, **fields}
    # The first possible incarnation, so that no peer mistakes it for another's later one.
    return Envelope(schema=schema, source=asker, source_incarnation=1, body=body, **told)


def asker_name(keyring: Keyring | None) -> str:
    """Return a name to query under: with keys, a name that the roster allows on this machine."""
    chance = f"observer-{os.urandom(6).hex()}"
    if keyring is None:
        return chance
    names = keyring.names
    return f"{names[:-1]}{chance}" if names.endswith("*") else f"{names}.{chance}"


def why_silent(transport: Transport, places: Sequence[str]) -> str:
    """Say why none of the places of one address has taken a message."""
    # With keys, there is a place for each machine of the roster. All but one of them have the wrong
    # key, and the refusal by the right one is the reason.
    refusals = sorted(
        filter(None, map(transport.refusal, places)), key=lambda told: told.startswith("refuses")
    )
    hint = "is a peer listening there? (a swarm with keys ignores peers without them)"
    why = refusals[-1] if refusals else hint
    return f"{bare_address(places[0])} does not answer: {why}"
