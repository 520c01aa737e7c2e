"""The messages between peers: one envelope, and a frozen dataclass for each body.

A body that announces bytes (PUSH, CHUNK) does not hold them. They are sent as one raw frame next
to the envelope, and only the driver and the vector ever read it.
"""

import re
from enum import IntEnum
from typing import Annotated, Final, get_args

from ..types import Incarnation, PeerId, frozen, frozen_keywords
from ..weight import shown
from .fields import (
    NUMBER,
    OPTIONAL,
    SECONDS,
    U32,
    U63,
    each,
    integer,
    octets,
    record,
    row,
    text,
    weight,
)
from .formats import Form
from .schema import HASH_BYTES, SHARDS_MAX, Schema

__all__ = [
    *("BODIES", "EVENTS_TOLD_MAX", "EXCERPT_BYTES", "FRAME_BYTES_MAX", "HEARTBEAT_MAX"),
    *("LINKS_TOLD_MAX", "LIVES_MAX", "MEMBERS_TOLD_MAX", "MERGE_STAGES", "NAMED_MAX"),
    *("REASON_LENGTH_MAX", "ROWS_TOLD_MAX", "SAMPLE_NUMBERS_MAX", "SEGMENT_LENGTH_MAX"),
    *("SKETCH_NUMBERS", "STEPS_MAX"),
    *("Ack", "Ask", "Body", "Chunk", "ClockRow", "Describe", "Envelope", "EventNote", "Excerpt"),
    *("Fetch", "Figure", "Grant", "Hello", "Inquire", "Leave", "LinkStatus", "Member", "Offer"),
    *("Pending", "Phase", "Push", "Query", "Refer", "Sighting", "Standing", "Status"),
    *("Stop", "Stopping", "is_name", "later_life"),
]

_NAME = re.compile(r"[\w.-]{1,64}")


def is_name(text: str) -> bool:
    """True if *text* is a valid peer name: 1 to 64 letters, digits, '.', '_' or '-'."""
    return _NAME.fullmatch(text) is not None


HEARTBEAT_MAX = 2**62
ROWS_TOLD_MAX = 1 << 10
"""Most clock rows of absent peers in one HELLO; the rest follows in later ones."""

MERGE_STAGES = 3
"""Stages of a round of merging: a peer pushes, rests, has sent a sketch of its model."""

SKETCH_NUMBERS = 128
"""Numbers in a model's sketch: its distances are right to 6 percent (one standard deviation)."""

STEPS_MAX = 2**62

FRAME_BYTES_MAX = 4 << 20
"""Largest second part of a message, in bytes."""

EXCERPT_BYTES = 1 << 20
"""Size of an excerpt of a model, except for the last of a shard."""

# Characters of a name of a place in shared memory, and of a reason in a LEAVE.
SEGMENT_LENGTH_MAX = 128
REASON_LENGTH_MAX = 512

LIVES_MAX = 1 << 12
"""Most incarnations that one STOP names."""

SAMPLE_NUMBERS_MAX = 256
"""Most numbers of a model in one status: they give differences between models to about 6 %."""

# Most of each in one status; NAMED_MAX is of figures and settings.
LINKS_TOLD_MAX = 64
EVENTS_TOLD_MAX = 64
MEMBERS_TOLD_MAX = 256
NAMED_MAX = 64

_SIGNATURE_BYTES: Final = 64

# The type checker reads these as the plain type, and the codec as a check.
_Name = Annotated[PeerId, text(1, 64)]
_Life = Annotated[Incarnation, integer(1, U63)]
_Steps = Annotated[int, integer(0, STEPS_MAX)]
_Seq = Annotated[int, integer(1, U63)]
_Count = Annotated[int, integer(0, U63)]
_Weight = Annotated[int, weight(U63)]
_Seconds = Annotated[float, SECONDS]

_INCARNATIONS_APART = 4096


