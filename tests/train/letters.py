"""Messages as one peer might send them to another."""

from typing import Any

from rumor.gossip.effects.effects import Send
from rumor.gossip.types import PeerId, SnapshotId
from rumor.gossip.wire.messages import Body, Chunk, Envelope

__all__ = ["letter", "send"]


def letter(body: Body, **changes: Any) -> Envelope:
    """A message from a to b, in the first incarnation of both."""
    ends = {"source": "a", "source_incarnation": 1, "destination": "b"}
    given: dict[str, Any] = {"swarm": bytes(16), "schema": bytes(16), **ends}
    given |= {"destination_incarnation": 1}
    return Envelope(body=body, **given | changes)


def send(
    snapshot: SnapshotId | None,
    size_bytes: int,
    start_bytes: int = 0,
    *,
    to: PeerId = "b",
    body: Body | None = None,
) -> Send:
    """The effect that sends a part of a snapshot, by default as one frame of a share."""
    body = Chunk(1, 0, 0) if body is None else body
    return Send(letter(body, destination=to, frame_bytes=size_bytes), snapshot, start_bytes)
