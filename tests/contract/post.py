"""Numbered messages of the suite: bulk (a frame of a share) or control (an answer)."""

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
    """Return a message: bulk if it has a frame, otherwise control."""
    ends: Any = {"source": source, "source_incarnation": 1}
    ends |= {"destination": to, "destination_incarnation": life}
    body = Ack(number, 0) if frame is None else Chunk(number, 0, 0)
    swarm: Any = {"swarm": bytes(16), "schema": bytes(16), "frame_bytes": len(frame or b"")}
    return Letter(Envelope(**swarm, **ends, body=body), frame or b"")


CONNECTS: Final = 10**9
"""Number of all messages that only open a connection; the last one may arrive at any time."""


def numbers(received: Sequence[Letter], *, bulk: bool) -> list[int]:
    return [each.number for each in received if each.bulk is bulk and each.number != CONNECTS]
