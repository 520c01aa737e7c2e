"""What peers say to one another: one envelope, a handful of frozen bodies.

A body that announces bytes (PUSH, CHUNK) does not hold them. They travel as one raw frame beside
the envelope, and only the driver and the vector ever look into it.
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
    "BODIES",
    "EVENTS_TOLD_MAX",
    "FRAME_BYTES_MAX",
    "HEARTBEAT_MAX",
    "LINKS_TOLD_MAX",
    "LIVES_MAX",
    "MEMBERS_TOLD_MAX",
    "MERGE_STAGES",
    "NAMED_MAX",
    "REASON_LENGTH_MAX",
    "ROWS_TOLD_MAX",
    "SAMPLE_NUMBERS_MAX",
    "SEGMENT_LENGTH_MAX",
    "SKETCH_NUMBERS",
    "STEPS_MAX",
    "Ack",
    "Ask",
    "Body",
    "Chunk",
    "ClockRow",
    "Describe",
    "Envelope",
    "EventNote",
    "Figure",
    "Grant",
    "Hello",
    "Inquire",
    "Leave",
    "LinkStatus",
    "Member",
    "Offer",
    "Pending",
    "Phase",
    "Push",
    "Query",
    "Read",
    "Refer",
    "Sighting",
    "Standing",
    "Status",
    "Stop",
    "Stopping",
    "is_name",
    "later_life",
]

_NAME = re.compile(r"[\w.-]{1,64}")


def is_name(text: str) -> bool:
    """Whether a peer can be called so: 1 to 64 letters, digits, '.', '_' or '-'."""
    return _NAME.fullmatch(text) is not None


HEARTBEAT_MAX = 2**62
ROWS_TOLD_MAX = 1 << 10
"""Clock rows of absent peers in one HELLO; the rest follows with the next ones."""

MERGE_STAGES = 3
"""Stages of a round of merging: a peer pushes, rests, has sent a sketch of its model."""

SKETCH_NUMBERS = 128
"""Numbers of a model's sketch: distances of sketches are those of models to within 6 percent (one
standard deviation), and exact for models of no more numbers."""

STEPS_MAX = 2**62

FRAME_BYTES_MAX = 4 << 20
"""Largest second part of a message, in bytes."""

SEGMENT_LENGTH_MAX = 128
"""Longest name of a place in shared memory."""

REASON_LENGTH_MAX = 512
"""Longest reason that a leaver gives, in characters."""

LIVES_MAX = 1 << 12
"""Most lives that one request to stop names."""

SAMPLE_NUMBERS_MAX = 256
"""Most numbers of a model in one status: differences of models follow from them to some 6 %."""

LINKS_TOLD_MAX = 64
"""Most links in one status."""

EVENTS_TOLD_MAX = 64
"""Most events in one status."""

MEMBERS_TOLD_MAX = 256
"""Most members in one status."""

NAMED_MAX = 64
"""Most figures, settings or reasons in one status."""

_SIGNATURE_BYTES: Final = 64

# What the type checker takes for the plain type, and the codec for a check.
_Name = Annotated[PeerId, text(1, 64)]
_Life = Annotated[Incarnation, integer(1, U63)]
_Steps = Annotated[int, integer(0, STEPS_MAX)]
_Seq = Annotated[int, integer(1, U63)]
_Count = Annotated[int, integer(0, U63)]
_Weight = Annotated[int, weight(U63)]
_Seconds = Annotated[float, SECONDS]

_INCARNATIONS_APART = 4096


def later_life(known: Incarnation, own: Incarnation) -> Incarnation:
    """An incarnation that supersedes the one of the same name that others know of.

    Not just the next: a peer that has lost its disk, and whose clock has gone back, may have begun
    that one before, and nobody may have heard of it. How far it goes on depends on when its *own*
    incarnation, which is too early, began.
    """
    return known + 1 + own % _INCARNATIONS_APART


class Phase(IntEnum):
    """How far a peer has come; it only ever moves on, unless it gives its swarm up."""

    SEEKING = 0
    """Started, belongs to no swarm yet."""
    JOINING = 1
    """Holds no weight and has asked a donor for a share."""
    TRAINING = 2
    """Holds weight and takes optimizer steps."""
    FINISHED = 3
    """Takes no more steps; pushes and mixes on."""
    QUIET = 4
    """Pushes no more, takes no more, has nothing outstanding; still answers."""
    LEAVING = 5
    """Refuses shares and hands its weight on."""
    LEFT = 6
    """Gone of its own accord."""

    @property
    def takes_shares(self) -> bool:
        """Whether a rule may push to a peer in this phase."""
        return Phase.TRAINING <= self <= Phase.FINISHED


@frozen
class Member:
    """What is known of one peer, as it spreads from peer to peer."""

    id: _Name
    incarnation: _Life
    heartbeat: Annotated[int, integer(0, HEARTBEAT_MAX)]
    """Rises once per gossip interval, at its owner only; at most `HEARTBEAT_MAX`."""
    phase: Phase
    step: _Steps
    """Optimizer steps taken, those of earlier incarnations included, as far as it knows."""
    addresses: Annotated[tuple[str, ...], each(text(1, 256), 16)] = ()
    """Where it listens, as ``tcp://host:port``; empty for one that only dials out."""
    anchored: bool = False
    """Whether it knows the anchor, so that shares may come as differences from it."""
    host: Annotated[bytes, octets(0, HASH_BYTES)] = b""
    """Alike for peers that can read one another's memory, 16 bytes; empty where none can."""
    merge: _Steps = 0
    """How far it has come in merging, ``MERGE_STAGES * round + stage``; see `Agreement`."""
    sketch: Annotated[tuple[float, ...], each(NUMBER, SKETCH_NUMBERS)] = ()
    """Sketch of its model, once all peers rest in a round of merging; at most `SKETCH_NUMBERS`
    numbers."""


