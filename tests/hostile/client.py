"""An attacker with its own encoder, which can send messages that rumor never sends.

The attacker needs the swarm, schema and incarnation of its victim. It learns them as any client
can: it sends a hello with a wrong schema and reads the answer.
"""

import struct
import time
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgpack
import xxhash
import zmq
from zmq.utils import z85

from rumor.gossip.wire import messages as m
from rumor.gossip.wire.codec import VERSION

from ..waiting import LIMIT_S

__all__ = ["Stranger", "member", "offer"]

SEEKING, JOINING, TRAINING, FINISHED, QUIET, LEAVING, LEFT = range(7)

U63 = 2**63 - 1
FOUNDER = 2**40
"""Units of weight that a founder brings."""

_PREFIX = struct.Struct("<3sBI")
_ATTEMPTS_MAX, _SOON_S = 150, 2.0

Parts = list[bytes]


def member(
    name: str,
    *,
    incarnation: int = 1,
    heartbeat: int = 1,
    phase: int = TRAINING,
    step: int = 0,
    addresses: Sequence[str] = (),
) -> list[Any]:
    """Return an entry of a member table."""
    return [name, incarnation, heartbeat, phase, step, list(addresses), False, b"", 0, []]


def offer(seq: int, escrow: int, size_bytes: int, *, frame_bytes: int = 0) -> list[Any]:
    """Return the body of an OFFER or PUSH; *escrow* is in units."""
    form = ["float32", False, False]
    return [seq, escrow, size_bytes, frame_bytes, 0, form, "", 0, 0, 0, 0]


class Stranger:
    """A connection of an attacker to a live peer.

    Args:
        context: ZeroMQ context of the socket.
        address: Address of the victim, ``tcp://host:port``.
        name: Default name of the sender.
        keys: Public and secret key of the attacker and public key of the victim, 32 bytes each;
            None for an attacker without keys.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        name: str,
        keys: tuple[bytes, bytes, bytes] | None = None,
    ) -> None:
        self.name = name
        self.victim, self.incarnation = "", 0
        self.swarm, self.schema = b"", bytes(16)
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDTIMEO, int(LIMIT_S * 1000))
        if keys is not None:
            public, secret, server = map(z85.encode, keys)
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, server)
        self.socket.connect(address)

    def learn(self) -> None:
        """Find out the victim's name and incarnation, its swarm and its schema.

        The request is repeated: an answer may be late or dropped.
        """
        hello = self.parts(m.Hello, self.hello(member(self.name, phase=SEEKING)))
        answer: list[Any] | None = None
        for _ in range(_ATTEMPTS_MAX):
            self.send(hello)
            if (answer := self.receive_within(m.Describe)) is not None:
                break
        assert answer is not None, "the victim does not answer"
        self.swarm, self.schema, self.victim, self.incarnation = answer[:4]

    def hello(
        self, *members: Sequence[Any], clock: Sequence[tuple[str, int]] = (), reply: bool = True
    ) -> list[Any]:
        """Return the body of a HELLO."""
        return [list(members), [list(row) for row in clock], True, reply]

    def parts(
        self,
        kind: type[m.Body],
        body: Sequence[Any],
        frame: bytes = b"",
        *,
        name: str | None = None,
        incarnation: int = 1,
    ) -> Parts:
        """Return a message with a valid checksum and the victim's address."""
        check = xxhash.xxh3_64_intdigest(frame) if frame else 0
        source = self.name if name is None else name
        to = [self.victim, self.incarnation] if self.victim else ["", 0]
        head = [self.swarm, self.schema, source, incarnation, *to, len(frame), 0, check]
        packed: bytes = msgpack.packb([*head, m.BODIES.index(kind), list(body)])
        first = _PREFIX.pack(b"RMR", VERSION, crc32(packed)) + packed
        return [first, frame] if frame else [first]

    def send_message(self, *message: Any, **sender: Any) -> None:
        """Send one message; the arguments are those of `parts`."""
        self.send(self.parts(*message, **sender))

    def send(self, parts: Parts) -> None:
        """Send arbitrary parts, which need not be a message."""
        self.socket.send_multipart(parts)

    def introduce(self, **entry: Any) -> None:
        """Send a hello, so that the victim knows the attacker."""
        self.send_message(m.Hello, self.hello(member(self.name, **entry)))

    def receive(self, kind: type[m.Body]) -> list[Any]:
        """Return the header of the next message of a kind; skip other messages."""
        answer = self.receive_within(kind, LIMIT_S)
        assert answer is not None, f"no answer of {kind}"
        return answer

    def receive_within(self, kind: type[m.Body], within_s: float = _SOON_S) -> list[Any] | None:
        """Return the header of the next message of a kind, or None after *within_s*."""
        give_up_s = time.monotonic() + within_s
        while (left_s := give_up_s - time.monotonic()) > 0:
            if self.socket.poll(int(left_s * 1000)):
                fields = _read(self.socket.recv_multipart())
                if fields[9] == m.BODIES.index(kind):
                    return fields
        return None

    def drain(self) -> list[list[Any]]:
        """Return the headers of all messages that have arrived."""
        found = []
        while self.socket.poll(0):
            found.append(_read(self.socket.recv_multipart()))
        return found

    def close(self) -> None:
        """Close the connection."""
        self.socket.close(0)


def _read(parts: Sequence[bytes]) -> list[Any]:
    first = parts[0]
    if not first.startswith(b"RMR") or len(first) == _PREFIX.size:
        return [b""] * 9 + [-1, ()]  # a roster, or a notice of its version
    fields: list[Any] = msgpack.unpackb(first[_PREFIX.size :])
    return fields