def later_life(known: Incarnation, own: Incarnation) -> Incarnation:
    """Return an incarnation that supersedes the *known* one of the same name."""
    # Not just the next number: a peer that lost its disk, and whose clock went back, may have used
    # that before, unnoticed. The step depends on when its own incarnation, too early, began.
    return known + 1 + own % _INCARNATIONS_APART


class Phase(IntEnum):
    """A peer's phase, which only ever advances, unless the peer abandons its swarm."""

    SEEKING = 0
    """Started, not in a swarm yet."""
    JOINING = 1
    """Holds no weight and has asked a donor for a share."""
    TRAINING = 2
    """Holds weight and takes optimizer steps."""
    FINISHED = 3
    """Takes no more steps; still pushes and mixes."""
    QUIET = 4
    """Neither pushes nor accepts shares, has nothing outstanding; still answers."""
    LEAVING = 5
    """Refuses shares and hands its weight on."""
    LEFT = 6

    @property
    def takes_shares(self) -> bool:
        """True if a rule may push to a peer in this phase."""
        return Phase.TRAINING <= self <= Phase.FINISHED


@frozen
class Member:
    """One peer's entry in the member table, as it spreads from peer to peer."""

    id: _Name
    incarnation: _Life
    heartbeat: Annotated[int, integer(0, HEARTBEAT_MAX)]
    """Incremented by the peer itself, once per gossip interval; at most `HEARTBEAT_MAX`."""
    phase: Phase
    step: _Steps
    """Optimizer steps taken, including those of earlier incarnations, as far as it knows."""
    addresses: Annotated[tuple[str, ...], each(text(1, 256), 16)] = ()
    """Listening addresses, as ``tcp://host:port``; empty for a peer that only dials out."""
    anchored: bool = False
    """True if it knows the anchor, so that shares may be sent as differences from it."""
    host: Annotated[bytes, octets(0, HASH_BYTES)] = b""
    """Equal for peers that can read one another's memory, 16 bytes; empty if no other peer can."""
    merge: _Steps = 0
    """Progress in merging, ``MERGE_STAGES * round + stage``; see `Agreement`."""
    sketch: Annotated[tuple[float, ...], each(NUMBER, SKETCH_NUMBERS)] = ()
    """Sketch of its model, once all peers rest in a round of merging."""


ClockRow = tuple[PeerId, int]
"""A peer, and the number of its optimizer steps."""


@frozen_keywords
class Hello:
    """The sender's member table; its own entry comes first."""

    members: Annotated[tuple[Member, ...], each(record(Member), 1 << 14)]
    clock: Annotated[
        tuple[ClockRow, ...],
        each(row(peer=text(1, 64), steps=integer(0, STEPS_MAX)), ROWS_TOLD_MAX),
    ] = ()
    """Steps of peers that are no longer members."""
    rooted: bool
    """True if the sender ever accepted a share of its swarm, or had one accepted."""
    reply: bool


@frozen
class Describe:
    """The sender's schema in full, so that the first difference can be named."""

    schema: Schema


@frozen
class Ask:
    """A newcomer without weight asks a member for its first share."""

    anchor: bool = False
    """True if it also needs the anchor."""


@frozen_keywords
class Offer:
    """Offers a share, with its weight and size."""

    seq: _Seq
    escrow: _Weight
    """Weight set aside for the receiver, at least 1."""
    size_bytes: _Count
    frame_bytes: Annotated[int, integer(0, FRAME_BYTES_MAX)] = 0
    """Size of each frame but the last; 0 if the share is sent in one message."""
    eager_bytes: _Count = 0
    """Offset up to which frames follow without a grant."""
    form: Form = Form()
    segment: Annotated[str, text(0, SEGMENT_LENGTH_MAX)] = ""
    """Location in the sender's shared memory; empty if the share will be sent."""
    epoch: _Count
    round: _Count
    note: _Count
    """A number for the rule's own use, such as RelaySum's count."""
    step: _Count
    """Optimizer steps behind the vector that was sent."""

    def __repr__(self) -> str:
        return shown(self, escrow="escrow")


