"""What the peers of a fuzz swarm are made of: protocol, values, pace, and whom they know."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...gossip import ProtocolConfig, Rule
from ...gossip.effects.ledger import Account
from ...gossip.protocol.protocol import Protocol
from ...gossip.protocol.state import Neighbors
from ...gossip.types import Incarnation, PeerId
from ...topology.hashing import key, uniform
from ..kernel.worker import Worker
from .vector import SIZE, Values, Vector
from .weighted_sum import Life

__all__ = ["FuzzPeer", "Pace", "Peers", "chain", "complete", "ring", "spread"]


def complete(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to everybody."""
    return tuple(other for other in live if other != peer)


def ring(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to the one before and the one after."""
    if peer not in live or len(live) < 2:
        return ()
    at = live.index(peer)
    return tuple(sorted({live[at - 1], live[(at + 1) % len(live)]}))


def chain(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """As on a ring that is open between the last and the first."""
    if peer not in live:
        return ()
    at = live.index(peer)
    return (*live[max(0, at - 1) : at], *live[at + 1 : at + 2])


@dataclass(slots=True, eq=False)
class FuzzPeer:
    """One life of one peer, with its values."""

    worker: Worker
    vector: Vector
    ledgers: tuple[Account, ...]
    """What was written down, of each shard."""
    life: Life = field(init=False)
    poisoned: bool = False
    """Whether its values are not finite any more."""
    outlived: Incarnation = 0
    """The latest other life of its name that it has heard of."""

    def __post_init__(self) -> None:
        self.life = self.ledgers[0].life

    @property
    def id(self) -> PeerId:
        """Its name."""
        return self.worker.id

    @property
    def protocol(self) -> Protocol:
        """What decides for it."""
        return self.worker.protocol

    @property
    def ledger(self) -> Account:
        """That of the first shard."""
        return self.ledgers[0]


@dataclass(slots=True, kw_only=True)
class Peers:
    """What all peers of a swarm are made of."""

    rule: Callable[[PeerId], Rule]
    config: ProtocolConfig = field(default_factory=ProtocolConfig)
    neighbors: Neighbors = complete
    train: Callable[[FuzzPeer], None] = lambda peer: None
    """The optimizer step."""
    step_s: Callable[[PeerId], float] = lambda peer: 0.1
    """Mean time of a step, seconds."""
    lr: Callable[[int], float] | None = None
    """Learning rate of each step, for rules that look at it; unknown to them unless given."""
    values: Callable[[PeerId], Values] | None = None
    """Each one's model at its start; drawn from the seed unless given."""
    anchor: Callable[[PeerId], bytes] = lambda peer: b"the-first-anchor"
    """What a peer would found with."""
    size: int = SIZE
    """Numbers of their vector."""
    shards: int = 1
    host: Callable[[PeerId], bytes] = lambda peer: b""
    """The machine of a peer, where others read its memory; empty where they cannot."""
    dials_out: Callable[[PeerId], bool] = lambda peer: False
    """Whether a peer listens nowhere, so that it is reached on connections of its own only."""
    ahead_s: Mapping[PeerId, float] = field(default_factory=dict)
    """How far the clocks of some machines are ahead; below 0 where they are behind."""
    mutate: Callable[[Protocol], None] = lambda protocol: None
    """Plants a known bug, so that one can see whether it is found."""
    tells: bool = False
    """Whether a sender hears that there is no way to its peer."""
    hulls: bool = True
    """Whether values change by mixing alone."""
    rolls: tuple[int, ...] = ()
    """How many of the founders call each roll, where there are several swarms."""
    damage: float = 0.0
    """Probability that bits of a message are flipped until the faults are over; above 0, every
    message is made bytes."""
    digests: bool = False
    """Whether to keep a digest of everything."""
    compares_every: int = 1
    """Events from one comparison of all ledgers to the next, see `Invariants`."""


def spread(peers: Sequence[FuzzPeer]) -> float:
    """Largest difference of two models in one coordinate."""
    return float(np.ptp(np.array([peer.vector.x for peer in peers]), axis=0).max())


@dataclass(slots=True)
class Pace:
    """Steps of every length from half the mean to one and a half times it, seconds."""

    ids: Sequence[PeerId]
    means_s: Callable[[PeerId], float]
    seed: int

    def step_s(self, worker: int, step: int) -> float:
        """How long a step takes."""
        return self.mean_s(worker) * (0.5 + uniform(key(self.seed, self.ids[worker], "pace"), step))

    def mean_s(self, worker: int) -> float:
        """How long steps take on average."""
        return self.means_s(self.ids[worker])
