"""What the protocol asks for: the driver carries these out, in order.

Nothing here holds a value. ``Snapshot`` and ``Mix`` are for the vector, ``Send`` and its like for
the network, ``Record`` for the ledger on disk; the events at the end are for people to read.
"""

from dataclasses import dataclass
from typing import NamedTuple

from .ledger import Entry
from .messages import Envelope, Incarnation, PeerId

__all__ = [
    "Combine",
    "Drop",
    "Effect",
    "Event",
    "Founded",
    "Greet",
    "Inspect",
    "Joined",
    "Meet",
    "Mix",
    "Part",
    "PeerDied",
    "PeerLeft",
    "PeerMet",
    "PeerRefused",
    "PushSkipped",
    "Record",
    "Release",
    "Send",
    "ShareId",
    "ShareMixed",
    "ShareRefused",
    "Snapshot",
    "SnapshotId",
    "Stage",
    "SwarmGivenUp",
    "Wait",
    "X",
]

X = "x"
"""The register that the optimizer works on: the model itself."""

SnapshotId = int


class ShareId(NamedTuple):
    """Names a share at its receiver."""

    sender: PeerId
    incarnation: Incarnation
    seq: int


@dataclass(frozen=True, slots=True)
class Record:
    """Append to the ledger on disk before anything that follows leaves."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Send:
    """Hand a message to the network, with part of a snapshot where the message has a frame."""

    envelope: Envelope
    snapshot: SnapshotId | None = None
    """What an offered share, or a frame of one, is cut from; None for other messages."""
    start_bytes: int = 0
    """Where in the snapshot the frame begins; its length is the envelope's ``frame_bytes``."""


@dataclass(frozen=True, slots=True)
class Greet:
    """Send to an address whose peer is not known yet."""

    address: str
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Meet:
    """Open the ways to a peer."""

    peer: PeerId
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Close the ways to a peer that has left."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copy a register out; with ``copy``, the local buffers too."""

    id: SnapshotId
    register: str
    copy: bool


@dataclass(frozen=True, slots=True)
class Release:
    """No further frame of this snapshot will be sent."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class Stage:
    """Keep the frame that came with the message at hand, at this offset of the share."""

    share: ShareId
    offset_bytes: int
    size_bytes: int
    """Size of the whole share."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Look whether a staged share is finite, and answer with ``Protocol.inspected``."""

    share: ShareId


@dataclass(frozen=True, slots=True)
class Mix:
    """``x += fraction * (share - x)``, then forget the share; a fraction of 1 is a copy."""

    share: ShareId
    fraction: float
    copy: bool
    """Whether the share brings local buffers, which are taken over where the fraction is 1."""


@dataclass(frozen=True, slots=True)
class Combine:
    """``register = sum of coefficient * term``, each term a register or a staged share."""

    register: str
    terms: tuple[tuple[float, str | ShareId], ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget what was staged of a share."""

    share: ShareId


@dataclass(frozen=True, slots=True)
class Wait:
    """A synchronous rule cannot go on before these peers' shares of this round have come."""

    round: int
    missing: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Founded:
    """This peer brought a founder's weight into being."""


@dataclass(frozen=True, slots=True)
class Joined:
    """This newcomer became a copy of its donor."""

    donor: PeerId


@dataclass(frozen=True, slots=True)
class ShareMixed:
    """A share was mixed in."""

    sender: PeerId
    units: int
    staleness_steps: int
    """How many steps its sender was behind the one who mixed it; negative if ahead."""


@dataclass(frozen=True, slots=True)
class ShareRefused:
    """A share went back to its sender."""

    sender: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class PushSkipped:
    """A push that was due found no weight, no neighbor or no credit."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerMet:
    """A peer, or a new life of one, is known."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerDied:
    """A peer is held for dead: its heartbeat stood still for too long."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """A peer went of its own accord."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerRefused:
    """A peer that cannot be one of this swarm, and the first difference."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class SwarmGivenUp:
    """Another swarm was met; this peer, which had accepted nothing yet, burns its weight."""


Event = (
    Founded
    | Joined
    | ShareMixed
    | ShareRefused
    | PushSkipped
    | PeerMet
    | PeerDied
    | PeerLeft
    | PeerRefused
    | SwarmGivenUp
)

Effect = (
    Record
    | Send
    | Greet
    | Meet
    | Part
    | Snapshot
    | Release
    | Stage
    | Inspect
    | Mix
    | Combine
    | Drop
    | Wait
    | Event
)