ClockRow = tuple[PeerId, int]
"""A peer, and how many optimizer steps it has taken."""


@frozen_keywords
class Hello:
    """Who I am and whom I know; the sender's own entry comes first."""

    members: Annotated[tuple[Member, ...], each(record(Member), 1 << 14)]
    clock: Annotated[
        tuple[ClockRow, ...],
        each(row(peer=text(1, 64), steps=integer(0, STEPS_MAX)), ROWS_TOLD_MAX),
    ] = ()
    """Steps of peers that are not among the members any more."""
    rooted: bool
    """Whether the sender ever accepted a share of its swarm, or had one accepted."""
    reply: bool
    """Whether an answer is wanted."""


@frozen
class Describe:
    """The sender's schema in full, so that the first difference can be named."""

    schema: Schema


@frozen
class Ask:
    """A newcomer that holds nothing asks a member for its first share."""

    anchor: bool = False
    """Whether it needs the anchor, too."""


@frozen_keywords
class Offer:
    """A share is to be had: what it weighs and how large it is."""

    seq: _Seq
    escrow: _Weight
    """Weight set aside for the receiver, at least 1; 0 in one that is shown to be read."""
    size_bytes: _Count
    frame_bytes: Annotated[int, integer(0, FRAME_BYTES_MAX)] = 0
    """Size of its frames but the last; 0 where it comes in one message."""
    eager_bytes: _Count = 0
    """Up to here its frames follow unasked."""
    form: Form = Form()
    """What it consists of."""
    segment: Annotated[str, text(0, SEGMENT_LENGTH_MAX)] = ""
    """Where in its sender's shared memory it lies; empty where it will be sent."""
    epoch: _Count
    round: _Count
    note: _Count
    """A number for the rule's own use, such as RelaySum's count."""
    step: _Count
    """Optimizer steps behind the vector that was sent."""
    held: Annotated[int, weight(U63), OPTIONAL] = 0
    """What the sender holds, in a share that is shown to be read; 0 in all others."""

    def __repr__(self) -> str:
        return shown(self, escrow="escrow", held="held")


