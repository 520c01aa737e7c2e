"""How a peer stops: it finishes with the others, or leaves before them.

Finishing is not leaving. A finished peer pushes and mixes on until all live peers have finished,
merges with them for some rounds, and falls quiet. A leaver refuses what comes, waits until its own
escrow is resolved, and pushes all its weight to a neighbor.
"""

from .ledger import Entry, Kind
from .messages import Leave, Phase
from .state import State
from .turn import Turn

__all__ = ["Departure"]


class Departure:
    """The last phases of one peer's life."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._round = 0
        self._rounds = 0
        self._burns = False

    @property
    def merging(self) -> bool:
        """Whether all live peers have finished, so that only agreement is left to reach."""
        return self._state.roster.over

    @property
    def closing(self) -> bool:
        """Whether shares are refused from now on."""
        return self._phase >= Phase.QUIET or self._merged

    @property
    def done(self) -> bool:
        """Whether nobody needs this peer any more."""
        if self._phase is Phase.QUIET:
            # A newcomer does not count: nobody here will ever give it a share.
            return not self._state.roster.takers() and not self._state.in_flight()
        return self._phase is Phase.LEFT

    def turned(self) -> None:
        """Count the pushes of a turn that was taken after everybody had finished.

        A turn counts, too, where nobody is left to push to.
        """
        pushes, self._round = self._state.round - self._round, self._state.round
        if self._phase is Phase.FINISHED and self.merging:
            alone = self._state.roster.takers() == (self._state.roster.id,)
            self._rounds += max(pushes, int(alone))
            if self._merged:
                self._state.refuse_all("finished")

    def leave(self, *, burn: bool) -> None:
        """Begin to leave.

        Args:
            burn: Destroy the weight instead of handing it on, also what is still in escrow and
                comes back: the vector that would go with it is unusable.
        """
        self._burns = self._burns or burn
        if self._phase >= Phase.LEAVING:
            return
        self._state.roster.advance(phase=Phase.LEAVING)
        self._state.refuse_all("leaving")
        self._tell_all(gone=False)

    def advance(self, now: float) -> None:
        """Go on to the next phase where nothing holds this one any more."""
        if self._phase >= Phase.LEAVING:
            # No further turn will be taken, and nobody trains on these values any more.
            self._state.reclaim()
        if self._phase <= Phase.TRAINING or self._state.in_flight():
            return
        if self._phase is Phase.FINISHED and self._merged:
            self._state.roster.advance(phase=Phase.QUIET)
        elif self._phase is Phase.LEAVING or (self._phase is Phase.LEFT and self._state.weight):
            self._hand_on(now)

    @property
    def _phase(self) -> Phase:
        return self._state.roster.phase

    @property
    def _merged(self) -> bool:
        may_close = self._state.may_close
        return self._rounds >= self._state.config.merge_rounds if may_close is None else may_close

    def _hand_on(self, now: float) -> None:
        """Hand all weight on, then go; what was stranded may come back to one that has left."""
        state = self._state
        if state.weight and not self._burns and self._has_heir(now):
            return
        for lane in state.lanes:
            if lane.weight:
                lane.agenda.record(Entry(Kind.BURNED, lane.weight))
        if self._phase is Phase.LEAVING:
            state.roster.advance(phase=Phase.LEFT)
            self._tell_all(gone=True)

    def _has_heir(self, now: float) -> bool:
        """Push all weight to live peers; False where there is none, not even a busy one.

        Where only newcomers are left, one of them becomes a copy: the model must not be lost.
        """
        turn = Turn(self._state, now, trained=False, merging=False)
        for returned in turn.returned:
            self._state.roster.pass_over(returned.peer, now + self._state.config.retry_s)
        newcomers = [m.id for m in self._state.roster.live() if m.phase is Phase.JOINING]
        heirs = turn.live() or newcomers
        shards = [lane.shard for lane in self._state.lanes if lane.weight]
        heir = turn.draw(heirs, shards)
        if heir is not None:
            units = {shard: turn.weight_of(shard) for shard in shards}
            turn.push_shards(heir, units, copy=heir in newcomers, whole=True)
        return bool(heirs)

    def _tell_all(self, *, gone: bool) -> None:
        for member in self._state.roster.others(alive=True):
            self._state.agenda.send(member.id, member.incarnation, Leave(gone))