@frozen_keywords
class Push(Offer):
    """Offers and delivers a share in one message; its frame is the payload."""

    __repr__ = Offer.__repr__


@frozen
class Grant:
    """Allows frames up to an offset. Since it is an offset, repeating it adds nothing."""

    seq: _Seq
    credit_bytes: _Count


@frozen
class Chunk:
    """One frame of a share; the bytes follow in the message's frame."""

    seq: _Seq
    index: Annotated[int, integer(0, U32)]
    offset_bytes: _Count


@frozen
class Ack:
    """The receiver's decision: how much of the escrow it accepted."""

    seq: _Seq
    accepted: _Weight
    credit_bytes: _Count = 0
    """Bytes of the next share that may be sent along with its offer."""
    bytes_s: Annotated[int, integer(1, U63), OPTIONAL] = 0
    """Rate at which the share's frames arrived, bytes per second; 0 if unknown."""

    def __repr__(self) -> str:
        return shown(self, accepted="accepted")


@frozen
class Query:
    """Asks for the outcome of a share. If the share has not arrived, the query fences it."""

    seq: _Seq


@frozen
class Pending:
    """The share has arrived, or is arriving, and is not decided yet."""

    seq: _Seq


@frozen
class Leave:
    """The sender leaves the swarm."""

    gone: bool
    """False while it still hands its weight on, True in its last message."""
    reason: Annotated[str, text(0, REASON_LENGTH_MAX), OPTIONAL] = ""
    """Why its rule could not continue; empty if it leaves for another reason."""


@frozen
class Refer:
    """Answers a newcomer that would have to wait, naming peers that can serve it now."""

    donors: Annotated[tuple[Member, ...], each(record(Member), 64)]


@frozen
class Stop:
    """Ends a swarm: the named incarnations, and no later ones, stop training, and merge.

    If it does not name its receiver, its sender needs no more answers.
    """

    lives: Annotated[
        tuple[tuple[PeerId, Incarnation], ...],
        each(row(id=text(1, 64), incarnation=integer(1, U63)), LIVES_MAX),
    ]
    signature: Annotated[bytes, octets(0, _SIGNATURE_BYTES)] = b""
    """Signature of the roster's owner, 64 bytes, in a swarm with keys."""


@frozen
class Stopping:
    """Answers a STOP with the peer's progress, or why it refuses (empty if it stops)."""

    why: Annotated[str, text(0, 256)]
    weight: _Weight
    """Weight held now, of all shards together."""
    phase: Phase
    step: _Steps
    done: bool
    """True if no other peer needs this one any more, so that it closes."""

    def __repr__(self) -> str:
        return shown(self, weight="weight")


@frozen_keywords
class Inquire:
    """Requests the receiver's status; the sender need not be a peer."""

    events_after: _Count = 0
    """Number of the last event that it knows of this incarnation; 0 for none."""
    members: bool = False
    """True if the member table is also wanted."""


Figure = tuple[str, float]
"""A number with its name, such as ``("pushes", 12.0)``; infinite if it is not a number."""


class Standing(IntEnum):
    """One peer's assessment of another."""

    LIVE = 0
    SUSPECTED = 1
    """Silent for a while."""
    DEAD = 2
    """Silent for too long, or known only from other peers."""
    LEFT = 3


@frozen
class Sighting:
    """Another peer, as seen by the answering one."""

    member: Member
    standing: Standing


@frozen_keywords
class LinkStatus:
    """Traffic between the answering peer and another one, since they met."""

    peer: _Name
    shares_memory: bool
    """True if models are read from shared memory: their bytes are neither sent nor counted."""
    bytes_sent: _Count
    bytes_received: _Count
    pushes: _Count
    refusals: _Count
    mixed: _Count
    in_flight: _Count
    roundtrip_s: _Seconds
    """Time from the last hello to its answer, seconds; 0 if it was never measured."""


