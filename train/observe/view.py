"""Immutable snapshots of a swarm as seen from outside."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from ...gossip.wire.messages import LinkStatus
from ..runtime.telling.stats import METRICS

__all__ = ["GONE", "EventView", "LinkView", "PeerView", "State", "SwarmView"]

State = Literal[
    "seeking",
    "joining",
    "training",
    "waiting",
    "cut off",
    "finished",
    "quiet",
    "leaving",
    "left",
    "suspected",
    "dead",
    "silent",
]
"""Activity of a peer. A *waiting* peer waits for shares of others, as its rule demands; *suspected*
and *dead* are what most others report; a *silent* peer has stopped answering, unnoticed by them; a
peer that is *cut off* answers, while most others suspect it or consider it dead."""

GONE: Final = frozenset({"left", "dead"})
"""States of members that no longer take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerView:
    """One member; what is None, or missing from the figures, is unknown."""

    id: str
    state: State
    source: Literal["self", "others"]
    """The peer itself, or only reports of others if it does not answer or can only dial out."""
    incarnation: int | None = None
    address: str = ""
    """``host:port`` where it answers or reportedly listens; empty if it only dials out."""
    step: int = 0
    """Optimizer steps, those of earlier incarnations included."""
    steps_s: float | None = None
    """Steps per second, over the last few seconds."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures that it reports, by the names in `METRICS`."""
    staleness_mean: float | None = None
    """Mean staleness of the shares that it has mixed recently, or else ever, steps."""
    distance: float | None = None
    """Distance of its model from the mean over all that answer, relative to that mean's norm and
    estimated from 256 numbers."""
    bytes_out_s: float | None = None
    """Bytes per second handed to the network, without what neighbors read from memory."""
    bytes_in_s: float | None = None
    uptime_s: float | None = None
    silent_s: float | None = None
    """Seconds since its last answer."""
    awaits: tuple[str, ...] = ()
    """Peers that it waits for, under a synchronous rule."""
    suspected_by: int = 0
    """Number of queried members that suspect it."""
    dead_by: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings by name: ``rule``, ``topology``, ``host`` and so on."""

    @property
    def is_gone(self) -> bool:
        return self.state in GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """Traffic between two members, as *source* counts it."""

    source: str
    status: LinkStatus
    bytes_out_s: float | None
    """Bytes per second, over the last few seconds."""
    bytes_in_s: float | None


@dataclass(frozen=True, slots=True)
class EventView:
    """An event, listed once however many members noticed it."""

    time_s: float
    """Time it was first noticed, seconds since the epoch by the observer's clock."""
    event: str
    """As in ``events.jsonl``: ``founded``, ``joined``, ``met``, ``suspected``, ``recovered``,
    ``died``, ``left``, ``full``."""
    peer: str
    """Id of the peer that it concerns."""
    donor: str = ""
    """For ``joined``, the peer whose model it copied."""
    told_by: tuple[str, ...] = ()
    """Members that noticed it, in the order in which their reports arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmView:
    """All that an observer knows at one time."""

    time_s: float
    """Time of the snapshot, seconds since the epoch by the observer's clock."""
    swarm: str = ""
    """Hash of the swarm's first model, as 32 hexadecimal digits."""
    swarm_step: int = 0
    """Optimizer steps of all peers, past ones included: the highest count that a member knows."""
    answered: int = 0
    """Number of members that answered this poll; 0 if none does any more."""
    peers: tuple[PeerView, ...] = ()
    """Members, by id."""
    links: tuple[LinkView, ...] = ()
    events: tuple[EventView, ...] = ()
    """The last thousand events, oldest first."""

    @property
    def alive(self) -> int:
        """Number of members that take part."""
        return sum(not peer.is_gone for peer in self.peers)

    @property
    def weight(self) -> float | None:
        """Weight of all members that answer, unsettled pushes included, in founders."""
        # Answers differ in time: a share that moved between them counts twice or not at all.
        told = [peer.figures for peer in self.peers if peer.source == "self"]
        held = [each["weight"] + each.get("escrow", 0.0) for each in told if "weight" in each]
        # Not `fsum`, which raises on infinities of both signs.
        return sum(held) if held else None

    @property
    def steps_s(self) -> float | None:
        """Steps per second of all members together."""
        rates = [p.steps_s for p in self.peers if p.steps_s is not None and not p.is_gone]
        return sum(rates) if rates else None

    @property
    def consensus_distance(self) -> float | None:
        """Root mean square distance of the models from their mean, relative to its norm."""
        found = [p.distance for p in self.peers if p.distance is not None]
        return math.hypot(*found) / math.sqrt(len(found)) if found else None

    @property
    def uptime_s(self) -> float | None:
        """Seconds that the longest-running member that answers has run."""
        return max((p.uptime_s for p in self.peers if p.uptime_s is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, with figures next to the other fields of their member.

        Unknown figures are null; numbers that are not finite are strings, such as ``"inf"``.
        """
        told = asdict(self)
        for peer in told["peers"]:
            peer |= dict.fromkeys(METRICS) | peer.pop("figures")
        for link in told["links"]:
            link |= link.pop("status")
            link["target"] = link.pop("peer")
        for name in ("alive", "weight", "steps_s", "consensus_distance", "uptime_s"):
            told[name] = getattr(self, name)
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
