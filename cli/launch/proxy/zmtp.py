"""One direction of a ZeroMQ connection, cut where its messages begin and end.

Whoever loses or repeats bytes of a stream must do so by whole messages, all frames of one with it:
anything less, and the rest of the stream is noise to whoever reads it.

Source: ZMTP 3.1, https://rfc.zeromq.org/spec/37/: a greeting of 64 bytes, then frames, each of a
byte of flags, a size of one byte or eight, and a body. All frames but commands are of messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Follower", "Piece"]

_GREETING_BYTES: Final = 64
_MECHANISM: Final = slice(12, 32)

_MORE, _LONG, _COMMAND = 1, 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some bytes of the stream."""

    data: bytes | memoryview
    is_message: bool = False
    """Whether they are of a message. What is not must arrive: greeting, commands, and all of a
    stream that cannot be followed."""
    first: bool = False
    """Whether a message begins with them."""
    last: bool = False
    """Whether a message ends with them."""


class Follower:
    """Follows one direction of a connection from its first byte.

    A stream that is not ZMTP 3, or whose messages are encrypted and numbered (CURVE), cannot be
    followed: none of its bytes are of a message then.
    """

    def __init__(self) -> None:
        self.follows = True
        """Whether the stream can be followed, as far as it has come."""
        self._greeting = bytearray()
        self._head = bytearray()
        self._flags = 0
        self._body_left = 0
        self._within = False
        """Whether a message has begun and not ended."""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Take in what has come and cut it.

        Args:
            data: The next bytes of the stream.

        Yields:
            All bytes, in order; at most 8, of a frame's head, wait for those that come next.
        """
        rest = memoryview(data)
        if self.follows and len(self._greeting) < _GREETING_BYTES:
            greeting = rest[: _GREETING_BYTES - len(self._greeting)]
            self._greeting += greeting
            self.follows = _can_be_followed(self._greeting)
            yield Piece(data=greeting)
            rest = rest[len(greeting) :]
        while rest and self.follows:
            if self._body_left:
                body = rest[: self._body_left]
                self._body_left -= len(body)
                yield self._piece(body)
                rest = rest[len(body) :]
            else:
                taken = self._take_head(rest)
                rest = rest[taken:]
                if len(self._head) == _head_bytes(self._head[0]):
                    yield self._begin()
        if rest:
            yield Piece(data=rest)

    def _take_head(self, rest: memoryview) -> int:
        before = len(self._head)
        self._head += rest[: _head_bytes(self._head[0] if before else rest[0]) - before]
        return len(self._head) - before

    def _begin(self) -> Piece:
        """The head of a frame, which is complete."""
        self._flags, head = self._head[0], bytes(self._head)
        self._body_left = int.from_bytes(head[1:], "big")
        self._head.clear()
        first = not self._within and not self._flags & _COMMAND
        self._within |= first
        return self._piece(head, first=first)

    def _piece(self, data: bytes | memoryview, *, first: bool = False) -> Piece:
        if self._flags & _COMMAND:
            return Piece(data=data)
        last = self._body_left == 0 and not self._flags & _MORE
        self._within &= not last
        return Piece(data=data, is_message=True, first=first, last=last)


def _head_bytes(flags: int) -> int:
    return 9 if flags & _LONG else 2


def _can_be_followed(came: bytearray) -> bool:
    """Whether a greeting, or as much of it as has come, is one of ZMTP 3 without encryption."""
    greeting = bytes(came)
    if not b"\xff".startswith(greeting[:1]) or not b"\x7f\3".startswith(greeting[9:11]):
        return False
    whole = len(greeting) == _GREETING_BYTES
    return not whole or greeting[_MECHANISM].rstrip(b"\0") == b"NULL"
