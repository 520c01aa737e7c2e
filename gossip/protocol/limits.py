"""Limits on what one other peer can do here, member or not: nobody has to prove who it is.

They are so wide that honest peers do not meet them. What they stop is the message, or the hundred
messages, that would change everything: a share that outweighs all models, questions that each
write a line of the ledger for good, newcomers that are made up and take half of the weight each.
"""

from dataclasses import dataclass, field

from ..exchange.incoming import Inbox
from ..types import PeerId, ShareId
from ..weight import acceptable
from .state import State

__all__ = ["FENCES_MAX", "NEWCOMERS_MAX", "Fences", "acceptable_of"]

FOUNDERS_MAX = 8
"""So many founders' weight is taken from one share, or of a leaver as much as all founders brought
of whom this peer knows: one share must not decide what everybody's model is."""

FENCES_MAX = 16
"""Questions about shares that never came, of each shard of the vector, that one peer gets answered
in a gossip interval. An honest one has one such share at a time, and asks every `query_s_min`."""

NEWCOMERS_MAX = 16
"""Newcomers that are being given a copy at a time: each has half of what is left."""


def acceptable_of(state: State, sender: PeerId, own: int, offered: int) -> int:
    """How much to accept of a share that is not a newcomer's first; all, unless weight counts.

    Args:
        state: What the protocol remembers.
        sender: Whose share it is.
        own: Weight held of its shard, in grains; above 0.
        offered: What would be accepted of it, likewise.
    """
    table = state.table
    if not state.caps:
        return offered
    if offered <= own or not table.is_leaving(sender):
        return acceptable(own, offered, FOUNDERS_MAX)
    # What a leaver hands on may be more than all that is held here, and it has no time.
    founders_max = max(FOUNDERS_MAX, len(table.clock.rows()))
    return acceptable(own, offered, founders_max, outweighs=True)


@dataclass(slots=True)
class Fences:
    """Counts, for each peer, answers to questions about shares that were never seen.

    Each such answer is a decision, and a line of the ledger.
    """

    state: State
    _until_s: float = float("-inf")
    _counts: dict[PeerId, int] = field(default_factory=dict)

    def query(self, inbox: Inbox, share: ShareId, now: float) -> None:
        """Answer what became of a share, unless its sender asks about too many that never came."""
        if now >= self._until_s:
            self._until_s, self._counts = now + self.state.config.gossip_s, {}
        if not inbox.has(share):
            asked = self._counts.get(share.sender, 0)
            if asked >= FENCES_MAX * len(self.state.shard_states):
                return
            self._counts[share.sender] = asked + 1
        inbox.query(share, now)
