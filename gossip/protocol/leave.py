"""How a peer stops: it finishes with the others, or leaves before them.

Finishing is not leaving. A finished peer pushes and mixes on until all live peers have finished,
merges with them until their models are close (see `agreement`), and falls quiet. A leaver refuses
what comes and pushes all that it holds to a neighbor at once, to one that has spoken since if there
is any: neighbors may be dead, and it must be gone within seconds. What comes back of its escrow it
hands on after that.
"""

from ..effects.effects import EndTraining
from ..effects.ledger import Entry, Kind
from ..types import Incarnation, PeerId
from ..wire.messages import Envelope, Hello, Leave, Phase, Stop, Stopping
from .agreement import Agreement
from .context import RuleContext
from .state import State

__all__ = ["STOPPED", "Leaving", "Stops"]

_HEIRS_ASKED_MAX = 8


class Leaving:
    """The last phases of a peer: finished, quiet, leaving, left."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.agreement = Agreement(state)
        self._burns = False
        self._since_s = 0.0
        self.due_s = float("inf")
        """When a leaver waits no longer for the answer of a possible heir, seconds."""
        self.has_finished = False
        """Whether the peer takes no more optimizer steps."""

    @property
    def done(self) -> bool:
        """Whether nobody needs this peer any more."""
        if self._phase is Phase.QUIET:
            # A newcomer does not count: nobody here will ever give it a share.
            return not self._state.table.takers() and not self._state.in_flight()
        return self._phase is Phase.LEFT

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
        if self.has_finished and self._phase is Phase.TRAINING:
            # One that had given its swarm up when it finished joins another only now.
            self._state.table.advance(phase=Phase.FINISHED)
        if self._phase < Phase.FINISHED:
            return
        self.due_s = float("inf")
        if self._phase >= Phase.LEAVING:
            # The rule will not be called again, and nobody trains on these values any more.
            self._state.reclaim(now)
        # Nobody settles anything with a stale incarnation.
        open_ones = 0 if self._state.is_stale else self._state.in_flight()
        if self._phase is Phase.FINISHED and self.agreement.is_over and not open_ones:
            self._state.table.advance(phase=Phase.QUIET)
        elif self._state.weight and self._phase in (Phase.LEAVING, Phase.LEFT):
            self._hand_on(now)
        elif self._phase is Phase.LEAVING and not open_ones:
            self._go()

    @property
    def _phase(self) -> Phase:
        return self._state.table.phase

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


STOPPED = "rumor stop"
"""In whose name training ends where somebody has asked the swarm to stop."""

_PASSED_ON_MAX = 8
"""Peers that are told at a time of a request to stop: in a crowd, each tells others."""

_ASKERS_MAX = 8


class Stops:
    """A request to stop: obeyed once, passed on until nobody named in it trains, and answered.

    Whoever gets here may ask for it; what refuses others is the runtime (`Reception`).

    Args:
        state: What the protocol remembers.
        leaving: Tells when this peer is done.
    """

    def __init__(self, state: State, leaving: Leaving) -> None:
        self._state = state
        self._leaving = leaving
        self._lives: set[tuple[PeerId, Incarnation]] = set()
        self._stops: list[Stop] = []
        self.askers: dict[PeerId, Incarnation] = {}
        """Who has asked and is no member, and hears how far this peer is."""
        self._told: tuple[Phase, bool] | None = None
        self._due_s = 0.0

    def asked(self, envelope: Envelope, body: Stop, now: float) -> None:
        """Take in a request, and answer it where it does not come from a member."""
        state = self._state
        if state.log.account.life not in body.lives:
            return
        if not self._stops and state.table.phase <= Phase.TRAINING:
            state.log.ask(EndTraining(STOPPED))
        # A later one names those who were not known when the one before was made.
        if not self._lives.issuperset(body.lives):
            self._lives.update(body.lives)
            self._stops = [each for each in self._stops if not {*each.lives} <= {*body.lives}]
            self._stops.append(body)
            self._due_s = now
            self.wake(now)
        if not state.table.is_known(envelope.source) and len(self.askers) < _ASKERS_MAX:
            self.askers[envelope.source] = envelope.source_incarnation
        if envelope.source in self.askers:
            self._told = (state.table.phase, self._leaving.done)
            self._answer(envelope.source, self._told)

    def wake(self, now: float) -> None:
        """Tell those who still train, once each gossip interval: a message may have been lost."""
        if not self._stops or now < self._due_s:
            return
        self._due_s = now + self._state.config.gossip_s
        table = self._state.table
        late = [m for m in table.others(alive=True) if m.phase <= Phase.TRAINING]
        late = [m for m in late if (m.id, m.incarnation) in self._lives]
        # From here on around, so that not all tell the same few of a crowd.
        late.sort(key=lambda member: (member.id < table.id, member.id))
        for member in late[:_PASSED_ON_MAX]:
            for stop in self._stops:
                if (member.id, member.incarnation) in stop.lives:
                    self._state.log.send(member.id, member.incarnation, stop)

    def follow(self) -> None:
        """Tell whoever has asked, once this peer has come farther."""
        told = (self._state.table.phase, self._leaving.done)
        if told != self._told:
            for asker in self.askers:
                self._answer(asker, told)
            self._told = told

    def _answer(self, asker: PeerId, told: tuple[Phase, bool]) -> None:
        state, (phase, done) = self._state, told
        answer = Stopping("", state.weight, phase, state.table.step, done)
        state.log.send(asker, self.askers[asker], answer)
