"""Effects that the protocol requests; the driver applies them in order.

No effect holds a value. ``Snapshot`` and ``Mix`` are for the vector, ``Send`` and its like for the
network, ``Entry`` for the ledger on disk, ``Wait``, ``EndTraining`` and ``Halt`` for the training
loop. `rumor.gossip.effects.events` has the events, which are for people only.
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
    "Release",
    "Send",
    "Snapshot",
    "Stage",
    "TakeSketch",
    "Wait",
    "X",
]

X = "x"
"""The register that the optimizer updates: the model itself."""


@frozen
class Send:
    """Send a message, with part of a snapshot if the message has a frame."""

    envelope: Envelope
    snapshot: SnapshotId | None = None
    start_bytes: int = 0
    """Offset of the frame in the snapshot."""
    shown: bool = False
    """True if the offer must name the snapshot's location in shared memory, if it has one."""


@frozen
class Greet:
    """Send to an address whose peer is unknown."""

    address: str
    envelope: Envelope


@frozen
class Dismiss:
    """Close the connection to a greeted address, unless it is a peer's or has answered."""

    address: str


@frozen
class Meet:
    """Open connections to a peer."""

    peer: PeerId
    addresses: tuple[str, ...]


@frozen
class Part:
    """Close the connections to a peer that has left."""

    peer: PeerId


@frozen
class Snapshot:
    """Copy a shard of a register out, in its wire format."""

    id: SnapshotId
    register: str | tuple[str, ...]
    form: Form = Form()
    shard: int = 0
    shown: bool = False
    """True if neighbors may read it from shared memory."""


@frozen
class Release:
    """Release a snapshot that is not needed any more."""

    snapshot: SnapshotId
    abandoned: bool = False
    """True if a neighbor considered dead may still read it: its memory must not be reused."""


@frozen
class Stage:
    """Store the frame of the current message at this offset of the share."""

    share: ShareId
    offset_bytes: int
    size_bytes: int
    """Size of the whole share."""
    form: Form = Form()


@frozen
class Attach:
    """Stage a share from shared memory if that can be read; answered with `Protocol.attached`."""

    share: ShareId
    segment: str
    size_bytes: int
    form: Form = Form()


@frozen
class Inspect:
    """Check whether all values of a staged share are finite; answered with `Protocol.inspected`."""

    share: ShareId


@frozen
class TakeSketch:
    """Take a sketch of ``x``, `SKETCH_NUMBERS` at most; answered with `Protocol.sketched`."""


@frozen
class Measure:
    """Measure the distance of staged shares from ``x``; answered with `Protocol.measured`.

    It is the last effect of a call: ``x`` must not change before the answer.
    """

    shares: tuple[ShareId, ...]


@frozen
class Mix:
    """``x += fraction * (share - x)``, then forget the share; a fraction of 1 is a copy."""

    share: ShareId
    fraction: float
    form: Form = Form()
    """If the fraction is 1, the rest of a copy (besides the vector) is also taken."""


@frozen
class Combine:
    """``register = sum of coefficient * term``; without terms, an on-demand register disappears.

    A share stands for its first register, a snapshot for what its receivers read.
    """

    register: str
    terms: tuple[tuple[float, str | ShareId | SharePart | SnapshotId], ...]


@frozen
class Exchange:
    """Exchange a register with a segment that all processes of this machine share, atomically.

    ``d = register - segment; register -= taken * d; segment += given * d``. The first process
    creates the segment, equal to its register; it disappears with the last of those that use it.
    """

    register: str
    segment: str
    taken: float
    """In [0, 1]; 1 sets the register to the previous value of the segment, bit for bit."""
    given: float
    swarm: bytes


@frozen
class Drop:
    """Discard the staged bytes of a share."""

    share: ShareId


@frozen
class Wait:
    """A synchronous rule cannot continue before these peers' shares of this round have arrived."""

    round: int
    missing: tuple[PeerId, ...]


@frozen
class EndTraining:
    """A rule ends training for this peer, since it has ended for another."""

    by: PeerId


@frozen
class Halt:
    """A rule cannot continue at all; what has begun is not undone, and the peer may still leave."""

    reason: str


Effect = (
    Entry
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