@frozen_keywords
class Push(Offer):
    """Offer, payload and end in one; the payload is the frame beside it."""

    __repr__ = Offer.__repr__


@frozen
class Grant:
    """The sender may send up to this offset. An offset, so that repeating it adds nothing."""

    seq: _Seq
    credit_bytes: _Count


@frozen
class Chunk:
    """One frame of a share; the bytes travel beside it."""

    seq: _Seq
    index: Annotated[int, integer(0, U32)]
    offset_bytes: _Count


@frozen
class Ack:
    """The receiver's decision: how much of the escrow it accepted."""

    seq: _Seq
    accepted: _Weight
    credit_bytes: _Count = 0
    """So much of the next share may be sent along with its offer."""
    bytes_s: Annotated[int, integer(1, U63), OPTIONAL] = 0
    """At which pace the frames of the share came, bytes per second; 0 where that is not known."""

    def __repr__(self) -> str:
        return shown(self, accepted="accepted")


@frozen
class Query:
    """What became of the share? One that has not been seen is fenced by the question."""

    seq: _Seq


@frozen
class Pending:
    """The share has come, or is coming, and is not decided yet."""

    seq: _Seq


@frozen
class Leave:
    """The sender goes of its own accord."""

    gone: bool
    """False while it still hands its weight on, True with its last word."""
    reason: Annotated[str, text(0, REASON_LENGTH_MAX), OPTIONAL] = ""
    """Why its rule could not go on; empty where it leaves for another reason."""


@frozen
class Refer:
    """Answers a newcomer that would have to wait: these have just got what it asks for."""

    donors: Annotated[tuple[Member, ...], each(record(Member), 64)]


@frozen
class Read:
    """The sender wants to read the model: a share without weight, which it sends back."""


@frozen
class Stop:
    """Ends a swarm: the lives that it names stop training, and merge. No life that begins later is
    named, so that a request which is repeated stops nobody."""

    lives: Annotated[
        tuple[tuple[PeerId, Incarnation], ...],
        each(row(id=text(1, 64), incarnation=integer(1, U63)), LIVES_MAX),
    ]
    signature: Annotated[bytes, octets(0, _SIGNATURE_BYTES)] = b""
    """The roster's owner's, 64 bytes, where the swarm has keys."""


@frozen
class Stopping:
    """Answers a request to stop: how far the peer is, or why it does not obey."""

    why: Annotated[str, text(0, 256)]
    """Empty where it obeys."""
    weight: _Weight
    """Held now, of all shards together."""
    phase: Phase
    step: _Steps
    done: bool
    """Whether nobody needs the peer any more, so that it closes."""

    def __repr__(self) -> str:
        return shown(self, weight="weight")


@frozen_keywords
class Inquire:
    """Somebody who need not be a peer asks how the receiver is doing."""

    events_after: _Count = 0
    """Number of the last event that it knows of this incarnation; 0 for none."""
    members: bool = False
    """Whether the member table is wanted, too."""
    members_after: Annotated[PeerId, text(0, 64)] = ""
    """Only members behind this id are wanted, where an answer had no room for all."""


Figure = tuple[str, float]
"""A number by its name, such as ``("pushes", 12.0)``; infinite where it is none."""


class Standing(IntEnum):
    """What a peer holds of another one."""

    LIVE = 0
    SUSPECTED = 1
    """Silent for a while."""
    DEAD = 2
    """Silent for too long, or only ever heard of."""
    LEFT = 3
    """Gone of its own accord."""


@frozen
class Sighting:
    """Another peer, as the one sees it that answers."""

    member: Member
    standing: Standing


