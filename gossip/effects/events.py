"""Events, among the effects of a call: what the protocol reports to people and tools."""

from ..types import Incarnation, PeerId, frozen
from ..weight import shown

__all__ = [
    "Event",
    "Founded",
    "Joined",
    "PeerDied",
    "PeerLeft",
    "PeerMet",
    "PeerRecovered",
    "PeerRefused",
    "PeerSuspected",
    "PushSkipped",
    "ShareMixed",
    "ShareRefused",
    "StaleIncarnation",
    "SwarmGivenUp",
    "ViewFull",
]


@frozen
class Founded:
    """This peer founded: it created a founder's weight."""


@frozen
class Joined:
    """This newcomer became a copy of its donor."""

    donor: PeerId


@frozen
class ShareMixed:
    """A share was mixed in."""

    sender: PeerId
    weight: int
    staleness_steps: int
    """Steps by which the share lagged behind the peer that mixed it; 0 if its sender was ahead."""

    def __repr__(self) -> str:
        return shown(self, weight="units")


@frozen
class ShareRefused:
    """A share was refused."""

    sender: PeerId
    reason: str


NO_MEMORY = "no memory"
"""Reason of a push that is skipped, or a share that is refused, for lack of memory."""


@frozen
class PushSkipped:
    """A push that was due was skipped: no weight, neighbor, credit or memory was available."""

    reason: str


@frozen
class PeerMet:
    """A new peer, or a new incarnation of one, is known."""

    peer: PeerId


@frozen
class PeerSuspected:
    """A peer has been silent long enough that pushes skip it; it is asked whether it is alive."""

    peer: PeerId


@frozen
class PeerRecovered:
    """A peer that was suspected, or considered dead, was heard again."""

    peer: PeerId


@frozen
class PeerDied:
    """A peer is considered dead: its heartbeat stood still for too long."""

    peer: PeerId


@frozen
class PeerLeft:
    """A peer left voluntarily."""

    peer: PeerId


@frozen
class PeerRefused:
    """A peer that is not compatible with this swarm, and the first difference."""

    peer: PeerId
    reason: str


@frozen
class StaleIncarnation:
    """The swarm knows a later incarnation of this peer: only an even later one can join."""

    incarnation: Incarnation


@frozen
class SwarmGivenUp:
    """Another swarm was found; this peer, which had accepted nothing yet, burns its weight."""


@frozen
class ViewFull:
    """The member table is full: no further peer can be remembered, and none may be forgotten."""

    names: int


Event = (
    Founded
    | Joined
    | ShareMixed
    | ShareRefused
    | PushSkipped
    | PeerMet
    | PeerSuspected
    | PeerRecovered
    | PeerDied
    | PeerLeft
    | PeerRefused
    | StaleIncarnation
    | SwarmGivenUp
    | ViewFull
)
