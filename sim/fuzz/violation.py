"""The error that reports a broken invariant."""

from ...gossip import RumorError
from ...gossip.types import PeerId

__all__ = ["LIVENESS", "Violation"]

LIVENESS = "liveness"
"""The invariant that everything settles once nothing goes wrong any more."""


class Violation(RumorError):
    """An invariant does not hold.

    Args:
        invariant: Which: ``I1`` to ``I7`` (PROTOCOL), ``liveness``, ``leak``, ``clock``, ``order``
            for what the core asks for out of order, or ``error`` where the core raised one.
        what: What was found instead.
        peers: Whom it concerns; nobody in particular if empty.
    """

    def __init__(self, invariant: str, what: str, peers: tuple[PeerId, ...] = ()) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what
        self.peers = peers
