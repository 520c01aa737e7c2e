"""What becomes of a message before the protocol sees it: is it one, is it whole, may its sender say
so, is it for somebody else."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from typing import Protocol as Interface

from ...gossip import Envelope, Protocol, RemoteProtocolError
from ...gossip.errors import IncompatiblePeer
from ...gossip.membership.dialing import relay_of
from ...gossip.protocol.limits import TokenBuckets
from ...gossip.transport.keys.requests import is_stop_signed
from ...gossip.transport.zmq_transport import Received, Transport
from ...gossip.types import PeerId
from ...gossip.wire.codec import (
    Buffer,
    decode_header,
    encode,
    is_version_notice,
    version_notice,
)
from ...gossip.wire.messages import (
    Ack,
    Chunk,
    Grant,
    Hello,
    Leave,
    Member,
    Offer,
    Pending,
    Push,
    Query,
    Read,
    Stop,
    Stopping,
)
from ..tensors.store import TensorStore
from .send_queue import BULK
from .telling.counters import Counters

__all__ = ["Reception", "Relay", "relay_for"]

_T = TypeVar("_T")

_REFUSES: Final = "it takes no requests to stop (no_remote_stop)"
_UNSIGNED: Final = "its swarm has keys: only the roster's owner can stop it, who signs that"


class _Look(Interface):
    """Reads something of the protocol while no event changes it."""

    def __call__(self, glance: Callable[[Protocol], _T]) -> _T: ...


_PASSED_ON: Final = (Hello, Push, Offer, Grant, Chunk, Ack, Query, Pending, Leave, Read)
"""What two members say to each other. Newcomers, observers and whoever ends a swarm are asked to
speak for themselves."""

_BURST_S: Final = 2.0
"""A relay passes on as much at once as it may in this time."""


class Relay:
    """Passes messages on between members that only dial out, and finds who does so.

    A message stays as it is: whose it is, for whom, and under which checksum. One that is not
    passed on is one that the network has lost, which both ends survive. So that they notice early,
    the beginning of a share is what is left out first, and a share that has begun is let through.

    Args:
        transport: Where messages leave.
        me: The peer's own name.
        members: Everybody who lives, as the protocol knows.
        counters: Count what is passed on.
        bytes_s: How much may be, bytes per second; 0 for nothing.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        transport: Transport,
        me: PeerId,
        members: Callable[[], Sequence[Member]],
        counters: Counters,
        bytes_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._me = me
        self._members = members
        self._counters = counters
        self._is_on = bytes_s > 0
        self._burst = _BURST_S * bytes_s
        self._tokens: TokenBuckets[None] = TokenBuckets(self._burst, bytes_s)
        self._clock = clock

    def via(self, peer: PeerId) -> PeerId | None:
        """Who passes on what is for a peer that only dials out, as this one does; None for nobody:
        one of the two can dial, or nobody else can be dialled."""
        if not self._is_on:
            return None
        members = self._members()
        outward = {member.id for member in members if not member.addresses}
        if not {self._me, peer} <= outward:
            return None
        takers = [member.id for member in members if member.phase.takes_shares]
        return relay_of(self._me, peer, takers, outward)

    def passes_on(self, envelope: Envelope, received: Received) -> bool:
        """Pass a message on, where it is for another member; whether it was for one."""
        to, body = envelope.destination, envelope.body
        if to in ("", self._me) or not (self._is_on and received.route):
            return False
        outward = {member.id for member in self._members() if not member.addresses}
        if not {envelope.source, to} <= outward or not isinstance(body, _PASSED_ON):
            return False
        now, counters = self._clock(), self._counters
        parts: list[Buffer] = [received.header]
        if received.more:
            parts.append(received.frame())
        size = sum(map(len, parts))
        begins = isinstance(body, Offer | Push)
        is_room = self._tokens.level(None, now) > (0 if begins else -self._burst)
        if is_room and self._transport.send(to, parts, bulk=isinstance(body, BULK)):
            self._tokens.spend(None, size, now)
            counters.relayed += 1
            counters.relayed_bytes += size
        else:
            counters.relay_dropped += 1
        return True


def relay_for(
    protocol: Protocol,
    lock: threading.Lock,
    transport: Transport,
    counters: Counters,
    bytes_s: float,
) -> Relay:
    """The relay of a peer whose protocol is read under this lock."""

    def members() -> Sequence[Member]:
        with lock:
            return protocol.live()

    me = protocol.account.id if bytes_s else ""
    return Relay(transport, me, members, counters, bytes_s)


class Reception:
    """Reads what comes in, on the network thread.

    Args:
        transport: Where it came in, and where refusals go out.
        store: Takes frames in where they belong.
        obeys: Whether the peer stops where somebody asks it to, over the network.
        relay: Passes on what is for others.
    """

    def __init__(
        self, transport: Transport, store: TensorStore, *, obeys: bool, relay: Relay
    ) -> None:
        self.passes_on = relay.passes_on
        self._transport = transport
        self._store = store
        self._obeys = obeys

    # Were `look` kept, whose it is would be kept with it, and all that a peer has.
    def read(self, received: Received, look: _Look) -> tuple[Envelope, int]:
        """What a message says, and the checksum that its frame must have.

        Raises:
            RemoteProtocolError: It is none, its sender may not speak so, or what it asks for is
                refused; whoever can be told why has been.
        """
        try:
            envelope, check = decode_header(received.header)
        except IncompatiblePeer as error:
            notice = [] if is_version_notice(received.header) else version_notice()
            self._transport.reject(received, str(error), notice)
            raise
        if received.key and not self._transport.may_speak_as(received.key, envelope.source):
            raise RemoteProtocolError("it speaks in another's name", envelope.source)
        if isinstance(envelope.body, Stop) and (why := self._why_not(envelope, envelope.body)):
            self._transport.learn(envelope.source, received.route, bulk=False, place=received.place)
            self._transport.send(
                envelope.source, encode(look(partial(self._refusal, envelope, why))), bulk=False
            )
            raise RemoteProtocolError(f"a request to stop: {why}", envelope.source)
        return envelope, check

    def _why_not(self, envelope: Envelope, stop: Stop) -> str:
        """Why a request to stop is not obeyed; empty where it is."""
        if not self._obeys:
            return _REFUSES
        keyring = self._transport.keyring
        if keyring is None or is_stop_signed(keyring.owner, envelope.swarm, stop):
            return ""
        return _UNSIGNED

    def _refusal(self, envelope: Envelope, why: str, protocol: Protocol) -> Envelope:
        return Envelope(
            swarm=protocol.swarm,
            schema=self._store.schema.hash,
            source=protocol.account.id,
            source_incarnation=protocol.account.incarnation,
            destination=envelope.source,
            destination_incarnation=envelope.source_incarnation,
            body=Stopping(why, protocol.weight, protocol.phase, protocol.steps, protocol.done),
        )
