"""Anti-entropy: HELLO and LEAVE messages, and their effects on the member table.

A death, step by step:

1. Each peer raises its heartbeat once per gossip interval and sends its view to a random member.
   `MemberTable.tick` finds heartbeats that stand still.
2. After `suspect_s` the member is suspected (`PeerSuspected`): pushes skip it, and it is asked.
3. After `dead_s` it is considered dead (`PeerDied`). `Membership._strand` strands the shares in
   escrow toward it: their weight is neither here nor there until its owner is heard again.
4. Dead members are dialed with back-off. A member that answers recovers, and is asked what became
   of each stranded share (`EscrowEvent.HEARD`). A later incarnation proves that the old one is
   over: the escrow is written off, in the ledger as well.

A launcher that has seen a process die tells the others at once, see `PeerRuntime._take_leave_of`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..effects.effects import Halt, Part
from ..effects.events import PeerDied, PeerLeft, PeerMet, PeerRecovered, PeerSuspected
from ..exchange.transfer import STRANDED, EscrowEvent
from ..membership.dialing import ReconnectBackoff
from ..membership.table import Change, MemberTable
from ..types import Incarnation, PeerId
from ..wire.messages import Envelope, Hello, Leave, Member, Phase, Refer
from .join import Joining
from .state import State

__all__ = ["Membership"]

_OUTLIVED = "another peer called {} has started since: each needs a name of its own"

_TOLD_MAX = 64
"""Peers that a peer messages at once: if all messaged all others, it would be n^2 messages."""

_DIALS_MAX = 8

_DEAD_MAX = 64
"""Dead peers that are remembered: each keeps a socket."""

_OUTLIVED_BY_MAX = 8
"""Peers whose word is always enough that a later incarnation of this peer runs."""


class Membership:
    """Keeps the member table up to date, and reports changes to outbox and inbox."""

    def __init__(
        self,
        state: State,
        table: MemberTable,
        joining: Joining,
        rng: Callable[[], np.random.Generator],
    ) -> None:
        self._state = state
        self._table = table
        self._joining = joining
        self._rng = rng
        config = state.config
        self._backoff = ReconnectBackoff(
            config.gossip_s, config.redial_s_max, lambda: float(self._rng().random())
        )
        self._outlived_by: set[PeerId] = set()
        self.due_s = float("-inf")

    def hears(self, envelope: Envelope, now: float) -> bool:
        """Note a sign of life of a sender; return False if its incarnation is stale."""
        sender, incarnation = envelope.source, envelope.source_incarnation
        if not (self._table.heard(sender, incarnation, now) or self.outlasts(envelope, now)):
            return False
        self.heard(sender, incarnation, now)
        return True

    def heard(self, peer: PeerId, incarnation: Incarnation, now: float) -> None:
        """Act on a message of this incarnation of *peer*: earlier ones will not be heard again."""
        for shard_state in self._state.busy_shards:
            transfer = shard_state.outbox.transfers.get(peer)
            if transfer is None:
                continue
            if transfer.incarnation < incarnation:
                shard_state.outbox.on(peer, EscrowEvent.LATER_INCARNATION, now)
            elif transfer.state in STRANDED and transfer.incarnation == incarnation:
                member = self._table.member(peer)
                gone = member is None or member.phase is Phase.LEFT
                event = EscrowEvent.HEARD_GONE if gone else EscrowEvent.HEARD
                shard_state.outbox.on(peer, event, now)
        self._follow_changes(now)

    def greeted(self, envelope: Envelope, body: Hello, now: float) -> None:
        """Merge a HELLO's view into the table, and answer with this peer's own if requested."""
        if body.reply:
            # A HELLO that names only its sender, to a known peer, asks whether that peer is alive.
            asks_after_me = len(body.members) == 1 and envelope.destination_incarnation > 0
            hello = self._joining.hello(reply=False, alone=asks_after_me)
            self._state.log.send(envelope.source, envelope.source_incarnation, hello)
        source, incarnation = envelope.source, envelope.source_incarnation
        before = self._table.member(source)
        for peer, steps in body.clock:
            self._table.count(peer, steps, source, now)
        for member in self._table.absorb(body.members, source, now):
            direct = member.id == source and member.incarnation == incarnation
            self._learn(member, now, direct=direct)
        self._relay(before, source)
        self._note_roots(envelope, body)
        self._note_stale(envelope, body)

    def _relay(self, before: Member | None, source: PeerId) -> None:
        """Pass on the progress in merging of a peer that only dials out to others that do."""
        # They wait for one another's next stage, and the next view may take long to bring it.
        table = self._table
        now = table.member(source)
        if now is None or now.addresses or now.phase < Phase.FINISHED:
            return
        if before is not None and (before.phase, before.merge) == (now.phase, now.merge):
            return
        if table.id != next((m.id for m in table.live() if m.addresses), None):
            return
        hello = Hello(members=(table.me, now), rooted=self._state.rooted, reply=False)
        others = [m for m in table.others(alive=True) if not m.addresses and m.id != source]
        for member in self._sample(others):
            self._state.log.send(member.id, member.incarnation, hello)

    def _note_stale(self, envelope: Envelope, body: Hello) -> None:
        """Halt if most live peers have directly heard a later incarnation of this peer's name."""
        # No single peer can end another's training: a peer that knows the later incarnation only
        # from hearsay still listens to this one, and does not send `answer_stale`.
        state, table = self._state, self._table
        last = body.members[-1] if len(body.members) == 2 and not body.reply else None
        if last is None or last.id != table.id or last.incarnation <= table.me.incarnation:
            return
        live = [m.id for m in table.others(alive=True)]
        # Invented names are free: only those of live peers are remembered.
        self._outlived_by = {*self._outlived_by, envelope.source}.intersection(live)
        enough = min(_OUTLIVED_BY_MAX, len(live) // 2 + 1)
        if (
            len(self._outlived_by) >= enough
            and self._table.phase > Phase.JOINING
            and not state.is_stale
        ):
            state.is_stale = True
            state.log.emit(Halt(_OUTLIVED.format(table.id)))

    def _note_roots(self, envelope: Envelope, body: Hello) -> None:
        state = self._state
        if not body.rooted:
            state.returning.discard(envelope.source)
        elif envelope.swarm == state.log.swarm:
            state.swarm_is_rooted = True
            # A peer with part of a copy is also rooted, but not while it seeks.
            seeks = body.members and body.members[0].phase is Phase.SEEKING
            if seeks and self._table.member(envelope.source) is not None:
                state.returning.add(envelope.source)
            else:
                state.returning.discard(envelope.source)

    def referred(self, body: Refer, now: float) -> None:
        for member in body.donors:
            self._learn(member, now, direct=False)

    def outlasts(self, envelope: Envelope, now: float) -> bool:
        """Return True if a stale incarnation is running, and the later one is dead."""
        # A member does not start over for a later incarnation: peers that remember one would ignore
        # the member forever.
        body, life = envelope.body, (envelope.source, envelope.source_incarnation)
        own = body.members[0] if isinstance(body, Hello) and body.members else None
        if own is None or (own.id, own.incarnation) != life:
            return False
        if not self._table.outlasts(own, now):
            return False
        self._forget(own.id)
        for shard_state in self._state.busy_shards:
            shard_state.outbox.on(own.id, EscrowEvent.LATER_INCARNATION, now)
        return True

    def answer_stale(self, envelope: Envelope) -> None:
        """Answer the HELLO of a stale incarnation with the entry of the later one."""
        table, source = self._table, envelope.source
        member = table.member(source)
        if isinstance(envelope.body, Hello) and envelope.body.reply and member is not None:
            hello = Hello(members=(table.me, member), rooted=self._state.rooted, reply=False)
            self._state.log.send(source, envelope.source_incarnation, hello)

    def take_leave_of(self, peer: PeerId, body: Leave, now: float) -> None:
        state = self._state
        if (known := self._table.known.get(peer)) is not None:
            known.reason = body.reason
        if body.gone:
            self._table.left(peer)
            self._follow_changes(now)
        else:
            self._table.leaving(peer)
            for shard_state in state.busy_shards:
                shard_state.outbox.on(peer, EscrowEvent.LEAVING, now)

    def wake(self, now: float) -> None:
        """Exchange views with a random peer, if due."""
        if now < self.due_s or self._table.phase is Phase.LEFT:
            return
        self.due_s = now + self._state.config.gossip_s
        self._table.tick(now)
        self._follow_changes(now)
        if self._table.phase > Phase.JOINING:  # until then they are greeted more often
            self._joining.greet_seeds(now)
        table = self._table
        partners = [m for m in table.others(alive=True) if table.can_meet(m)]
        if partners:
            self._say_hello(partners[int(self._rng().integers(len(partners)))].id, reply=True)
        # Dead peers are dialed forever: otherwise a healed partition would stay split.
        for member in table.dead()[_DEAD_MAX:]:
            if not any(member.id in each.outbox.transfers for each in self._state.shard_states):
                table.disown(member.id)
                self._follow(Part(member.id), now)
        dead = [m.id for m in table.others(alive=False) if table.can_meet(m)]
        for peer in self._backoff.due(dead, now, _DIALS_MAX):
            self._say_hello(peer, reply=True)

    def tell_phase(self) -> None:
        """Announce this peer's new phase to live peers, or to a sample of many."""
        for member in self._sample(self._table.others(alive=True)):
            self._say_hello(member.id, reply=False, alone=True)

    def _sample(self, others: Sequence[Member]) -> Sequence[Member]:
        if len(others) <= _TOLD_MAX:
            return others
        drawn = self._rng().choice(len(others), _TOLD_MAX, replace=False, shuffle=False)
        return [others[index] for index in sorted(drawn.tolist())]

    def _learn(self, member: Member, now: float, *, direct: bool) -> None:
        self._table.learn(member, now, direct=direct)
        self._follow_changes(now, direct=direct)

    def _follow_changes(self, now: float, *, direct: bool = True) -> None:
        table = self._table
        for change in table.take_changes():
            self._follow(change, now, direct=direct)
        while table.doubts:
            self._say_hello(table.doubts.pop(), reply=True, alone=True)

    def _follow(self, change: Change, now: float, *, direct: bool = True) -> None:
        self._state.log.emit(change)
        match change:
            case PeerMet():
                if direct:
                    self.heard(change.peer, self._table.incarnation(change.peer), now)
                # In a large swarm, two heartbeats confirm a peer with fewer messages.
                if not direct and len(self._table) <= _TOLD_MAX:
                    self._say_hello(change.peer, reply=True, alone=True)
            case Part():
                self._forget(change.peer)
            case PeerSuspected():
                self._say_hello(change.peer, reply=True, alone=True)
            case PeerRecovered():
                # The failure that kept one peer away may have kept others away as well.
                self._backoff.hurry()
            case PeerDied():
                self._strand(change.peer, now)
            case PeerLeft():
                # A later incarnation, unknown until now, may have left.
                if direct:
                    self.heard(change.peer, self._table.incarnation(change.peer), now)
                self._strand(change.peer, now)

    def _strand(self, peer: PeerId, now: float) -> None:
        for shard_state in self._state.busy_shards:
            shard_state.outbox.on(peer, EscrowEvent.DIED, now)

    def _forget(self, peer: PeerId) -> None:
        self._state.links.pop(peer, None)
        self._state.returning.discard(peer)

    def _say_hello(self, peer: PeerId, *, reply: bool, alone: bool = False) -> None:
        member = self._table.member(peer)
        if member is None or not self._table.can_meet(member):
            return
        hello = self._joining.hello(reply=reply, alone=alone)
        self._state.log.send(peer, self._table.incarnation(peer), hello)
