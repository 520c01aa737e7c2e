"""Messages of the suite, each with a number: bulk (a frame of a share) or control (an answer)."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rumor.gossip.wire.messages import Ack, Chunk, Envelope

__all__ = ["CONNECTS", "Letter", "letter", "numbers"]


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
    """A message: bulk if it has a frame, else control."""
    ends: Any = {"source": source, "source_incarnation": 1}
    ends |= {"destination": to, "destination_incarnation": life}
    body = Ack(number, 0) if frame is None else Chunk(number, 0, 0)
    swarm: Any = {"swarm": bytes(16), "schema": bytes(16), "frame_bytes": len(frame or b"")}
    return Letter(Envelope(**swarm, **ends, body=body), frame or b"")


CONNECTS: Final = 10**9
"""Number of messages that only make a connection; the last of them may come at any time."""


def numbers(came: Sequence[Letter], *, bulk: bool) -> list[int]:
    return [one.number for one in came if one.bulk is bulk and one.number != CONNECTS]
