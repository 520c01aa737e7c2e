"""What the protocol asks for: the driver carries these out, in order.

Nothing here holds a value. ``Snapshot`` and ``Mix`` are for the vector, ``Send`` and its like for
the network, ``Record`` for the ledger on disk, ``Wait``, ``EndTraining`` and ``Halt`` for whoever
takes the steps. What is only told to people is in `rumor.gossip.effects.events`.
"""

from ..types import PeerId, ShareId, SharePart, SnapshotId, frozen
from ..wire.formats import Form
from ..wire.messages import Envelope
from .ledger import Entry

__all__ = [
    "Attach",
    "Combine",
    "Dismiss",
    "Drop",
    "Effect",
    "EndTraining",
    "Exchange",
    "Greet",
    "Halt",
    "Inspect",
    "Measure",
    "Meet",
    "Mix",
    "Part",
    "Reclaim",
    "Record",
    "Release",
    "Send",
    "Snapshot",
    "Stage",
    "TakeSketch",
    "Wait",
    "X",
]

X = "x"
"""The register that the optimizer works on: the model itself."""


@frozen
class Record:
    """Append to the ledger on disk before anything that follows leaves."""

    entry: Entry


@frozen
class Send:
    """Hand a message to the network, with part of a snapshot where the message has a frame."""

    envelope: Envelope
    snapshot: SnapshotId | None = None
    """What an offered share, or a frame of one, is cut from; None for other messages."""
    start_bytes: int = 0
    """Where in the snapshot the frame begins; its length is the envelope's ``frame_bytes``."""
    shown: bool = False
    """Whether the snapshot's place in shared memory is to be filled into the offer, where it has
    one."""


@frozen
class Greet:
    """Send to an address whose peer is not known yet."""

    address: str
    envelope: Envelope


@frozen
class Dismiss:
    """Close the way to a greeted address, unless it is a peer's or somebody there has answered."""

    address: str


@frozen
class Meet:
    """Open the ways to a peer."""

    peer: PeerId
    addresses: tuple[str, ...]


@frozen
class Part:
    """Close the ways to a peer that has left."""

    peer: PeerId


@frozen
class Snapshot:
    """Copy a shard of a register out, in the form in which it is to travel."""

    id: SnapshotId
    register: str | tuple[str, ...]
    """Several, where the form says so: one after another in one payload."""
    form: Form = Form()
    shard: int = 0
    shown: bool = False
    """Whether neighbors on the same machine may want to read it from memory."""


@frozen
class Release:
    """Nobody needs this snapshot any more."""

    snapshot: SnapshotId
    abandoned: bool = False
    """Whether a neighbor that is considered dead may still read it, so that its memory must not be
    used again."""


@frozen
class Reclaim:
    """Mix back what a push had taken along: ``x += fraction * (snapshot - x)``."""

    snapshot: SnapshotId
    fraction: float


@frozen
class Stage:
    """Keep the frame that came with the message at hand, at this offset of the share."""

    share: ShareId
    offset_bytes: int
    size_bytes: int
    """Size of the whole share."""
    form: Form = Form()


@frozen
class Attach:
    """Look whether a share lies in memory that this process can read, and answer with
    ``Protocol.attached``; where it does, it is staged."""

    share: ShareId
    segment: str
    """Where, in its owner's words."""
    size_bytes: int
    form: Form = Form()


@frozen
class Inspect:
    """Look whether a staged share is finite, and answer with ``Protocol.inspected``."""

    share: ShareId


@frozen
class TakeSketch:
    """Take a sketch of ``x``, and answer with ``Protocol.sketched``: at most `SKETCH_NUMBERS`
    numbers whose Euclidean distances between peers are those of their models, or nearly so."""


@frozen
class Measure:
    """Measure how far staged shares are from ``x``, each from its shard of it, and answer with
    ``Protocol.measured``. It is the last effect of a call: ``x`` stays as it is until the answer,
    and so does what follows from it."""

    shares: tuple[ShareId, ...]


@frozen
class Mix:
    """``x += fraction * (share - x)``, then forget the share; a fraction of 1 is a copy."""

    share: ShareId
    fraction: float
    form: Form = Form()
    """Of the share. What a copy brings beside the vector is taken over where the fraction is 1."""


@frozen
class Combine:
    """``register = sum of coefficient * term``, each term a register, a staged share, of which the
    first register counts, another part of one, or a snapshot of one's own, as its receivers read
    it. Of registers that exist on demand, one that is set to no terms at all ceases to exist."""

    register: str
    terms: tuple[tuple[float, str | ShareId | SharePart | SnapshotId], ...]


@frozen
class Exchange:
    """Exchange a register with a segment that all processes of this machine share, as one: ``d =
    register - segment; register -= taken * d; segment += given * d``.

    Whoever is the first makes the segment, which then equals the register: with 0 for both, it is
    there from then on. It is as large as that, of one rule of one swarm, and is gone with the last
    process that has exchanged with it.
    """

    register: str
    segment: str
    taken: float
    """In [0, 1]; 1 makes the register equal to what the segment was, bit for bit."""
    given: float
    """In [0, 1]."""
    swarm: bytes
    """Hash of the anchor of the swarm whose segment is meant."""


@frozen
class Drop:
    """Forget what was staged of a share."""

    share: ShareId


@frozen
class Wait:
    """A synchronous rule cannot go on before these peers' shares of this round have come."""

    round: int
    missing: tuple[PeerId, ...]


@frozen
class EndTraining:
    """A rule says that training is over for this peer, too, since another's is; it finishes."""

    by: PeerId


@frozen
class Halt:
    """A rule cannot go on at all; what has begun is not undone, and the peer may still leave."""

    reason: str


Effect = (
    Record
    | Reclaim
    | Send
    | Greet
    | Dismiss
    | Meet
    | Part
    | Snapshot
    | Release
    | Stage
    | Attach
    | Inspect
    | Measure
    | TakeSketch
    | Mix
    | Combine
    | Exchange
    | Drop
    | Wait
    | EndTraining
    | Halt
)
