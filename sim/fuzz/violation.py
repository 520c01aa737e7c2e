"""The error that reports a broken invariant."""

from ...gossip import RumorError
from ...gossip.types import PeerId

__all__ = ["LIVENESS", "Violation"]

LIVENESS = "liveness"
"""The invariant that everything settles once the faults are over."""


class Violation(RumorError):
    """An invariant does not hold.

    Args:
        invariant: Its name: ``I1`` to ``I6`` (PROTOCOL), ``liveness``, ``leak``, ``clock``,
            ``order`` for a call of the core out of order, or ``error`` where the core raised one.
        what: What was found instead.
        peers: The peers concerned; empty for no particular one.
    """

    def __init__(self, invariant: str, what: str, peers: tuple[PeerId, ...] = ()) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what
        self.peers = peers
