"""What is told of an in-process swarm: the protocols' own events, and what was done to peers."""

from typing import NamedTuple

from ..gossip.effects import Halt
from ..gossip.events import Event
from ..gossip.frozen import frozen
from ..gossip.messages import Incarnation, PeerId

__all__ = [
    "Fault",
    "Happening",
    "LinkCut",
    "LinkHealed",
    "PeerClosed",
    "PeerCrashed",
    "PeerFailed",
    "PeerPaused",
    "PeerSlowed",
    "PeerStarted",
]


@frozen
class PeerStarted:
    """A life of this peer began."""

    incarnation: Incarnation


@frozen
class PeerCrashed:
    """Its process ended without a word, and its weight with it."""


@frozen
class PeerPaused:
    """Its process stood still."""

    duration_s: float


@frozen
class PeerSlowed:
    """Its steps took so many times as long from then on."""

    factor: float


@frozen
class LinkCut:
    """What it sent to another peer got lost from then on."""

    to: PeerId


@frozen
class LinkHealed:
    """What it sent to another peer arrived again."""

    to: PeerId


@frozen
class PeerFailed:
    """It could not go on: its loss was not finite, its rule gave up, or nobody took its weight."""

    reason: str


@frozen
class PeerClosed:
    """Its process ended in good order: nobody needed it any more."""


Fault = (
    PeerStarted
    | PeerCrashed
    | PeerPaused
    | PeerSlowed
    | LinkCut
    | LinkHealed
    | PeerFailed
    | PeerClosed
)


class Happening(NamedTuple):
    """One line of what is told."""

    time_s: float
    """Virtual time, in seconds."""
    peer: PeerId
    """Who saw it, or to whom it was done."""
    event: Event | Halt | Fault

    def __str__(self) -> str:
        return f"{self.time_s:10.3f} s  {self.peer}  {self.event}"
