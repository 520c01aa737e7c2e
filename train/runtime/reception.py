"""What becomes of a message before the protocol sees it: is it one, and may its sender say so."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar
from typing import Protocol as Interface

from ...gossip.errors import IncompatiblePeer, RemoteProtocolError
from ...gossip.protocol.protocol import Protocol
from ...gossip.transport.keys.key import is_stop_signed
from ...gossip.transport.zmq_transport import Received, Transport
from ...gossip.wire.codec import (
    decode_header,
    encode,
    is_version_notice,
    version_notice,
)
from ...gossip.wire.messages import (
    Envelope,
    Stop,
    Stopping,
)
from ..tensors.store import TensorStore

__all__ = ["Reception"]

_T = TypeVar("_T")

_REFUSES: Final = "it takes no requests to stop (remote_stop=False)"
_UNSIGNED: Final = "its swarm has keys: only the roster's owner can stop it, who signs that"


class _Look(Interface):
    """Reads something of the protocol while no event changes it."""

    def __call__(self, glance: Callable[[Protocol], _T]) -> _T: ...


class Reception:
    """Reads what comes in, on the network thread.

    Args:
        transport: Where it came in, and where refusals go out.
        store: Takes frames in where they belong.
        obeys: Whether the peer stops where somebody asks it to, over the network.
    """

    def __init__(self, transport: Transport, store: TensorStore, *, obeys: bool) -> None:
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
        if keyring is None or is_stop_signed(keyring.roster.signs, envelope.swarm, stop):
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