@frozen_keywords
class EventNote:
    """An event, as a peer saw it."""

    number: _Seq
    event: Annotated[str, text(1, 32)]
    """Its kind, as in ``events.jsonl``: ``joined``, ``suspected``, ``died``, ...."""
    peer: Annotated[PeerId, text(0, 64)]
    """The peer that it is about; empty for the reporting peer itself."""
    ago_s: _Seconds


@frozen_keywords
class Status:
    """A peer's status; values not known yet are left out."""

    me: Member
    uptime_s: _Seconds
    """Time since this session began."""
    swarm_steps: _Steps
    """Optimizer steps of all peers, past and present, as far as it knows."""
    figures: Annotated[
        tuple[Figure, ...], each(row(name=text(1, 32), value=NUMBER), NAMED_MAX)
    ] = ()
    """Counts since its start, and the last measurements."""
    settings: Annotated[
        tuple[tuple[str, str], ...], each(row(name=text(1, 32), value=text(0, 256)), NAMED_MAX)
    ] = ()
    """Its rule, topology, wire format and the like, by name."""
    awaits: Annotated[tuple[PeerId, ...], each(text(1, 64), NAMED_MAX)] = ()
    links: Annotated[tuple[LinkStatus, ...], each(record(LinkStatus), LINKS_TOLD_MAX)] = ()
    events: Annotated[tuple[EventNote, ...], each(record(EventNote), EVENTS_TOLD_MAX)] = ()
    """The requested events that are still remembered, oldest first."""
    members: Annotated[tuple[Sighting, ...], each(record(Sighting), MEMBERS_TOLD_MAX)] = ()
    """If requested, other members, as many as there is room for: those whose ids follow its own
    come first, so that several peers together name all."""
    sample: Annotated[tuple[float, ...], each(NUMBER, SAMPLE_NUMBERS_MAX)] = ()
    """Some numbers of its model, the same ones at all peers; empty if it has diverged."""


@frozen_keywords
class Fetch:
    """Requests part of one shard of the model; the sender need not be a peer."""

    snapshot: _Count = 0
    """Number of the snapshot to read; 0 for a new one, whose number the answer has."""
    offset_bytes: _Count = 0
    done: bool = False


@frozen_keywords
class Excerpt:
    """Answers a FETCH; up to `EXCERPT_BYTES` follow in the message's frame."""

    snapshot: _Count = 0
    """Number of the snapshot; 0 while there is none for this reader."""
    held: _Weight = 0
    offset_bytes: _Count = 0
    step: _Steps = 0
    why: Annotated[str, text(0, 256)] = ""
    """The reason if there will be no snapshot; empty otherwise."""

    def __repr__(self) -> str:
        return shown(self, held="held")


Body = (
    Hello
    | Describe
    | Ask
    | Push
    | Offer
    | Grant
    | Chunk
    | Ack
    | Query
    | Pending
    | Leave
    | Refer
    | Stop
    | Stopping
    | Inquire
    | Status
    | Fetch
    | Excerpt
)

# A message's number on the wire is its index here: append, never insert.
BODIES: Final[tuple[type[Body], ...]] = get_args(Body)


@frozen
class Envelope:
    """A message: a body, with the fields that all messages have."""

    swarm: Annotated[bytes, octets(0, HASH_BYTES)]
    """Hash of the swarm's anchor, 16 bytes; empty if it is not known yet."""
    schema: Annotated[bytes, octets(HASH_BYTES)]
    source: _Name
    source_incarnation: _Life
    destination: Annotated[PeerId, text(0, 64)]
    """Empty in a first HELLO, which goes to an address."""
    destination_incarnation: Annotated[Incarnation, integer(0, U63)]
    body: Body
    frame_bytes: Annotated[int, integer(0, FRAME_BYTES_MAX)] = 0
    """Length of the raw frame that accompanies this message."""
    shard: Annotated[int, integer(0, SHARDS_MAX - 1)] = 0
