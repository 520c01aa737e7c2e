"""How a member gives newcomers their first share, and what it does where many ask at once.

A donor gives one large copy at a time: two at once would take twice as long each, and the first to
have it can give it on. When one has got it, half of those who wait are referred to it, so that the
donors double with every copy: n newcomers wait for about log2(n) transfers, not for n.

Source: the binomial tree of a broadcast; Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 4.2.
"""

from .messages import Ask, PeerId, Phase, Refer
from .state import State
from .turn import Turn
from .weight import WEIGHT_MIN, half

__all__ = ["Donations"]


class Donations:
    """Newcomers that have asked this peer for a copy.

    Args:
        state: What the protocol remembers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._asking: dict[PeerId, Ask] = {}
        self._given: dict[PeerId, None] = {}

    def asked(self, peer: PeerId, body: Ask) -> None:
        """Note that a newcomer has asked; it is served in its turn."""
        self._asking[peer] = body

    def forget(self, peer: PeerId) -> None:
        """Give nothing to a peer that goes."""
        self._asking.pop(peer, None)
        self._given.pop(peer, None)

    def give(self, turn: Turn) -> None:
        """Give copies, and half of the weight with each."""
        alive = self._state.roster.is_alive
        self._given = {peer: None for peer in self._given if alive(peer)}
        for peer, asked in tuple(self._asking.items()):
            member = self._state.roster.member(peer)
            if member is None or member.phase > Phase.JOINING:
                del self._asking[peer]
            elif not turn.is_outstanding(peer) and turn.can_push(peer) and self._is_free(turn):
                weights = {lane.shard: half(lane.weight) for lane in self._state.lanes}
                if min(weights.values()) >= WEIGHT_MIN:
                    turn.push_shards(peer, weights, copy=True, anchor=asked.anchor)
                    del self._asking[peer]
                    self._given[peer] = None

    def follow(self, peer: PeerId) -> None:
        """See whether a newcomer has got its copy, and refer half of those who wait to it."""
        if peer not in self._given:
            return
        member = self._state.roster.member(peer)
        if member is None or not member.phase.takes_shares:
            return
        del self._given[peer]
        roster = self._state.roster
        waiting = [m for m in map(roster.member, self._asking) if m is not None]
        for newcomer in waiting[1::2]:
            if newcomer.addresses or member.addresses:
                del self._asking[newcomer.id]
                refer = Refer((member,))
                self._state.agenda.send(newcomer.id, newcomer.incarnation, refer)

    def _is_free(self, turn: Turn) -> bool:
        """Whether no large copy is under way."""
        if self._state.schema.copy_bytes <= self._state.config.inline_bytes_max:
            return True
        return not any([turn.is_outstanding(peer) for peer in self._given])
