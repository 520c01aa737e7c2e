"""The peers of a fuzz swarm: protocol, values, pace, and neighbors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...gossip import ProtocolConfig, Rule
from ...gossip.effects.ledger import Account, Life
from ...gossip.protocol.protocol import Protocol
from ...gossip.protocol.state import Neighbors
from ...gossip.types import Incarnation, PeerId
from ...topology.hashing import key, uniform
from ..kernel.worker import Worker
from .vector import SIZE, Values, Vector

__all__ = ["FuzzPeer", "Pace", "Peers", "chain", "complete", "ring", "spread"]


def complete(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Every peer may push to every other."""
    return tuple(other for other in live if other != peer)


def ring(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Every peer may push to the one before it and the one after it."""
    if peer not in live or len(live) < 2:
        return ()
    at = live.index(peer)
    return tuple(sorted({live[at - 1], live[(at + 1) % len(live)]}))


def chain(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """A ring that is open between the last and the first."""
    if peer not in live:
        return ()
    at = live.index(peer)
    return (*live[max(0, at - 1) : at], *live[at + 1 : at + 2])


@dataclass(slots=True, eq=False)
class FuzzPeer:
    """One incarnation of a peer, with its values."""

    worker: Worker
    vector: Vector
    ledgers: tuple[Account, ...]
    """The written account of each shard."""
    life: Life = field(init=False)
    poisoned: bool = False
    """True if some of its values are not finite."""
    outlived: Incarnation = 0
    """The latest other incarnation of its name that it knows of."""

    def __post_init__(self) -> None:
        self.life = self.ledgers[0].life

    @property
    def id(self) -> PeerId:
        return self.worker.id

    @property
    def protocol(self) -> Protocol:
        return self.worker.protocol

    @property
    def ledger(self) -> Account:
        """The account of the first shard."""
        return self.ledgers[0]


@dataclass(slots=True, kw_only=True)
class Peers:
    """Settings that all peers of a swarm share."""

    rule: Callable[[PeerId], Rule]
    config: ProtocolConfig = field(default_factory=ProtocolConfig)
    neighbors: Neighbors = complete
    train: Callable[[FuzzPeer], None] = lambda peer: None
    step_s: Callable[[PeerId], float] = lambda peer: 0.1
    """Mean time of a step, seconds."""
    lr: Callable[[int], float] | None = None
    """Learning rate of each step, for rules that look at it; None hides it from them."""
    values: Callable[[PeerId], Values] | None = None
    """Initial model of each peer; default: drawn from the seed."""
    anchor: Callable[[PeerId], bytes] = lambda peer: b"the-first-anchor"
    """The anchor that a peer would found with."""
    size: int = SIZE
    shards: int = 1
    host: Callable[[PeerId], bytes] = lambda peer: b""
    """The machine of a peer, where others read its memory; empty where they cannot."""
    dials_out: Callable[[PeerId], bool] = lambda peer: False
    """True for a peer that listens nowhere, and is reached on connections of its own only."""
    ahead_s: Mapping[PeerId, float] = field(default_factory=dict)
    """How far the clocks of some machines are ahead, seconds; below 0 where they are behind."""
    mutate: Callable[[Protocol], None] = lambda protocol: None
    """Plants a known bug."""
    tells: bool = False
    """True if a sender is notified that its peer is unreachable."""
    hulls: bool = True
    """True if values change by mixing alone."""
    rolls: tuple[int, ...] = ()
    """Number of founders in each roll call, with several swarms."""
    digests: bool = False
    """True to keep a digest of everything."""


def spread(peers: Sequence[FuzzPeer]) -> float:
    """Return the largest difference of two models in one coordinate."""
    return float(np.ptp(np.array([peer.vector.x for peer in peers]), axis=0).max())


@dataclass(slots=True)
class Pace:
    """Step times drawn evenly from half to one and a half times the mean, seconds."""

    ids: Sequence[PeerId]
    means_s: Callable[[PeerId], float]
    seed: int

    def step_s(self, worker: int, step: int) -> float:
        return self.mean_s(worker) * (0.5 + uniform(key(self.seed, self.ids[worker], "pace"), step))

    def mean_s(self, worker: int) -> float:
        return self.means_s(self.ids[worker])
