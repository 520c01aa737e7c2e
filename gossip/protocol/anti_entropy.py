"""How the view of a peer is kept: hellos, goodbyes, and what follows from either."""

from collections import deque
from collections.abc import Callable
from functools import cached_property

import numpy as np

from ..effects.effects import Halt, Part
from ..effects.events import (
    PeerDied,
    PeerLeft,
    PeerMet,
    PeerRecovered,
    PeerSuspected,
    StaleIncarnation,
    ViewFull,
)
from ..membership.dialing import DeadPeerSockets, ReconnectBackoff
from ..membership.table import Change
from ..wire.messages import Envelope, Hello, Incarnation, Leave, Member, PeerId, Phase, Refer
from .join import Joining
from .state import State

__all__ = ["Eviction", "Membership"]


class Eviction:
    """Lets go of the dead where a newcomer would find no place.

    Args:
        state: What the protocol remembers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        # Who may go, in order; None where that is to be looked up. A stranger can name thousands
        # in one message, and sorting all that are known for each would keep this peer busy.
        self._spare: deque[PeerId] | None = None
        self._said = False

    def tick(self) -> None:
        """Note that time has passed, so that others may go now; once per gossip interval."""
        self._spare = None

    def make(self, member: Member, now: float) -> PeerId | None:
        """Forget somebody, where *member* is new and finds no place.

        Returns:
            Who was forgotten.
        """
        roster = self._state.roster
        if not roster.lacks_room_for(member, now):
            return None
        if self._spare is None:
            self._spare = deque(roster.spare())
        while self._spare:
            peer = self._spare.popleft()
            # It may be back, or gone, since that was looked up.
            if roster.is_known(peer) and not roster.is_alive(peer) and not self._is_owed(peer):
                roster.disown(peer)
                self._state.agenda.ask(Part(peer))
                return peer
        if not self._said:
            self._said = True
            self._state.agenda.ask(ViewFull(len(roster)))
        return None

    def _is_owed(self, peer: PeerId) -> bool:
        return any([lane.outbox.is_busy(peer) for lane in self._state.lanes])


_TOLD_MAX = 64
"""Peers that one speaks to at once: n peers that all told all others would be n^2 messages."""

_REDIALS_MAX = 8
"""Dead peers that are dialled at one tick: half of a swarm may be cut off at once."""


class Membership:
    """Keeps the roster, and lets outbox and inbox know whose fortunes have changed.

    Args:
        state: What the protocol remembers.
        admission: Knows what to say of oneself.
        rng: Opens the stream for the choice of whom to exchange views with.
    """

    def __init__(
        self, state: State, admission: Joining, rng: Callable[[], np.random.Generator]
    ) -> None:
        self._state = state
        self._admission = admission
        self._open_rng = rng
        config = state.config
        self._redial = ReconnectBackoff[PeerId](
            config.gossip_s, config.redial_s_max, lambda: float(self._rng.random())
        )
        self._absent = DeadPeerSockets(state.agenda)
        self._room = Eviction(state)
        self.told = state.roster.phase
        """The phase that all live peers were told of."""
        self.due_s = float("-inf")
        """When `wake` has something to do next, seconds."""

    @cached_property
    def _rng(self) -> np.random.Generator:
        return self._open_rng()

    @property
    def _phase(self) -> Phase:
        return self._state.roster.phase

    def heard(self, peer: PeerId, incarnation: Incarnation, now: float) -> None:
        """Act on a sign of life: of this life of *peer*, and none before it."""
        for lane in self._state.lanes:
            lane.inbox.forget(peer, incarnation)
            if lane.outbox.is_busy(peer):
                gone = self._state.roster.has_left(peer)
                lane.outbox.heard(peer, incarnation, now, gone=gone)
        if self._state.roster.news:
            self._follow_news(now)

    def greeted(self, envelope: Envelope, body: Hello, now: float) -> None:
        """Take in somebody's view, and answer with the own one where that is wanted."""
        if body.reply:
            # Who speaks of itself alone, to a peer that it names, only asks whether that lives.
            asks_after_me = len(body.members) == 1 and envelope.destination_incarnation > 0
            hello = self._admission.hello(reply=False, alone=asks_after_me)
            self._state.agenda.send(envelope.source, envelope.source_incarnation, hello)
        for peer, steps in body.clock:
            self._state.roster.count(peer, steps)
        for member in self._state.roster.absorb(body.members, now):
            self._learn(member, now, direct=member.id == envelope.source)
        self._note_roots(envelope, body)

    def _note_roots(self, envelope: Envelope, body: Hello) -> None:
        state = self._state
        if not body.rooted:
            state.returning.discard(envelope.source)
        elif envelope.swarm == state.agenda.swarm:
            state.swarm_is_rooted = True
            # One that has a part of a copy is rooted, too, but not while it seeks.
            seeks = body.members and body.members[0].phase is Phase.SEEKING
            if seeks and state.roster.is_known(envelope.source):
                state.returning.add(envelope.source)
            else:
                state.returning.discard(envelope.source)

    def referred(self, body: Refer, now: float) -> None:
        """Take in who has a share to give, as hearsay."""
        for member in body.donors:
            self._learn(member, now, direct=False)

    def outlived_by(self, envelope: Envelope) -> None:
        """Tell an earlier life of a peer, which wants to know who is there, of the later one."""
        roster, source = self._state.roster, envelope.source
        member = roster.member(source)
        if isinstance(envelope.body, Hello) and envelope.body.reply and member is not None:
            hello = Hello(members=(roster.me, member), rooted=self._state.rooted, reply=False)
            self._state.agenda.send(source, envelope.source_incarnation, hello)

    def take_leave_of(self, peer: PeerId, body: Leave, now: float) -> None:
        """Settle with a peer that is going, or is gone."""
        state = self._state
        if body.gone:
            for change in state.roster.left(peer):
                self._follow(change, now)
        else:
            state.roster.leaving(peer)
            for lane in state.lanes:
                lane.outbox.ask_about(peer, now)

    def wake(self, now: float) -> None:
        """Exchange views with somebody, where that is due."""
        if now < self.due_s or self._phase is Phase.LEFT:
            return
        self.due_s = now + self._state.config.gossip_s
        self._room.tick()
        for change in self._state.roster.tick(now):
            self._follow(change, now)
        if self._phase > Phase.JOINING:  # until then they are greeted more often
            self._admission.greet_seeds(now)
        roster = self._state.roster
        partners = [m for m in roster.others(alive=True) if roster.can_meet(m)]
        if partners:
            self._say_hello(partners[int(self._rng.integers(len(partners)))].id, reply=True)
        # Dead peers are dialled for ever: without it a healed partition would stay split.
        dead = {m.id: m for m in roster.others(alive=False) if roster.can_meet(m)}
        due = self._redial.due(dead, now, _REDIALS_MAX)
        for peer in [*self._absent.tick(), *(p for p in due if self._absent.try_out(dead[p]))]:
            self._say_hello(peer, reply=True)

    def tell_phase(self) -> None:
        """Let live peers know at once where this one has moved on: all, where they are not many."""
        self.told = self._phase
        told = self._state.roster.others(alive=True)
        if len(told) > _TOLD_MAX:
            chosen = self._rng.choice(len(told), _TOLD_MAX, replace=False, shuffle=False)
            told = tuple(told[index] for index in sorted(chosen.tolist()))
        for member in told:
            self._say_hello(member.id, reply=False, alone=True)

    def _learn(self, member: Member, now: float, *, direct: bool) -> None:
        forgotten = self._room.make(member, now)
        if forgotten is not None:
            self._forget(forgotten)
        for change in self._state.roster.learn(member, now, direct=direct):
            self._follow(change, now, direct=direct)
        if self._state.roster.news:
            self._follow_news(now)

    def _follow_news(self, now: float) -> None:
        for change in self._state.roster.take_news():
            self._follow(change, now)

    def _follow(self, change: Change, now: float, *, direct: bool = True) -> None:
        self._state.agenda.ask(change)
        match change:
            case PeerMet():
                self._is_back(change.peer)
                self.heard(change.peer, self._state.roster.incarnation(change.peer), now)
                # In a crowd that meets, two heartbeats confirm a peer with fewer messages.
                if not direct and len(self._state.roster) <= _TOLD_MAX:
                    self._say_hello(change.peer, reply=True, alone=True)
            case Part():
                self._forget(change.peer)
            case PeerSuspected():
                self._say_hello(change.peer, reply=True, alone=True)
            case PeerRecovered():
                # What kept one of them away may have kept others, too.
                self._redial.hurry()
                self._is_back(change.peer)
            case PeerDied():
                self._absent.died(change.peer)
                self._strand(change.peer, now)
            case PeerLeft():
                # It may be a later life that left, and the first that is heard of it.
                self.heard(change.peer, self._state.roster.incarnation(change.peer), now)
                self._strand(change.peer, now)
            case StaleIncarnation() if self._phase > Phase.JOINING and not self._state.outlived:
                self._state.outlived = True
                self._state.agenda.ask(
                    Halt(
                        f"another peer called {self._state.roster.id} has started since: each "
                        "needs a name of its own"
                    )
                )
            case _:
                pass

    def _is_back(self, peer: PeerId) -> None:
        member = self._state.roster.member(peer)
        self._absent.back(peer, member.addresses if member is not None else ())

    def _strand(self, peer: PeerId, now: float) -> None:
        for lane in self._state.lanes:
            lane.outbox.died(peer, now)

    def _forget(self, peer: PeerId) -> None:
        """Keep nothing more of one that has left, or of whom nobody knows any more."""
        self._absent.forget(peer)
        self._state.links.forget(peer)
        self._state.returning.discard(peer)

    def _say_hello(self, peer: PeerId, *, reply: bool, alone: bool = False) -> None:
        member = self._state.roster.member(peer)
        if member is None or not self._state.roster.can_meet(member):
            return
        hello = self._admission.hello(reply=reply, alone=alone)
        self._state.agenda.send(peer, self._state.roster.incarnation(peer), hello)
