"""How a peer stops: it finishes with the others, or leaves before them.

Finishing is not leaving. A finished peer pushes and mixes on until all live peers have finished,
merges with them for some rounds, and falls quiet. A leaver refuses what comes and pushes all that
it holds to a neighbor at once, to one that has spoken since if there is any: neighbors may be dead,
and it must be gone within seconds. What comes back of its escrow it hands on after that.
"""

from ..effects.ledger import Entry, Kind
from ..types import PeerId
from ..wire.messages import Hello, Leave, Phase
from .context import RuleContext
from .state import State

__all__ = ["Leaving"]

_HEIRS_ASKED_MAX = 8


class Leaving:
    """The last phases of a peer: finished, quiet, leaving, left."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rounds = 0
        self._burns = False
        self._since_s = 0.0
        self.due_s = float("inf")
        """When a leaver waits no longer for the answer of a possible heir, seconds."""

    @property
    def merging(self) -> bool:
        """Whether all live peers have finished, so that only agreement is left to reach."""
        return self._state.table.over

    @property
    def done(self) -> bool:
        """Whether nobody needs this peer any more."""
        if self._phase is Phase.QUIET:
            # A newcomer does not count: nobody here will ever give it a share.
            return not self._state.table.takers() and not self._state.in_flight()
        return self._phase is Phase.LEFT

    def count_pushes(self, pushes: int) -> None:
        """Count the pushes of a call of the rule after everybody had finished.

        A call counts, too, where nobody is left to push to.
        """
        self._rounds += max(pushes, int(self._is_alone()))
        if self._merged:
            self._state.close("finished")

    def _is_alone(self) -> bool:
        """Whether there is nobody whom it could ever push to."""
        table = self._state.table
        others = (table.member(peer) for peer in table.takers() if peer != table.id)
        return not any(other is not None and table.can_meet(other) for other in others)

    def leave(self, now: float, *, burn: bool) -> None:
        """Begin to leave.

        Args:
            now: Seconds.
            burn: Destroy the weight instead of handing it on, also what is still in escrow and
                comes back: the vector that would go with it is unusable.
        """
        self._burns = self._burns or burn or self._state.is_stale
        if self._phase >= Phase.LEAVING:
            return
        self._since_s = now
        self._state.table.advance(phase=Phase.LEAVING)
        self._state.close("leaving")
        self._tell_all(gone=False)
        if not self._burns:
            self._look_for_heirs()

    def advance(self, now: float) -> None:
        """Go on to the next phase where nothing holds this one any more; not before it finishes."""
        self.due_s = float("inf")
        if self._phase >= Phase.LEAVING:
            # The rule will not be called again, and nobody trains on these values any more.
            self._state.reclaim(now)
        # Nobody settles anything with a stale incarnation.
        open_ones = 0 if self._state.is_stale else self._state.in_flight()
        if self._phase is Phase.FINISHED and self._merged and not open_ones:
            self._state.table.advance(phase=Phase.QUIET)
        elif self._state.weight and self._phase in (Phase.LEAVING, Phase.LEFT):
            self._hand_on(now)
        elif self._phase is Phase.LEAVING and not open_ones:
            self._go()

    @property
    def _phase(self) -> Phase:
        return self._state.table.phase

    @property
    def _merged(self) -> bool:
        may_close = self._state.may_close
        return self._rounds >= self._state.config.merge_rounds if may_close is None else may_close

    def _look_for_heirs(self) -> None:
        """Ask some neighbors whether they are alive: one that answers can take the weight."""
        table, log = self._state.table, self._state.log
        hello = Hello(members=(table.me,), rooted=self._state.rooted, reply=True)
        takers = [m for m in table.others(alive=True) if m.phase.takes_shares]
        for member in filter(table.can_meet, takers[:_HEIRS_ASKED_MAX]):
            log.send(member.id, member.incarnation, hello)

    def _hand_on(self, now: float) -> None:
        """Hand all weight on, or burn it where nobody is left to take it.

        What was stranded may come back to one that has left.
        """
        state = self._state
        heirs, newcomers = ([], []) if self._burns else self._heirs()
        if heirs or newcomers:
            self._push_all(now, heirs, newcomers)
            return
        for shard_state in state.shard_states:
            if shard_state.weight:
                shard_state.log.record(Entry(Kind.BURNED, shard_state.weight))
        if self._phase is Phase.LEAVING and (state.is_stale or not state.in_flight()):
            self._go()

    def _heirs(self) -> tuple[list[PeerId], list[PeerId]]:
        """Live peers that take shares; newcomers, who become copies where nobody else is left."""
        table = self._state.table
        met = [m for m in table.live() if m.id != table.id and table.can_meet(m)]
        heirs = [member.id for member in met if member.phase.takes_shares]
        return heirs, [m.id for m in met if m.phase is Phase.JOINING and not heirs]

    def _push_all(self, now: float, heirs: list[PeerId], newcomers: list[PeerId]) -> None:
        """Push all weight to one of them, if one is free; else that is for later."""
        state = self._state
        context = RuleContext(state, now, trained=False, merging=False)
        for returned in context.returned:
            state.table.pass_over(returned.peer, now + state.config.retry_s)
        awake = [heir for heir in heirs if state.table.spoke_since(heir, self._since_s)]
        due_s = self._since_s + state.config.gossip_s
        if heirs and now < due_s:
            self.due_s = due_s  # whoever answers until then is alive
            if state.is_full:
                return  # and shares under way may be settled
        shards = [each.shard for each in state.shard_states if each.weight]
        heir = context.draw(awake, shards, urgent=True)
        if heir is None and (now >= due_s or not heirs):
            heir = context.draw(heirs or newcomers, shards, urgent=True)
        if heir is not None:
            weights = {shard: context.weight_of(shard) for shard in shards}
            context.push_shards(heir, weights, copy=heir in newcomers, whole=True)

    def _go(self) -> None:
        self._state.table.advance(phase=Phase.LEFT)
        self._tell_all(gone=True)

    def _tell_all(self, *, gone: bool) -> None:
        for member in self._state.table.others(alive=True):
            self._state.log.send(member.id, member.incarnation, Leave(gone))
