"""Joining: a peer founds a swarm, or becomes a copy of a donor in one.

A peer without seed addresses founds at once, or after a roll call once all founders are there. If
newcomers find only each other, the one with the smallest id founds. After a longer wait, so does a
peer that returns with a checkpoint: swarms founded twice from one anchor are one swarm.

A join, step by step:

1. `Joining.start` greets the seed addresses; `Protocol.wake` repeats that until one answers.
2. A member answers with its view (`Membership.greeted`), from which the newcomer learns of others.
3. `Joining.tick` sends ASK to a member that holds weight. At its next step, that donor gives a
   copy: `StateTransfer.give` pushes a share that carries everything a member needs.
4. The newcomer mixes the first copy of each shard with a fraction of 1 (`Joining.take_copy`), is
   TRAINING from then on, and announces its phase.

A donor refers half of the waiting newcomers to each that has just joined, so that the number of
donors doubles with every copy.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ..effects.effects import Dismiss, Greet, Halt, Part
from ..effects.events import Founded, Joined
from ..effects.ledger import Entry, Kind
from ..membership.dialing import ReconnectBackoff, SeedDialer
from ..membership.table import MemberTable
from ..types import PeerId
from ..weight import ONE, WEIGHT_MIN, half
from ..wire.formats import parse_wire
from ..wire.messages import Ask, Hello, Member, Phase, Refer
from .context import RuleContext
from .state import State

__all__ = ["NEWCOMERS_MAX", "Joining", "StateTransfer"]

NEWCOMERS_MAX = 16
"""Newcomers that are given a copy at a time: each takes half of the weight."""

_EVER = -1e300

_CLOSED = (
    "a swarm that trains with {} admits no peers once it has started: start all its peers "
    "together (founders, on the command line --founders), or use a rule that can, such as gosgd"
)


class Joining:
    """The first phases of a peer: seeking, joining."""

    def __init__(
        self,
        state: State,
        anchor: bytes | Callable[[], bytes],
        rng: Callable[[], np.random.Generator],
    ) -> None:
        self._state = state
        self._anchor = anchor
        self._rng = rng
        self._seeds: tuple[str, ...] = ()
        self._founders = 1
        self._started = False
        self._returns = False
        self._since_s = 0.0
        self._donor: PeerId | None = None
        self._asked_s = 0.0
        self._said_s = 0.0
        self._was_given = False
        config = state.config
        backoff = ReconnectBackoff(
            config.seek_s, config.redial_s_max, lambda: float(self._rng().random())
        )
        self._dialer = SeedDialer(config, backoff)

    def _enter_own(self) -> None:
        if not isinstance(self._anchor, bytes):
            self._anchor = self._anchor()
        self._state.enter(self._anchor)

    @property
    def may_adopt(self) -> bool:
        """True if this peer adopts the swarm of the first peer that it meets."""
        return self._founders == 1

    def start(
        self, now: float, seeds: Sequence[str], founders: int, *, returns: bool = False
    ) -> None:
        """Start to look for a swarm, or found one if no seed is given."""
        self._seeds = tuple(dict.fromkeys([*self._seeds, *seeds]))
        # A later call only adds addresses: a peer that gave its swarm up does not found another.
        if not self._started:
            self._started, self._since_s = True, now
            self._founders = 1 if returns else founders
            if returns:
                # Its earlier incarnation accepted shares of this swarm.
                self._returns = self._state.rooted = True
                self._enter_own()
            if self._founders == 1 and not self._seeds:
                self._found()

    def tick(self, now: float) -> None:
        """Found, or ask a donor, if it is time."""
        if not self._started:
            return
        if self._state.table.phase is Phase.SEEKING and self._founders > 1:
            late = now - self._since_s >= self._state.config.roll_s
            # A founder that was there and has gone also answers the roll.
            if late or len(self._state.table) >= self._founders:
                self._found()
        else:
            self._seek_donor(now)

    def hello(self, *, reply: bool, alone: bool = False) -> Hello:
        """Return a HELLO about this peer and, unless *alone*, the peers that it knows."""
        table = self._state.table
        # During a roll call no peer has left yet, so hearsay cannot keep a name alive.
        calls = table.phase is Phase.SEEKING and self._founders > 1
        if alone:
            return Hello(members=(table.me,), rooted=self._state.rooted, reply=reply)
        assert isinstance(table, MemberTable)
        members = table.members(unconfirmed=calls)
        clock = table.clock.rows_beside({m.id: m.step for m in members})
        return Hello(members=members, clock=clock, rooted=self._state.rooted, reply=reply)

    def take_copy(self, context: RuleContext, closed_by: str = "") -> None:
        """Become a copy of the donor whose shares have come, once there is one of each shard."""
        state = self._state
        if closed_by:
            if state.table.phase is Phase.JOINING:
                state.log.emit(Halt(_CLOSED.format(closed_by)))
            return
        donor, others = "", []
        for share in context.shares():
            shard_state = state.shard_states[share.id.shard]
            # One share of each shard makes a copy; any more would blend two models.
            if shard_state.copied:
                others.append(share)
                continue
            context.mix(share)
            donor, shard_state.copied, shard_state.anchored = share.sender, True, share.form.anchor
        if donor and all([each.copied for each in state.shard_states]):
            if all([each.anchored for each in state.shard_states]):
                state.anchor = state.log.swarm
            state.enter(state.log.swarm)
            state.table.advance(phase=Phase.TRAINING)
            state.log.emit(Joined(donor))
        else:
            # While these are undecided, their donor cannot send what is still missing.
            for share in others:
                context.refuse(share, "of this shard there is a copy")

    def start_over(self, swarm: bytes, now: float) -> None:
        """Give up the swarm and look for a donor in another *swarm*."""
        state = self._state
        state.refuse_all("another swarm")
        for shard_state in state.shard_states:
            shard_state.copied = shard_state.anchored = False
            shard_state.outbox.renounced.update(shard_state.outbox.transfers)
            if shard_state.weight:
                shard_state.log.record(Entry(Kind.BURNED, shard_state.weight))
        table = state.table
        assert isinstance(table, MemberTable)
        for member in (*table.others(alive=True), *table.others(alive=False)):
            # Peers that also change to the other swarm will say so.
            table.disown(member.id)
            state.log.emit(Part(member.id))
        state.enter(swarm)
        state.swarm_is_rooted = False
        table.forget_swarm()
        state.table.advance(phase=Phase.SEEKING)
        self._founders = 1
        self._since_s, self._donor = now, None

    def _found(self) -> None:
        state = self._state
        self._enter_own()
        if self._founders > 1 and isinstance(state.table, MemberTable):
            # During the roll call, members of other swarms may also have said hello.
            state.table.note_founders()
        for shard_state in state.shard_states:
            shard_state.log.record(Entry(Kind.FOUNDED, ONE))
        state.table.advance(phase=Phase.TRAINING)
        state.log.emit(Founded())

    def greet_seeds(self, now: float) -> None:
        """Send a HELLO to seed addresses at which no peer is known yet, with back-off."""
        if not self._seeds:
            return
        # Without back-off while it seeks, since a user waits for it to start.
        seeks = self._state.table.phase <= Phase.JOINING
        greet = self._dialer.seek if seeks else self._dialer.go_on
        greeted, over = greet(self._silent_seeds(), now)
        for address in over:
            self._state.log.emit(Dismiss(address))
        if greeted:
            envelope = self._state.log.envelope("", 0, self.hello(reply=True))
        for address in greeted:
            self._state.log.emit(Greet(address, envelope))

    def _silent_seeds(self) -> list[str]:
        known = {a for member in self._state.table.live() for a in member.addresses}
        return [address for address in self._seeds if address not in known]

    def _seek_donor(self, now: float) -> None:
        table = self._state.table
        others = table.others(alive=True)
        donors = [m for m in others if m.phase.takes_shares and table.can_meet(m)]
        if donors:
            self._since_s = now
            self._ask(donors, now)
        elif not self._returns and any(m.id in self._state.returning for m in others):
            # The returning peer brings what was learned before, and founds if any peer does.
            self._since_s = now
        elif self._may_found(others, now):
            self._found()

    def _may_found(self, others: Sequence[Member], now: float) -> bool:
        config, table = self._state.config, self._state.table
        waited_s = now - self._since_s
        # A holder of weight may be at an address that was not tried yet.
        if not self._dialer.is_through(self._silent_seeds(), now):
            return False
        # A peer that has met no other keeps looking: a mistyped address must not found a swarm.
        if len(table) == 1:
            return self._returns and waited_s >= config.found_alone_s
        newcomers = all(member.phase <= Phase.JOINING for member in others)
        returning = self._state.returning
        rivals = [m for m in others if not self._returns or m.id in returning]
        first = all(table.id < member.id for member in rivals)
        return newcomers and first and waited_s >= config.found_s

    def _ask(self, donors: Sequence[Member], now: float) -> None:
        state = self._state
        if state.expects_copy():
            self._was_given = True
            return
        names = state.table.reachable([member.id for member in donors], now)
        reachable = [member for member in donors if member.id in names]
        failed, self._was_given = self._was_given, False
        patient = not failed and now - self._asked_s < state.config.stall_s
        donor = next((member for member in reachable if member.id == self._donor), None)
        if patient and donor is not None:
            if now - self._said_s >= state.config.gossip_s:
                self._say(donor, now)  # it may have been lost
            return
        # A donor that broke off in the middle is asked again only if it is the only one.
        others = [member for member in reachable if member.id != self._donor]
        choice = (others if failed or not patient else reachable) or reachable or donors
        choice = [
            member for member in choice if state.table.spoke_since(member.id, _EVER)
        ] or choice
        self._ask_one(choice[int(self._rng().integers(len(choice)))], now)

    def _ask_one(self, donor: Member, now: float) -> None:
        self._donor, self._asked_s = donor.id, now
        self._state.table.advance(phase=Phase.JOINING)
        if not self._state.table.spoke_since(donor.id, _EVER):
            # A peer known from hearsay may not know this peer either.
            hello = self.hello(reply=True, alone=True)
            self._state.log.send(donor.id, donor.incarnation, hello)
        self._say(donor, now)

    def _say(self, donor: Member, now: float) -> None:
        state, self._said_s = self._state, now
        is_rounded = parse_wire(state.config.wire).needs_anchor and not state.requirements.bare
        needs_anchor = is_rounded and not state.is_anchored
        state.log.send(donor.id, donor.incarnation, Ask(needs_anchor))

    def referred(self, sender: PeerId, body: Refer, now: float) -> None:
        state = self._state
        named = [state.table.member(member.id) for member in body.donors]
        donors = [m for m in named if m is not None and m.phase.takes_shares]
        waits = state.table.phase is Phase.JOINING and self._donor == sender
        if waits and donors and not state.expects_copy():
            self._ask_one(donors[int(self._rng().integers(len(donors)))], now)


class StateTransfer:
    """Copies for newcomers that have asked this peer."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.asking: dict[PeerId, Ask] = {}
        self.given: dict[PeerId, None] = {}

    def forget(self, peer: PeerId) -> None:
        self.asking.pop(peer, None)
        self.given.pop(peer, None)

    def give(self, context: RuleContext) -> None:
        """Send copies, with half of the weight each."""
        state = self._state
        self.given = {peer: None for peer in self.given if state.table.is_alive(peer)}
        for peer, asked in tuple(self.asking.items()):
            member = state.table.member(peer)
            if member is None or member.phase > Phase.JOINING:
                del self.asking[peer]
            elif peer not in context.outstanding() and self._may_give(context, peer):
                weights = {each.shard: half(each.weight) for each in state.shard_states}
                if min(weights.values()) >= WEIGHT_MIN:
                    context.push_shards(peer, weights, copy=True, anchor=asked.anchor)
                    del self.asking[peer]
                    self.given[peer] = None
                    state.gave = True
        sent = [peer for peer in self.given if not state.shares_memory(peer)]
        state.copies = self._is_large and self._is_sent(sent)

    def follow(self, peer: PeerId) -> None:
        """If a newcomer has its copy, refer half of the waiting newcomers to it."""
        if peer not in self.given:
            return
        member = self._state.table.member(peer)
        if member is None or not member.phase.takes_shares:
            return
        del self.given[peer]
        table = self._state.table
        waiting = [m for m in map(table.member, self.asking) if m is not None]
        for newcomer in waiting[1::2]:
            if newcomer.addresses or member.addresses:
                del self.asking[newcomer.id]
                refer = Refer((member,))
                self._state.log.send(newcomer.id, newcomer.incarnation, refer)

    def _may_give(self, context: RuleContext, peer: PeerId) -> bool:
        if len(self.given) >= NEWCOMERS_MAX:
            return False
        # Large copies are sent one at a time, since two would only slow each other; newcomers on
        # this machine can all read one copy at once.
        if self._is_large:
            if self._state.shares_memory(peer):
                return context.can_push(peer, lent=True)
            if self._is_sent(self.given):
                return False
        return context.can_push(peer)

    def _is_sent(self, peers: Collection[PeerId]) -> bool:
        """Return True if a copy is on its way to one of *peers* that still answers."""
        outboxes = [each.outbox for each in self._state.busy_shards]
        return any(
            peer in outbox.transfers and not outbox.transfers[peer].is_unanswered
            for outbox in outboxes
            for peer in peers
        )

    @property
    def _is_large(self) -> bool:
        state = self._state
        return state.schema.copy_bytes > state.config.inline_bytes_max
