"""Stopping: a peer finishes together with the others, or leaves before them.

A finished peer continues to push and mix until all live peers have finished, merges with them until
their models are close (`Agreement`), and becomes quiet. A leaver refuses incoming shares and pushes
all its weight to one neighbor at once; escrow that is returned later is handed on then.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..effects.effects import EndTraining
from ..effects.ledger import Entry, Kind
from ..types import Incarnation, PeerId
from ..wire.messages import (
    MERGE_STAGES,
    REASON_LENGTH_MAX,
    Envelope,
    Hello,
    Leave,
    Member,
    Phase,
    Stop,
    Stopping,
)
from .context import RuleContext
from .state import State

__all__ = ["STOPPED", "Agreement", "Leaving", "Stops", "widest_distance"]

_PUSHED: Final = 1
_SKETCHED: Final = 2

# Factor on the tolerance: room for three standard deviations of a sketched relative distance.
_MARGIN: Final = 0.75

# Peers give up after this many rounds, none of which brought the distance below this fraction of
# the best one so far.
_ROUNDS_IN_VAIN_MAX: Final = 8
_GAIN: Final = 0.9


class Agreement:
    """Agreement of finished peers: rounds of pushes, each followed by a comparison of all models.

    A peer *pushes* until it has pushed often enough and everything is settled. Once all peers
    *rest*, no model changes: each sends the others a *sketch* of its model. If the sketches are not
    close enough, the next round begins, unless rounds no longer bring them closer.

    Source: Charikar, Chen and Farach-Colton, ICALP 2002, section 3 (the sketch).
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._pushes = 0
        self._least = math.inf
        self._gained = 0
        """The last round that brought models closer."""
        self.wants_sketch = False
        self.is_over = False
        """True once merging has ended: the models are close, or come no closer."""
        self.reached = False
        """True if the models of all peers in this merge are within the tolerance."""
        self.distance: float | None = None
        """Largest relative distance of two models when last compared, see `widest_distance`."""

    @property
    def compares(self) -> bool:
        """True while the model must not change, until the sketches of all peers have arrived."""
        return self._state.table.merge % MERGE_STAGES == _SKETCHED and not self.is_over

    @property
    def _round(self) -> int:
        return self._state.table.merge // MERGE_STAGES

    def pushed(self, pushes: int) -> None:
        """Count the pushes of a call of the rule; one without a push target counts as well."""
        self._pushes += max(pushes, int(self._is_alone()))

    def turn(self, *, merging: bool) -> bool:
        """Advance the merge after a call of the rule; return True if others must hear of it."""
        state, table = self._state, self._state.table
        self.wants_sketch = False
        if table.only is not None or self.is_over:
            return False  # simulated values are computed later: there is nothing to compare
        others = self._others()
        latest = max([m.merge // MERGE_STAGES for m in others], default=0)
        if not merging or latest > self._round:
            if table.merge % MERGE_STAGES or latest > self._round:
                self._begin(max(latest, self._round + 1))
            if not merging:
                return False
        stage, told = table.merge % MERGE_STAGES, table.merge
        if stage == 0 and self._has_pushed(others):
            # Without this, a push would always be under way if a round trip takes many turns.
            state.rests = True
            if state.may_close is not False and self._is_still() and not state.in_flight():
                table.advance(merge=told + _PUSHED)
                stage = _PUSHED
        if stage == _PUSHED:
            self.wants_sketch = self._is_still() and all(m.merge >= table.merge for m in others)
        elif stage == _SKETCHED:
            self._compare(others)
        return table.merge != told

    def sketched(self, sketch: Sequence[float]) -> bool:
        table = self._state.table
        if table.phase is not Phase.FINISHED or table.merge % MERGE_STAGES != _PUSHED:
            return False
        table.advance(merge=table.merge - _PUSHED + _SKETCHED, sketch=tuple(sketch))
        self._compare(self._others())
        return True

    def _others(self) -> list[Member]:
        others = self._state.table.others(alive=True)
        return [member for member in others if member.phase is Phase.FINISHED]

    def _begin(self, round: int) -> None:
        self._pushes, self._state.rests = 0, False
        self._state.table.advance(merge=round * MERGE_STAGES, sketch=())

    def _has_pushed(self, others: list[Member]) -> bool:
        state = self._state
        if state.may_close or self._pushes >= state.config.merge_rounds:
            return True
        # A slow peer must not make all others wait for as many turns as they have taken.
        return self._pushes > 0 and all(m.merge > state.table.merge for m in others)

    def _is_still(self) -> bool:
        # If so, only another peer's push can change this peer's model.
        state = self._state
        returned = any([each.outbox.returned for each in state.busy_shards])
        return not (returned or state.measuring)

    def _compare(self, others: list[Member]) -> None:
        table = self._state.table
        round = table.merge - table.merge % MERGE_STAGES
        if any(m.merge < round + _PUSHED for m in others):
            # A peer that was silent, or is late, may have pushed a share to this one.
            self._begin(self._round + 1)
            return
        alone = self._is_alone()
        # A peer that closed can still pass on the sketch of another.
        closed = [m for m in table.others(alive=True) if m.phase is Phase.QUIET]
        uninformed = alone and not any(map(table.can_meet, closed))
        if any(m.merge != table.merge for m in others) and not uninformed:
            return
        own = table.me.sketch
        apart = widest_distance([own, *(m.sketch for m in others)])
        if apart < self._least * _GAIN:
            self._least, self._gained = apart, self._round
        # Peers that hear of the next round before they have compared skip a comparison.
        in_vain = self._round - self._gained
        is_close = apart <= _MARGIN * self._state.config.merge_tolerance
        if not (is_close or in_vain >= _ROUNDS_IN_VAIN_MAX or alone):
            self._begin(self._round + 1)
            return
        # Peers that agreed without this one, or fell silent before they did, also count.
        models = [own, *(m.sketch for m in [*others, *closed])]
        if len(models) > 1:
            self.distance = widest_distance(models)
            is_close = self.distance <= _MARGIN * self._state.config.merge_tolerance
        dead = table.others(alive=False)
        self.reached = is_close and not any(m.phase is Phase.FINISHED for m in dead)
        self.is_over = True
        self._state.close("finished")

    def _is_alone(self) -> bool:
        table = self._state.table
        others = (table.member(peer) for peer in table.takers() if peer != table.id)
        return not any(other is not None and table.can_meet(other) for other in others)


def widest_distance(models: Sequence[Sequence[float]]) -> float:
    """Largest Euclidean distance between two of some vectors, over the smaller of their norms.

    An empty vector stands for a model that is not finite.
    """
    if len(models) < 2:
        return 0.0
    if len({len(model) for model in models}) > 1 or not models[0]:
        return math.inf
    rows, widest = np.array(models, np.float64), 0.0
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(rows).sum(1))
        for at in range(len(rows) - 1):
            apart = np.sqrt(np.square(rows[at + 1 :] - rows[at]).sum(1))
            relative = np.where(apart == 0, 0.0, apart / np.minimum(norms[at], norms[at + 1 :]))
            widest = max(widest, float(np.where(np.isnan(relative), np.inf, relative).max()))
    return widest


_HEIRS_ASKED_MAX = 8


class Leaving:
    """The last phases of a peer: finished, quiet, leaving, left."""

    def __init__(self, state: State, agreement: Agreement) -> None:
        self._state = state
        self._agreement = agreement
        self._burns = False
        self._since_s = 0.0
        self.due_s = float("inf")
        self.has_finished = False

    @property
    def done(self) -> bool:
        """True if no peer needs this one any more."""
        if self._phase is Phase.QUIET:
            # A newcomer does not count: no peer here will ever give it a share.
            return not self._state.table.takers() and not self._state.in_flight()
        return self._phase is Phase.LEFT

    def leave(self, now: float, *, burn: bool) -> None:
        self._burns = self._burns or burn or self._state.is_stale
        if self._phase >= Phase.LEAVING:
            return
        self._since_s = now
        self._state.table.advance(phase=Phase.LEAVING)
        self._state.close("leaving")
        self._tell_all(gone=False)
        if self._burns:
            return
        # A neighbor that answers is alive, and can take the weight.
        table, log = self._state.table, self._state.log
        hello = Hello(members=(table.me,), rooted=self._state.rooted, reply=True)
        takers = [m for m in table.others(alive=True) if m.phase.takes_shares]
        for member in filter(table.can_meet, takers[:_HEIRS_ASKED_MAX]):
            log.send(member.id, member.incarnation, hello)

    def advance(self, now: float) -> None:
        """Move to the next phase if nothing prevents it; never before the peer has finished."""
        if self.has_finished and self._phase is Phase.TRAINING:
            # A peer that had given its swarm up when it finished joins another only now.
            self._state.table.advance(phase=Phase.FINISHED)
        if self._phase < Phase.FINISHED:
            return
        self.due_s = float("inf")
        # No peer settles anything with a stale incarnation.
        open_ones = 0 if self._state.is_stale else self._state.in_flight()
        if self._phase is Phase.FINISHED and self._agreement.is_over and not open_ones:
            self._state.table.advance(phase=Phase.QUIET)
        elif self._state.weight and self._phase in (Phase.LEAVING, Phase.LEFT):
            self._hand_on(now)
        elif self._phase is Phase.LEAVING and not open_ones:
            self._go()

    @property
    def _phase(self) -> Phase:
        return self._state.table.phase

    def _hand_on(self, now: float) -> None:
        state, table = self._state, self._state.table
        met = [m for m in table.live() if m.id != table.id and table.can_meet(m)]
        heirs = [member.id for member in met if member.phase.takes_shares]
        # If no peer takes shares, a newcomer may become a copy.
        newcomers = [m.id for m in met if m.phase is Phase.JOINING and not heirs]
        if (heirs or newcomers) and not self._burns:
            self._push_all(now, heirs, newcomers)
            return
        for shard_state in state.shard_states:
            if shard_state.weight:
                shard_state.log.record(Entry(Kind.BURNED, shard_state.weight))
        if self._phase is Phase.LEAVING and (state.is_stale or not state.in_flight()):
            self._go()

    def _push_all(self, now: float, heirs: list[PeerId], newcomers: list[PeerId]) -> None:
        # First to one heard since, because others may be dead, and this peer must soon be gone.
        state = self._state
        context = RuleContext(state, now, trained=False, merging=False)
        for returned in context.returned:
            state.table.pass_over(returned.peer, now + state.config.retry_s)
        awake = [heir for heir in heirs if state.table.spoke_since(heir, self._since_s)]
        due_s = self._since_s + state.config.gossip_s
        if heirs and now < due_s:
            self.due_s = due_s  # a peer that answers until then is alive
            if state.is_full:
                return  # until then, shares in flight may be settled
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
        state = self._state
        reason = "".join(filter(str.isprintable, state.halted))[:REASON_LENGTH_MAX]
        for member in state.table.others(alive=True):
            state.log.send(member.id, member.incarnation, Leave(gone, reason))


STOPPED = "rumor stop"
"""Value of `EndTraining.by` after a request to stop the swarm."""

_PASSED_ON_MAX = 8
_ASKERS_MAX = 8


class Stops:
    """Requests to stop, which the runtime has allowed: obeyed, passed on, and answered."""

    def __init__(self, state: State, leaving: Leaving) -> None:
        self._state = state
        self._leaving = leaving
        self._lives: set[tuple[PeerId, Incarnation]] = set()
        self._stops: list[Stop] = []
        self.askers: dict[PeerId, Incarnation] = {}
        """Senders of requests that are not members, by id: they receive this peer's progress, until
        they send a request that does not name it."""
        self._told: tuple[Phase, bool] | None = None
        self._due_s = 0.0

    def asked(self, envelope: Envelope, body: Stop, now: float) -> None:
        state = self._state
        if state.log.account.life not in body.lives:
            self.askers.pop(envelope.source, None)
            return
        if not self._stops and state.table.phase <= Phase.TRAINING:
            state.log.emit(EndTraining(STOPPED))
        # A later request includes peers that were unknown when the one before was made.
        if not self._lives.issuperset(body.lives):
            self._lives.update(body.lives)
            self._stops = [each for each in self._stops if not {*each.lives} <= {*body.lives}]
            self._stops.append(body)
            self._due_s = now
            self.wake(now)
        if state.table.member(envelope.source) is None and len(self.askers) < _ASKERS_MAX:
            self.askers[envelope.source] = envelope.source_incarnation
        if envelope.source in self.askers:
            self._told = (state.table.phase, self._leaving.done)
            self._answer(envelope.source, self._told)

    def wake(self, now: float) -> None:
        """Pass requests on to peers that still train, again in each gossip interval."""
        if not self._stops or now < self._due_s:
            return
        self._due_s = now + self._state.config.gossip_s
        table = self._state.table
        late = [m for m in table.others(alive=True) if m.phase <= Phase.TRAINING]
        late = [m for m in late if (m.id, m.incarnation) in self._lives]
        # Starting after this peer's id, so that not all pass it on to the same few.
        late.sort(key=lambda member: (member.id < table.id, member.id))
        for member in late[:_PASSED_ON_MAX]:
            for stop in self._stops:
                if (member.id, member.incarnation) in stop.lives:
                    self._state.log.send(member.id, member.incarnation, stop)

    def follow(self) -> None:
        """Report to the requesters when this peer has made progress."""
        told = (self._state.table.phase, self._leaving.done)
        if told != self._told:
            for asker in self.askers:
                self._answer(asker, told)
            self._told = told

    def _answer(self, asker: PeerId, told: tuple[Phase, bool]) -> None:
        state, (phase, done) = self._state, told
        answer = Stopping("", state.weight, phase, state.table.step, done)
        state.log.send(asker, self.askers[asker], answer)
