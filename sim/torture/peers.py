"""What the peers of a simulated network are made of, and whom each of them may push to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...gossip import PeerId, Protocol, ProtocolConfig, Rule
from ...gossip.state import Neighbors
from .host import Host
from .vector import SIZE

__all__ = ["Peers", "complete", "ring", "spread"]


def complete(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to everybody."""
    return tuple(other for other in live if other != peer)


def ring(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to the one before and the one after."""
    if peer not in live or len(live) < 2:
        return ()
    at = live.index(peer)
    return tuple(sorted({live[at - 1], live[(at + 1) % len(live)]}))


@dataclass(slots=True, kw_only=True)
class Peers:
    """What all peers of a network are made of."""

    rule: Callable[[PeerId], Rule]
    config: ProtocolConfig = field(default_factory=ProtocolConfig)
    neighbors: Neighbors = complete
    train: Callable[[Host], None] = lambda host: None
    step_s: Callable[[PeerId], float] = lambda peer: 0.1
    anchor: bytes = b"the-first-anchor"
    size: int = SIZE
    """Numbers of their vector."""
    shards: int = 1
    host: bytes = b""
    """Where they can read one another's memory; empty where they cannot."""
    dials_out: Callable[[PeerId], bool] = lambda peer: False
    """Whether a peer listens nowhere, so that it is reached on connections of its own only."""
    plant: Callable[[Protocol], None] = lambda protocol: None
    """Damages a protocol, so that one can see whether that is found."""
    digests: bool = True
    """Whether to keep a digest of everything."""


def spread(hosts: list[Host]) -> float:
    """Largest difference of two models in one coordinate."""
    return float(np.ptp(np.array([host.vector.x for host in hosts]), axis=0).max())
