"""What a protocol takes in, as data: the runtime feeds it, the journal keeps it.

Each is named after the method of `Protocol` that takes it.
"""

from typing import NamedTuple

from ...gossip import Envelope, Protocol
from ...gossip.effects.effects import Effect
from ...gossip.effects.events import Event
from ...gossip.types import PeerId, ShareId
from ...gossip.wire import messages as wire
from ...gossip.wire.codec import Buffer, encode
from ...gossip.wire.schema import Schema

__all__ = [
    "Attached",
    "Filled",
    "Finish",
    "Input",
    "Inspected",
    "Join",
    "Leave",
    "Measured",
    "Read",
    "Receive",
    "ShardTrained",
    "Sketched",
    "Step",
    "Unsent",
    "Wake",
    "farewell_of",
]


class Join(NamedTuple):
    """Look for a swarm, or found one."""

    seeds: tuple[str, ...]
    founders: int
    returning: bool = False
    """Whether it was a member in an earlier incarnation."""

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.join(now, self.seeds, self.founders, returning=self.returning)


class Step(NamedTuple):
    """Take a turn."""

    trained: bool
    samples: int | None = None
    """How many the optimizer step took, where somebody says."""
    lr: float | None = None
    """Its learning rate, where the rule looks at that."""

    @classmethod
    def of(cls, trained: bool, samples: int | None, lr: float | None) -> "Step":
        """Take numbers of numpy or torch for Python's."""
        count = None if samples is None else int(samples)
        return cls(trained, count, None if lr is None else float(lr))

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.step(now, trained=self.trained, samples=self.samples, lr=self.lr)


class ShardTrained(NamedTuple):
    """An optimizer step that goes on is through with a shard."""

    shard: int

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.trained_shard(self.shard, now)


class Wake(NamedTuple):
    """Do what time has made due."""

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.wake(now)


class Filled(NamedTuple):
    """Memory has no room for another share, or has room again.

    While it has none, pushes are skipped and offers refused, but for what must not wait: the copy
    of a newcomer, what is read, and the weight that a leaver hands on.
    """

    is_full: bool

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.filled(now, is_full=self.is_full)


class Finish(NamedTuple):
    """Take no more optimizer steps."""

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.finish(now)


class Leave(NamedTuple):
    """Leave the swarm."""

    burn: bool

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.leave(now, burn=self.burn)


class Receive(NamedTuple):
    """A message has come."""

    envelope: Envelope
    header: Buffer
    """Its first part, as it came over the wire; it has the checksum of the frame beside it."""

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds.

        Raises:
            RemoteProtocolError: The sender broke the protocol.
        """
        return protocol.receive(self.envelope, now)


def farewell_of(protocol: Protocol, peer: PeerId, schema: Schema) -> Receive | None:
    """The last word of a peer that may not say it itself any more: an input like any message, so
    that a journal has it, too.

    Args:
        protocol: Of the peer that is to take it in.
        peer: Who is gone.
        schema: Of the model that both train.

    Returns:
        A LEAVE in its name; None where it is not known.
    """
    member = next((each for each in protocol.known() if each.id == peer), None)
    if member is None:
        return None
    envelope = Envelope(
        swarm=protocol.swarm,
        schema=schema.hash,
        source=peer,
        source_incarnation=member.incarnation,
        destination=protocol.account.id,
        destination_incarnation=protocol.account.incarnation,
        body=wire.Leave(gone=True),
    )
    return Receive(envelope, encode(envelope)[0])


class Inspected(NamedTuple):
    """A staged share was looked at."""

    share: ShareId
    finite: bool

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.inspected(self.share, now, finite=self.finite)


class Attached(NamedTuple):
    """It was looked whether a share can be read from its sender's memory."""

    share: ShareId
    usable: bool

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.attached(self.share, now, usable=self.usable)


class Measured(NamedTuple):
    """Staged shares were measured."""

    distances: tuple[tuple[ShareId, float], ...]
    """How far each is from the model: Euclidean norms, of those that were still there."""

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.measured(dict(self.distances), now)


class Sketched(NamedTuple):
    """A sketch of the model was taken."""

    sketch: tuple[float, ...]
    """At most `SKETCH_NUMBERS` numbers; none where one of the model's is not finite."""

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.sketched(self.sketch, now)


class Unsent(NamedTuple):
    """The network refused a message."""

    envelope: Envelope

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.unsent(self.envelope, now)


class Read(NamedTuple):
    """Ask for another peer's model, to be read only; empty for nobody's any more."""

    peer: str

    def feed(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Let *protocol* take it in at *now*, seconds."""
        return protocol.read(now, self.peer)


Input = (
    Join
    | Step
    | ShardTrained
    | Wake
    | Finish
    | Leave
    | Receive
    | Inspected
    | Measured
    | Sketched
    | Unsent
    | Attached
    | Read
    | Filled
)
