"""Somebody who means harm, with an encoder of its own: it can say what the product would not.

What it must know to be listened to (swarm, schema, incarnation of its victim) it learns as any
stranger can: it says hello with a wrong schema, and reads the answer.
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
_ASKED_MAX, _SOON_S = 150, 2.0

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
    """An entry of a member table."""
    return [name, incarnation, heartbeat, phase, step, list(addresses), False, b"", 0, []]


def offer(seq: int, escrow: int, size_bytes: int, *, frame_bytes: int = 0) -> list[Any]:
    """A share, offered or pushed; the weight in units."""
    form = ["float32", False, False]
    return [seq, escrow, size_bytes, frame_bytes, 0, form, "", 0, 0, 0, 0]


class Stranger:
    """One connection to one live peer, in any name.

    Args:
        context: Of its socket.
        address: Where the victim listens, ``tcp://host:port``.
        name: What it calls itself, unless a message says otherwise.
        keys: Its own public and secret key and the victim's public one, 32 bytes each; None for
            one that has none.
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
        """Find out whom it talks to, and of which swarm and model that is.

        It asks again: an answer may take its time, or find no room.
        """
        hello = self.parts(m.Hello, self.hello(member(self.name, phase=SEEKING)))
        heard: list[Any] | None = None
        for _ in range(_ASKED_MAX):
            self.send(hello)
            if (heard := self.hear_soon(m.Describe)) is not None:
                break
        assert heard is not None, "nobody answers"
        self.swarm, self.schema, self.victim, self.incarnation = heard[:4]

    def hello(
        self, *members: Sequence[Any], clock: Sequence[tuple[str, int]] = (), reply: bool = True
    ) -> list[Any]:
        """The body of a HELLO."""
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
        """A message with a checksum that is right, rightly addressed."""
        check = xxhash.xxh3_64_intdigest(frame) if frame else 0
        source = self.name if name is None else name
        to = [self.victim, self.incarnation] if self.victim else ["", 0]
        head = [self.swarm, self.schema, source, incarnation, *to, len(frame), 0, check]
        packed: bytes = msgpack.packb([*head, m.BODIES.index(kind), list(body)])
        first = _PREFIX.pack(b"RMR", VERSION, crc32(packed)) + packed
        return [first, frame] if frame else [first]

    def say(self, *message: Any, **sender: Any) -> None:
        """Send one message, of the same `parts`."""
        self.send(self.parts(*message, **sender))

    def send(self, parts: Parts) -> None:
        """Send what need not be a message."""
        self.socket.send_multipart(parts)

    def introduce(self, **entry: Any) -> None:
        """Say hello, and be known from then on."""
        self.say(m.Hello, self.hello(member(self.name, **entry)))

    def hear(self, kind: type[m.Body]) -> list[Any]:
        """The header of the next message of a kind; others are passed over."""
        heard = self.hear_soon(kind, LIMIT_S)
        assert heard is not None, f"no answer of {kind}"
        return heard

    def hear_soon(self, kind: type[m.Body], within_s: float = _SOON_S) -> list[Any] | None:
        """The same, if it comes within a time."""
        give_up_s = time.monotonic() + within_s
        while (left_s := give_up_s - time.monotonic()) > 0:
            if self.socket.poll(int(left_s * 1000)):
                fields = _read(self.socket.recv_multipart())
                if fields[9] == m.BODIES.index(kind):
                    return fields
        return None

    def drain(self) -> list[list[Any]]:
        """Headers of all that has come so far."""
        found = []
        while self.socket.poll(0):
            found.append(_read(self.socket.recv_multipart()))
        return found

    def close(self) -> None:
        """Hang up."""
        self.socket.close(0)


def _read(parts: Sequence[bytes]) -> list[Any]:
    first = parts[0]
    if not first.startswith(b"RMR") or len(first) == _PREFIX.size:
        return [b""] * 9 + [-1, ()]  # a roster, or a notice of its version
    fields: list[Any] = msgpack.unpackb(first[_PREFIX.size :])
    return fields
