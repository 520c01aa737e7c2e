"""What the suite asks of any network: processes with addresses, and what may go wrong between them.

A message is either bulk (a frame of a share) or control (an answer); both carry a number.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from rumor.gossip.wire.messages import Ack, Chunk, Envelope

__all__ = ["CONNECTS", "End", "Letter", "Post", "letter", "numbers"]


class Letter(NamedTuple):
    envelope: Envelope
    frame: bytes = b""

    @property
    def number(self) -> int:
        assert isinstance(self.envelope.body, Ack | Chunk)
        return self.envelope.body.seq

    @property
    def bulk(self) -> bool:
        return isinstance(self.envelope.body, Chunk)


def letter(
    source: str, to: str, number: int, *, frame: bytes | None = None, life: int = 1
) -> Letter:
    """A message: bulk where there is a frame, else control."""
    ends: Any = {"source": source, "source_incarnation": 1}
    ends |= {"destination": to, "destination_incarnation": life}
    body = Ack(number, 0) if frame is None else Chunk(number, 0, 0)
    swarm: Any = {"swarm": bytes(16), "schema": bytes(16), "frame_bytes": len(frame or b"")}
    return Letter(Envelope(**swarm, **ends, body=body), frame or b"")


CONNECTS: Final = 10**9
"""Number of messages that only make a connection; the last of them may come at any time."""


def numbers(came: Sequence[Letter], *, bulk: bool) -> list[int]:
    return [one.number for one in came if one.bulk is bulk and one.number != CONNECTS]


class End(Protocol):
    """One life of one process."""

    name: str
    came: list[Letter]
    """What has come, in order."""

    def greet(self, name: str, message: Letter) -> bool:
        """Send to whoever listens at the address of *name*; False where that was refused."""

    def send(self, name: str, message: Letter) -> bool:
        """Send to somebody whose address is known, or who was heard; False where refused."""


class Post(Protocol):
    """A network and the processes on it."""

    takes_unread_max: int | None
    """Bulk messages that it takes at most for a process that reads none; None where the sender's
    credit is all that bounds them."""

    def open(self, name: str, *, listens: bool = True) -> End:
        """Start a process, or its next life: on the same address, where it listens."""

    def meet(self, one: str, other: str) -> None:
        """Let *one* know the addresses of *other*."""

    def kill(self, name: str) -> None:
        """End a process without a word."""

    def stand_still(self, name: str) -> None:
        """Let a process read nothing for a while."""

    def go_on(self, name: str) -> None:
        """Let it read again."""

    def cut(self, source: str, to: str) -> None:
        """Let nothing get from *source* to *to*."""

    def heal(self) -> None:
        """End all cuts."""

    def reset(self, one: str, other: str) -> None:
        """Reset the connections between two; both may dial again at once."""

    def reset_in_transfer(self, source: str, to: str, send: Callable[[], object]) -> None:
        """Let the connection from *source* to *to* be reset while what *send* sends is under way.

        Some of it has come by then, or nothing.
        """

    def settle(self) -> None:
        """Let all arrive that will."""

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until something holds; fails where it never does."""

    def close(self) -> None:
        """End everything."""