@frozen_keywords
class LinkStatus:
    """What has passed between the peer that answers and another one, since both know each other."""

    peer: _Name
    shares_memory: bool
    """Whether models are read where they lie: their bytes are not sent, and not counted."""
    bytes_sent: _Count
    bytes_received: _Count
    frames_sent: _Count
    """Messages that carried a part of a share."""
    frames_received: _Count
    pushes: _Count
    """Shares pushed to it."""
    refusals: _Count
    """Those among them that came back whole."""
    mixed: _Count
    """Shares of it that were mixed in."""
    in_flight: _Count
    """Shares pushed to it that are not settled."""
    roundtrip_s: _Seconds
    """From the last hello to its answer, seconds; 0 where it was never measured."""
    silent_s: _Seconds
    """Since something came from it, seconds."""


@frozen_keywords
class EventNote:
    """Something that has happened, as a peer saw it."""

    number: _Seq
    """Counts the events of one incarnation, from 1."""
    event: Annotated[str, text(1, 32)]
    """What, as in ``events.jsonl``: ``joined``, ``suspected``, ``died``, ...."""
    peer: Annotated[PeerId, text(0, 64)]
    """Whom it is about; empty where that is the peer that tells."""
    ago_s: _Seconds


@frozen_keywords
class Status:
    """How a peer is doing; what it cannot know yet is left out."""

    me: Member
    uptime_s: _Seconds
    """Since this session began: the difference of two says over which time counts grew."""
    swarm_steps: _Steps
    """Optimizer steps of all peers that ever were, as far as it knows."""
    figures: Annotated[
        tuple[Figure, ...], each(row(name=text(1, 32), value=NUMBER), NAMED_MAX)
    ] = ()
    """Counts since its start, and what was measured last."""
    settings: Annotated[
        tuple[tuple[str, str], ...], each(row(name=text(1, 32), value=text(0, 256)), NAMED_MAX)
    ] = ()
    """Its rule, topology, wire format and the like, by name."""
    awaits: Annotated[tuple[PeerId, ...], each(text(1, 64), NAMED_MAX)] = ()
    """Whom it waits for at this moment, under a rule that waits."""
    reasons: Annotated[
        tuple[tuple[str, str, int], ...],
        each(row(what=text(1, 32), why=text(0, 256), count=integer(0, U63)), NAMED_MAX),
    ] = ()
    """``skipped`` or ``refused``, why, and how often."""
    links: Annotated[tuple[LinkStatus, ...], each(record(LinkStatus), LINKS_TOLD_MAX)] = ()
    events: Annotated[tuple[EventNote, ...], each(record(EventNote), EVENTS_TOLD_MAX)] = ()
    """Those that were asked for and are still remembered, the oldest first."""
    members: Annotated[tuple[Sighting, ...], each(record(Sighting), MEMBERS_TOLD_MAX)] = ()
    """Others, by id, where they were asked for."""
    more: bool = False
    """Whether there are more members behind the last one."""
    sample: Annotated[tuple[float, ...], each(NUMBER, SAMPLE_NUMBERS_MAX)] = ()
    """Some numbers of its model, the same ones at all peers; none where it has diverged."""


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
    | Read
    | Stop
    | Stopping
    | Inquire
    | Status
)

# The number of a message on the wire is its place here: append, never insert.
BODIES: Final[tuple[type[Body], ...]] = get_args(Body)


@frozen
class Envelope:
    """What every message says beside its body."""

    swarm: Annotated[bytes, octets(0, HASH_BYTES)]
    """Hash of the swarm's anchor, 16 bytes; empty where it is not known yet."""
    schema: Annotated[bytes, octets(HASH_BYTES)]
    """Hash of the model's schema, 16 bytes."""
    source: _Name
    source_incarnation: _Life
    destination: Annotated[PeerId, text(0, 64)]
    """Empty in a first HELLO, which goes to an address."""
    destination_incarnation: Annotated[Incarnation, integer(0, U63)]
    body: Body
    frame_bytes: Annotated[int, integer(0, FRAME_BYTES_MAX)] = 0
    """Length of the raw frame beside this message."""
    shard: Annotated[int, integer(0, SHARDS_MAX - 1)] = 0
    """Which shard a message about a share is about."""
