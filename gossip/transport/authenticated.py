"""Bulk in the clear, authenticated by a keyed hash: what peers with keys may choose for speed.

CURVE encrypts at about the speed of a memory copy of long ago, on one core of either end. Here
parts of a message travel unencrypted over a second port, each under a GMAC (NIST SP 800-38D:
AES-GCM that authenticates and encrypts nothing), which takes a hundredth of that. Whoever listens
makes a key for each link and tells it over CURVE, so that only the machine at the other end of the
link can know it. A message counts up from the one before on its link: none can be played again.

Sockets are PUSH and PULL: nothing is ever read where anybody could answer.
"""

import os
import struct
from collections import OrderedDict
from collections.abc import Collection, Sequence
from hmac import compare_digest
from typing import Any, Final

import zmq

from ..errors import ConfigError, DecodeError, TransportError
from ..wire.codec import Buffer
from .received import OnSocket, Route
from .sockets import open_socket, reason

__all__ = ["OFFER_MAGIC", "BulkPort", "Seal", "read_offer"]

OFFER_MAGIC: Final = b"RMB\x01"
"""What a message begins with that offers such a way; no other message begins so."""

_ID_BYTES: Final = 16
_KEY_BYTES: Final = 16
_TAG_BYTES: Final = 16
_OFFER: Final = struct.Struct(f"!4sH{_ID_BYTES}s{_KEY_BYTES}s")
_STAMP: Final = struct.Struct(f"!{_ID_BYTES}sQ{_TAG_BYTES}s{_TAG_BYTES}s")
_NONCE: Final = struct.Struct("!QI")
_NO_TAG: Final = bytes(_TAG_BYTES)
_LINKS_MAX: Final = 1024
"""Of one machine: each of its peers has one, and another whenever it connects again."""


def _cipher(key: bytes) -> Any:
    """AES-GCM with a key, which whoever reads keys has a library for.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError("keys need a library: pip install 'rumor[keys]'") from None
    return AESGCM(key)


class Seal:
    """Hashes of the messages that go, or come, on one link.

    Args:
        id: By which the receiver knows the link, 16 bytes.
        key: Of the link, 16 bytes; never used for another.
    """

    def __init__(self, id: bytes, key: bytes) -> None:
        self.id = id
        self._cipher = _cipher(key)
        self.count = 0
        """Of the last message."""

    def stamp(self, parts: Sequence[Buffer]) -> bytes:
        """What travels in front of a message of one or two parts."""
        self.count += 1
        tags = [self.tag(self.count, index, part) for index, part in enumerate(parts)]
        return _STAMP.pack(self.id, self.count, tags[0], *(tags[1:] or [_NO_TAG]))

    def tag(self, count: int, index: int, part: Buffer) -> bytes:
        """The keyed hash of one part of a message.

        Args:
            count: Of the message, which no other message of this link has.
            index: Of the part.
            part: Its bytes.
        """
        data = memoryview(part).cast("B")
        return bytes(self._cipher.encrypt(_NONCE.pack(count, index), b"", data))


class _Authenticated(OnSocket):
    """A message whose header is genuine, and whose frame is looked at as it is received."""

    __slots__ = ("_count", "_frame_tag", "_seal")

    def __init__(
        self,
        header: bytes,
        socket: "zmq.Socket[bytes]",
        key: bytes,
        stamped: tuple[Seal, int, bytes],
    ) -> None:
        super().__init__(header, b"", socket, key)
        self._seal, self._count, self._frame_tag = stamped

    def frame_into(self, room: memoryview) -> int:
        size = super().frame_into(room)
        self._check(room.cast("B")[:size])
        return size

    def frame(self) -> Buffer:
        has_frame = self.more
        frame = super().frame()
        if has_frame:
            self._check(frame)
        return frame

    def _check(self, frame: Buffer) -> None:
        """Raise where a frame is not what was sent."""
        if not compare_digest(self._seal.tag(self._count, 1, frame), self._frame_tag):
            raise DecodeError("the frame was changed on its way")


class BulkPort:
    """The port where bulk comes in that is authenticated and not encrypted.

    Args:
        context: Of all sockets.
        hosts: Where to listen, as addresses without a port.
        port: Which; 0 for the system's choice.
        messages_max: That may be queued from each that connects.

    Raises:
        TransportError: It cannot be bound.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        hosts: Sequence[str],
        port: int,
        messages_max: int,
    ) -> None:
        self.socket = open_socket(context, zmq.PULL, messages_max)
        self.port = port
        try:
            for host in dict.fromkeys(hosts):
                self.socket.setsockopt(zmq.IPV6, int("[" in host))
                self.socket.bind(f"{host}:{self.port or '*'}")
                # On all interfaces the same.
                bound = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
                self.port = int(bound.rpartition(":")[2])
        except zmq.ZMQError as error:
            self.socket.close(linger=0)
            raise TransportError(f"cannot listen at port {port}: {reason(error)}") from None
        self.refused = 0
        """Messages that were not genuine, or came twice."""
        self._seals: dict[bytes, tuple[Seal, bytes]] = {}
        # By machine and by link, the oldest first.
        self._offers: dict[bytes, OrderedDict[Route, bytes]] = {}

    def offer(self, route: Route, machine: bytes) -> bytes:
        """The message that tells a link's other end of this port, and its key.

        Args:
            route: How the other end is answered; the same one is told the same again.
            machine: Public key of the machine there.
        """
        offers = self._offers.setdefault(machine, OrderedDict())
        if route not in offers:
            id, key = os.urandom(_ID_BYTES), os.urandom(_KEY_BYTES)
            offers[route] = _OFFER.pack(OFFER_MAGIC, self.port, id, key)
            self._seals[id] = Seal(id, key), machine
            if len(offers) > _LINKS_MAX:
                self._forget(offers.popitem(last=False)[1])
        return offers[route]

    def expel(self, machines: Collection[bytes]) -> None:
        """Take nothing more of some machines, by public key."""
        for machine in machines:
            for offer in self._offers.pop(machine, {}).values():
                self._forget(offer)

    def _forget(self, offer: bytes) -> None:
        del self._seals[_OFFER.unpack(offer)[2]]

    def take(self) -> tuple[OnSocket | None, zmq.Frame]:
        """The next message, or None for one that is not genuine; and a part of it, which knows
        its connection.

        Raises:
            zmq.Again: There is none.
        """
        stamp = self.socket.recv(zmq.NOBLOCK, copy=False)
        message = self._genuine(stamp.bytes) if stamp.more else None
        if message is None:
            self.refused += 1
            while self.socket.getsockopt(zmq.RCVMORE):
                self.socket.recv(zmq.NOBLOCK, copy=False)
        return message, stamp

    def _genuine(self, stamp: bytes) -> OnSocket | None:
        if len(stamp) != _STAMP.size:
            return None
        id, count, header_tag, frame_tag = _STAMP.unpack(stamp)
        seal, machine = self._seals.get(id, (None, b""))
        if seal is None or count <= seal.count:
            return None
        header = self.socket.recv(zmq.NOBLOCK)
        if not compare_digest(seal.tag(count, 0, header), header_tag):
            return None
        seal.count = count
        return _Authenticated(header, self.socket, machine, (seal, count, frame_tag))


def read_offer(message: bytes) -> tuple[int, Seal]:
    """The port, and the hashes, of a message that `BulkPort.offer` made.

    Raises:
        ValueError: It is none.
    """
    if len(message) != _OFFER.size:
        raise ValueError("an offer of a way for bulk has another length")
    _, port, id, key = _OFFER.unpack(message)
    return port, Seal(id, key)
