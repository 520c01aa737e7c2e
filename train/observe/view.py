"""A swarm as seen from outside at one moment: immutable values."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from ..runtime.telling.stats import METRICS

__all__ = ["GONE", "EventView", "LinkView", "PeerView", "Source", "State", "SwarmView"]

State = Literal[
    "seeking",
    "joining",
    "training",
    "waiting",
    "finished",
    "quiet",
    "leaving",
    "left",
    "suspected",
    "dead",
    "silent",
]
"""What a peer is doing. A *waiting* one is kept by its rule until others have sent; *suspected* and
*dead* are what most others say of one that does not answer; *silent* is one that has answered
before, and of which the others have not noticed anything yet."""

Source = Literal["self", "others"]

GONE: Final = frozenset({"left", "dead"})
"""States of members that take part no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerView:
    """One member.

    What is None, or not among the figures, is not known: the peer cannot be asked, or was not told
    it, or, for rates, was asked only once.
    """

    id: str
    state: State
    source: Source
    """Whether it said so itself, or is only known from what others say: it does not answer, or can
    only dial out."""
    incarnation: int | None = None
    address: str = ""
    """``host:port``, where it answers or is said to listen; empty if it only dials out."""
    host: str = ""
    """Name of its machine, as that calls itself."""
    step: int = 0
    """Optimizer steps, those of earlier incarnations included."""
    steps_s: float | None = None
    """Steps per second, over the last seconds."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What it says of itself, by the names in `METRICS`."""
    staleness_mean: float | None = None
    """Steps by which shares were behind that it has mixed lately."""
    distance: float | None = None
    """How far its model is from the mean of those of all that answer, over the norm of that mean,
    estimated from 256 numbers; None where no other member tells of a model like it."""
    reasons: tuple[tuple[str, str, int], ...] = ()
    """``skipped`` or ``refused``, why, and how often."""
    bytes_out_s: float | None = None
    """Handed to the network, bytes per second; what neighbors read in memory is not among them."""
    bytes_in_s: float | None = None
    uptime_s: float | None = None
    silent_s: float | None = None
    """Since it last answered; None if it never did."""
    awaits: tuple[str, ...] = ()
    """Peers that it waits for, under a rule that waits."""
    suspected_by: int = 0
    """Number of others that suspect it, of those that were asked."""
    dead_by: int = 0
    """Number of others that consider it dead."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``rule``, ``topology``, ``wire`` and the like, by name."""

    @property
    def is_gone(self) -> bool:
        """Whether it takes part no more."""
        return self.state in GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """What passed between two members, as *source* counts it; see `wire.messages.LinkStatus`."""

    source: str
    target: str
    shares_memory: bool
    bytes_out_s: float | None
    """Per second, over the last seconds; None where it was asked only once."""
    bytes_in_s: float | None
    bytes_sent: int
    bytes_received: int
    frames_sent: int
    frames_received: int
    pushes: int
    refusals: int
    mixed: int
    in_flight: int
    roundtrip_s: float | None
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """Something that has happened, told once, however many members have noticed it."""

    number: int
    """Counts what the observer has heard of, from 1."""
    time_s: float
    """When it was first noticed, seconds since the epoch by the observer's own clock."""
    event: str
    """As in ``events.jsonl``: ``founded``, ``joined``, ``met``, ``suspected``, ``recovered``,
    ``died``, ``left``, ``full``."""
    peer: str
    """The peer that it is about."""
    donor: str = ""
    """The peer whose copy it became, of one that joined."""
    told_by: tuple[str, ...] = ()
    """Members that noticed, in the order in which the observer heard of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmView:
    """All that an observer knows at one moment."""

    time_s: float
    """When, seconds since the epoch by the observer's own clock."""
    swarm: str = ""
    """Hash of the swarm's first model, 32 hexadecimal digits."""
    swarm_step: int = 0
    """Optimizer steps of all peers that ever were; the most that any member knows of."""
    answered: int = 0
    """How many members have answered this time; 0 when none does any more."""
    peers: tuple[PeerView, ...] = ()
    """By id."""
    links: tuple[LinkView, ...] = ()
    events: tuple[EventView, ...] = ()
    """The last thousand, the oldest first."""

    @property
    def alive(self) -> int:
        """Members that take part."""
        return sum(not peer.is_gone for peer in self.peers)

    @property
    def weight(self) -> float | None:
        """What all hold that answer, with what they have pushed and is not settled, in founders.
        Moments lie between the answers: a share that moved meanwhile counts twice, or not."""
        told = [peer.figures for peer in self.peers if peer.source == "self"]
        held = [each["weight"] + each.get("escrow", 0.0) for each in told if "weight" in each]
        return math.fsum(held) if held else None

    @property
    def steps_s(self) -> float | None:
        """Steps per second of all together."""
        rates = [p.steps_s for p in self.peers if p.steps_s is not None and not p.is_gone]
        return math.fsum(rates) if rates else None

    @property
    def consensus_distance(self) -> float | None:
        """How far models are from their mean, over its norm: root mean square over the members."""
        found = [p.distance**2 for p in self.peers if p.distance is not None]
        return math.sqrt(math.fsum(found) / len(found)) if found else None

    @property
    def uptime_s(self) -> float | None:
        """How long the longest-running of those runs that answer."""
        return max((p.uptime_s for p in self.peers if p.uptime_s is not None), default=None)

    def peer(self, id: str) -> PeerView | None:
        """The member of a name."""
        return next((peer for peer in self.peers if peer.id == id), None)

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON has it: figures next to other fields of a member, null if they are not
        known. Numbers that are not finite are strings, such as ``"inf"``."""
        told = asdict(self)
        for peer in told["peers"]:
            peer |= dict.fromkeys(METRICS) | peer.pop("figures")
        told |= {"alive": self.alive, "weight": self.weight, "steps_s": self.steps_s}
        told |= {"consensus_distance": self.consensus_distance, "uptime_s": self.uptime_s}
        plain: dict[str, Any] = _plain(told)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
