"""What the protocol tells people and their tools: nothing needs to be done about an event.

Events stand among the effects that a call returns, in the order in which they happened.
"""

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
    """This peer brought a founder's weight into being."""


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
    """How many steps it was behind the peer that mixed it: 0 if its sender was ahead."""

    def __repr__(self) -> str:
        return shown(self, weight="units")


@frozen
class ShareRefused:
    """A share went back to its sender."""

    sender: PeerId
    reason: str


NO_MEMORY = "no memory"
"""Why a push is skipped, or a share goes back, for which the peer has no memory."""


@frozen
class PushSkipped:
    """A push that was due found no weight, no neighbor, no credit or no memory."""

    reason: str


@frozen
class PeerMet:
    """A peer, or a new incarnation of one, is known."""

    peer: PeerId


@frozen
class PeerSuspected:
    """A peer has been silent so long that pushes pass it over; it is asked whether it is alive."""

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
    """A peer went of its own accord."""

    peer: PeerId


@frozen
class PeerRefused:
    """A peer that cannot be one of this swarm, and the first difference."""

    peer: PeerId
    reason: str


@frozen
class StaleIncarnation:
    """The swarm knows a later incarnation of this peer: only a still later one can join."""

    incarnation: Incarnation


@frozen
class SwarmGivenUp:
    """Another swarm was met; this peer, which had accepted nothing yet, burns its weight."""


@frozen
class ViewFull:
    """No further name can be kept in mind: none of those that are there may be forgotten."""

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
