"""How a peer comes to belong to a swarm: it founds, or it becomes a copy of a donor.

A peer that was given no address founds at once. One of a roll call founds when all founders are
there. A newcomer asks a holder of weight for its first share; where newcomers find nobody but one
another, the one with the smallest id founds.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from .effects import Founded, Greet, Joined
from .ledger import Entry, Kind
from .messages import Ask, Hello, Member, PeerId, Phase
from .state import State
from .weight import ONE
from .wire import parse_wire

__all__ = ["Admission"]


class Admission:
    """The first phases of one peer's life.

    Args:
        state: What the protocol remembers.
        anchor: Hash of the vector this peer would found with.
        rng: Opens the stream for the choice of a donor.
    """

    def __init__(self, state: State, anchor: bytes, rng: Callable[[], np.random.Generator]) -> None:
        self._state = state
        self._anchor = anchor
        self._open_rng = rng
        self._seeds: tuple[str, ...] = ()
        self._founders = 1
        self._started = False
        self._since_s = 0.0
        self._donor: PeerId | None = None
        self._asked_s = 0.0

    @cached_property
    def _rng(self) -> np.random.Generator:
        return self._open_rng()

    @property
    def may_adopt(self) -> bool:
        """Whether the swarm of whoever is met first becomes this peer's own."""
        return self._founders == 1

    def start(self, now: float, seeds: Sequence[str], founders: int) -> None:
        """Begin to look for a swarm, or found one where there is nobody to look for.

        Args:
            now: Seconds.
            seeds: Addresses to greet; more may be added by calling again.
            founders: How many peers found together; 1 for a peer that founds alone or joins.
        """
        self._seeds = tuple(dict.fromkeys([*self._seeds, *seeds]))
        # Asked again, it only hears of more addresses: one that gave its swarm up founds no other.
        if not self._started:
            self._started, self._since_s, self._founders = True, now, founders
            if founders == 1 and not self._seeds:
                self._found()

    def tick(self, now: float) -> None:
        """See whether it is time to found or to ask; called every `seek_s` until then."""
        if not self._started:
            return
        if self._state.roster.phase is Phase.SEEKING and self._founders > 1:
            late = now - self._since_s >= self._state.config.roll_s
            # One that was there and is gone already answers the roll, too.
            if late or len(self._state.roster) >= self._founders:
                self._found()
        else:
            self._seek_donor(now)

    def hello(self, *, reply: bool, alone: bool = False) -> Hello:
        """What this peer says of itself and, unless *alone*, of those it knows."""
        roster = self._state.roster
        members = (roster.me,) if alone else roster.members()
        return Hello(members=members, rooted=self._state.rooted, reply=reply)

    def joined(self, donor: PeerId) -> None:
        """Note that the first share was mixed, so that this peer is a copy of its donor."""
        self._state.roster.advance(phase=Phase.TRAINING)
        self._state.agenda.ask(Joined(donor))

    def start_over(self, swarm: bytes, now: float) -> None:
        """Give up what was founded and look for a donor in another *swarm*."""
        state = self._state
        state.refuse_all("another swarm")
        for lane in state.lanes:
            lane.copied = lane.anchored = False
            if lane.weight:
                lane.agenda.record(Entry(Kind.BURNED, lane.weight))
        state.enter(swarm)
        state.roster.advance(phase=Phase.SEEKING)
        self._founders = 1
        self._since_s = now

    def _found(self) -> None:
        state = self._state
        state.enter(self._anchor)
        for lane in state.lanes:
            lane.agenda.record(Entry(Kind.FOUNDED, ONE))
        state.roster.advance(phase=Phase.TRAINING)
        state.agenda.ask(Founded())

    def greet_seeds(self) -> None:
        """Say hello to the given addresses where nobody is known yet."""
        if not self._seeds:
            return
        known = {a for member in self._state.roster.live() for a in member.addresses}
        for address in self._seeds:
            if address not in known:
                envelope = self._state.agenda.envelope("", 0, self.hello(reply=True))
                self._state.agenda.ask(Greet(address, envelope))

    def _seek_donor(self, now: float) -> None:
        state = self._state
        others = state.roster.others(alive=True)
        donors = [member for member in others if member.phase.takes_shares]
        if donors:
            self._since_s = now
            self._ask(donors, now)
        elif self._may_found(others) and now - self._since_s >= state.config.found_s:
            self._found()

    def _may_found(self, others: Sequence[Member]) -> bool:
        # One that never met anybody keeps looking: a mistyped address must not found a swarm.
        met_somebody = len(self._state.roster) > 1
        newcomers = all(member.phase <= Phase.JOINING for member in others)
        first = all(self._state.roster.id < member.id for member in others)
        return met_somebody and newcomers and first

    def _ask(self, donors: Sequence[Member], now: float) -> None:
        state = self._state
        if any(lane.inbox.expects_copy() for lane in state.lanes):
            return
        patient = now - self._asked_s < state.config.stall_s
        if patient and any(member.id == self._donor for member in donors):
            return
        donor = donors[int(self._rng.integers(len(donors)))]
        self._donor, self._asked_s = donor.id, now
        state.roster.advance(phase=Phase.JOINING)
        needs_anchor = parse_wire(state.config.wire).needs_anchor and not state.is_anchored
        state.agenda.send(donor.id, donor.incarnation, Ask(needs_anchor))
