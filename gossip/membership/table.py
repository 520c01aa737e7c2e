"""The member table: each peer's view of the swarm, spread by heartbeats.

An entry whose heartbeat stops for a while is *suspected*: pushes skip it, and it is asked. If it
stops for too long, the peer is considered dead, until it is heard or its heartbeat rises. An entry
from hearsay does not count before its owner speaks or its heartbeat has risen twice.

Source: van Renesse, Minsky and Hayden, Middleware 1998 (gossip-style failure detection); Das, Gupta
and Motivala, DSN 2002, section 4.2 (suspicion); Dadgar, Phillips and Currey, "Lifeguard: local
health awareness for more accurate failure detection", DSN-W 2018.
"""

from bisect import insort
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ..config import ProtocolConfig
from ..effects.effects import Meet, Part
from ..effects.events import (
    Event,
    PeerDied,
    PeerLeft,
    PeerMet,
    PeerRecovered,
    PeerSuspected,
    StaleIncarnation,
    ViewFull,
)
from ..types import INCARNATION_AHEAD_MS_MAX, Incarnation, PeerId
from ..wire.messages import HEARTBEAT_MAX, Envelope, Member, Phase
from .entry import RISES_TO_BELIEVE, Known
from .progress import StepCounts

__all__ = ["Change", "LocalHealth", "MemberTable"]

Change = Meet | Part | Event

# A peer that is always late must still notice deaths.
FACTOR_MAX = 8.0

_STALL = 3
"""Intervals without a tick that count as a stall (a long step, SIGSTOP) instead of lateness."""

_SMOOTHING = 0.25


class LocalHealth:
    """Measures how late a peer's own ticks are: if it is late, it receives every heartbeat late."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last_s: float | None = None
        self._late_s = 0.0

    @property
    def factor(self) -> float:
        """Factor by which to extend the timeouts for other peers, at least 1."""
        return min(1.0 + self._late_s / self._interval_s, FACTOR_MAX)

    def ticked(self, now: float) -> float:
        """Note a tick; return how long this peer had stalled, seconds."""
        before, self._last_s = self._last_s, now
        if before is None:
            return 0.0
        late_s = max(now - before - self._interval_s, 0.0)
        counted_s = min(late_s, FACTOR_MAX * self._interval_s)
        self._late_s += _SMOOTHING * (counted_s - self._late_s)
        return late_s if late_s > (_STALL - 1) * self._interval_s else 0.0


class MemberTable:
    """One peer's view of the swarm, including its own entry."""

    def __init__(
        self, me: Member, config: ProtocolConfig, clock: Mapping[PeerId, int] | None = None
    ) -> None:
        self.clock = StepCounts(me.id, clock, config.gossip_s)
        self.id = me.id
        self.me = replace(me, step=self.clock.own)
        self._changes: list[Change] = []
        self.doubts: list[PeerId] = []
        """Peers that must be asked whether hearsay about them is true."""
        self.only: Mapping[PeerId, Member] | None = None
        """None, since strangers may join; see `StaticMemberTable`."""
        self.known: dict[PeerId, Known] = {}
        """Knowledge about each other peer; read-only for callers."""
        self._config = config
        self._health = LocalHealth(config.gossip_s)
        self._started_s: float | None = None
        self._ticked_s = 0.0
        self._outlived_s = float("-inf")
        self._was_full = False
        # Cached, because every draw of a neighbor needs it and few messages change it.
        self._takers: tuple[PeerId, ...] | None = None
        self._order: list[Known] | None = None
        self._outward: Set[PeerId] = frozenset()
        self._founders: dict[PeerId, Incarnation] = {}
        self.strays: dict[PeerId, float] = {}
        """Founders of the same roll call that are in another swarm, since they began with another
        model; with the time until which this peer waits for each to join, seconds."""

    @property
    def phase(self) -> Phase:
        return self.me.phase

    @property
    def step(self) -> int:
        return self.me.step

    @property
    def over(self) -> bool:
        """True if all live peers, including this one, have taken their last step."""
        # Also those known from hearsay: this peer may reach some of them through others only.
        others = (k.member for k in self.known.values() if k.alive)
        if self.phase < Phase.FINISHED or any(m.phase < Phase.FINISHED for m in others):
            return False
        return all(until_s <= self._ticked_s for until_s in self.strays.values())

    def stepped(self, now: float) -> int:
        """Count an optimizer step of this peer; return those of all peers that ever existed."""
        self.clock.tick(now)
        self.me = replace(self.me, step=self.clock.own)
        return self.clock.total

    def note_founders(self) -> None:
        """Note that this peer founds together with all peers that it knows."""
        self.clock.forget_others()
        self._founders = {id: known.member.incarnation for id, known in self.known.items()}

    def forget_swarm(self) -> None:
        """Forget the steps and the founders of the swarm that this peer gives up."""
        self.clock.forget_others()
        self._founders, self.strays = {}, {}

    def lockstep_total(self) -> int:
        """Return the steps of all peers, with as many for each running founder as for this one."""
        total, own, rows = self.clock.total, self.clock.own, self.clock.rows()
        for peer, incarnation in self._founders.items():
            if self.is_alive(peer) and self.incarnation(peer) == incarnation:
                total += own - rows.get(peer, 0)
        return total

    @property
    def merge(self) -> int:
        return self.me.merge

    def advance(
        self,
        *,
        phase: Phase | None = None,
        anchored: bool | None = None,
        merge: int | None = None,
        sketch: tuple[float, ...] | None = None,
    ) -> None:
        """Change this peer's own entry, and raise its heartbeat so that others adopt it."""
        if merge is not None:
            kept = self.me.sketch if sketch is None else sketch
            heartbeat = self.me.heartbeat + 1
            self.me = replace(self.me, merge=merge, sketch=kept, heartbeat=heartbeat)
        if phase is not None:
            self.me = replace(self.me, phase=phase, heartbeat=self.me.heartbeat + 1)
            self._takers = None
        if anchored is not None and anchored != self.me.anchored:
            self.me = replace(self.me, anchored=anchored, heartbeat=self.me.heartbeat + 1)

    def incarnation(self, peer: PeerId) -> Incarnation:
        known = self.known.get(peer)
        return known.member.incarnation if known else 0

    def others(self, *, alive: bool) -> tuple[Member, ...]:
        """Return the other peers that are considered alive, or dead but not gone, sorted by id."""
        members = (known.member for known in self._in_order() if known.alive is alive)
        return tuple([m for m in members if m.phase is not Phase.LEFT])

    def _in_order(self) -> list[Known]:
        if self._order is None:
            self._order = [known for _, known in sorted(self.known.items())]
        return self._order

    def is_alive(self, peer: PeerId) -> bool:
        known = self.known.get(peer)
        return known is not None and known.alive

    def spoke_since(self, peer: PeerId, since_s: float) -> bool:
        known = self.known.get(peer)
        return known is not None and known.spoke_s >= since_s

    def can_meet(self, member: Member) -> bool:
        """Return True if one of the two can dial the other."""
        return bool(self.me.addresses or member.addresses)

    @property
    def outward(self) -> Set[PeerId]:
        """Push targets that can only dial out."""
        self.takers()
        return self._outward

    def reachable(self, peers: Sequence[PeerId], now: float) -> list[PeerId]:
        """Return those of *peers* that are expected to receive a message that is sent now."""
        found = []
        for peer in peers:
            known = self.known.get(peer)
            if known is None or not known.alive or known.suspected:
                continue
            if now >= known.passed_over_until_s and self.can_meet(known.member):
                found.append(peer)
        return found

    def pass_over(self, peer: PeerId, until_s: float) -> None:
        if peer in self.known:
            self.known[peer].passed_over_until_s = until_s

    def live(self) -> tuple[Member, ...]:
        """Return the peers that are believed to run, including this one, sorted by id."""
        members = [k.member for k in self._in_order() if k.alive and k.believed]
        insort(members, self.me, key=lambda member: member.id)
        return tuple(members)

    def takers(self) -> tuple[PeerId, ...]:
        """Return the live peers that take shares, sorted, including this one if it does."""
        if self._takers is None:
            takers = [member for member in self.live() if member.phase.takes_shares]
            self._takers = tuple([member.id for member in takers])
            self._outward = frozenset([m.id for m in takers if not m.addresses])
        return self._takers

    def __len__(self) -> int:
        return 1 + len(self.known)

    def members(self, *, unconfirmed: bool = False) -> tuple[Member, ...]:
        """Return the entries to send: this peer's own first, then those it vouches for, sorted.

        With *unconfirmed*, it also vouches for peers that are alive from hearsay only.
        """
        # If it passed on entries of dead peers, others that have just forgotten them would learn
        # them again.
        rises = 0 if unconfirmed else RISES_TO_BELIEVE
        now_s, dead_s = self._ticked_s, self._config.dead_s
        vouched = [
            known.member
            for known in self._in_order()
            if (known.alive and known.rises >= rises)
            or (known.member.phase is Phase.LEFT and now_s - known.progress_s <= dead_s)
        ]
        return self.me, *vouched

    def member(self, peer: PeerId) -> Member | None:
        known = self.known.get(peer)
        return known.member if known else None

    def heard(self, peer: PeerId, incarnation: Incarnation, now: float) -> bool:
        """Take a message as a sign of life; return False if a later incarnation is known."""
        known = self.known.get(peer)
        if known is None or known.member.incarnation < incarnation:
            return True
        before = known.member
        latest = incarnation == before.incarnation == known.spoken
        if not latest or before.phase is Phase.LEFT:
            if not known.correct(incarnation):
                return False
            if known.member is not before:
                self._takers = None
                self.doubts.append(peer)
                if before.phase is Phase.LEFT:
                    self._changes.append(Meet(peer, known.member.addresses))
        known.progress_s = known.spoke_s = now
        if known.suspected or not (known.alive and known.believed):
            self._recover(known)
            known.rises = RISES_TO_BELIEVE
        return True

    def outlasts(self, member: Member, now: float) -> bool:
        """Return True if *member* runs while its later incarnation, which it forgets, is dead."""
        known = self.known.get(member.id)
        if known is None or not known.gives_way(member, now, self._config.dead_s):
            return False
        self.disown(member.id)
        return True

    def take_changes(self) -> list[Change]:
        changes, self._changes = self._changes, []
        return changes

    def _recover(self, known: Known) -> None:
        alive = known.member.phase is not Phase.LEFT
        if alive and (known.suspected or not known.alive):
            self._changes.append(PeerRecovered(known.member.id))
        known.alive, known.suspected = alive, False
        self._takers = None

    def is_plausible(self, incarnation: Incarnation, now: float) -> bool:
        if self._started_s is None:
            self._started_s = now
        age = int((now - self._started_s) * 1000)
        return incarnation <= self.me.incarnation + age + INCARNATION_AHEAD_MS_MAX

    def absorb(self, members: Sequence[Member], source: PeerId, now: float) -> list[Member]:
        """Merge entries of a view that only say that a member still runs; return the rest."""
        others, rest = self.known, []
        for member in members:
            known = others.get(member.id)
            if known is None or member.id == source:
                rest.append(member)
                continue
            before = known.member
            if member.incarnation == before.incarnation and (
                member.heartbeat <= before.heartbeat or known.goes_on(member)
            ):
                if member.heartbeat > before.heartbeat:
                    if member.step != before.step:
                        member = self._counted(member, now, direct=False)
                    known.member, known.progress_s = member, now
            elif member.incarnation >= before.incarnation:
                rest.append(member)
        return rest

    def dead(self) -> list[Member]:
        known = [k for k in self._in_order() if not k.alive and k.member.phase is not Phase.LEFT]
        known.sort(key=lambda k: -k.progress_s)
        return [each.member for each in known]

    def departed(self) -> list[PeerId]:
        return [k.member.id for k in self._in_order() if k.member.phase is Phase.LEFT]

    def learn(self, member: Member, now: float, *, direct: bool) -> None:
        if member.id == self.me.id:
            self._learn_of_me(member, now)
            return
        known = self.known.get(member.id)
        if known is None and len(self.known) >= self._config.members_max:
            if not self._was_full:
                self._was_full = True
                self._changes.append(ViewFull(len(self)))
            return
        if known is not None and not direct and self._may_ask(known, member, now):
            return
        if known is None or known.member.incarnation < member.incarnation:
            if self.is_plausible(member.incarnation, now):
                self._admit(member, now, direct=direct)
        elif (
            known.member.incarnation == member.incarnation
            and known.member.phase is not Phase.LEFT
            and known.is_news(member, direct=direct)
        ):
            self._refresh(known, member, now, direct=direct)

    def _may_ask(self, known: Known, member: Member, now: float) -> bool:
        """Return True if hearsay contradicts a peer that speaks for itself; ask that instead."""
        before = known.member
        if not (known.contradicts(member) and known.speaks(now, self._config.suspect_s)):
            return False
        later = (before.incarnation, before.heartbeat) < (member.incarnation, member.heartbeat)
        # Rate-limited, because a stranger can contradict a thousand entries in each message.
        is_due = now - known.asked_s >= self._config.gossip_s
        if later and is_due and self.is_plausible(member.incarnation, now):
            known.asked_s = now
            self.doubts.append(before.id)
        return True

    def _learn_of_me(self, member: Member, now: float) -> None:
        if member.incarnation > self.me.incarnation and self.is_plausible(member.incarnation, now):
            seeks = self.phase <= Phase.JOINING
            if seeks or now - self._outlived_s >= self._config.dead_s:
                self._outlived_s = now
                self._changes.append(StaleIncarnation(member.incarnation))
        self.count(member.id, member.step, self.id, now)

    def count(self, peer: PeerId, steps: int, source: PeerId, now: float) -> None:
        if self.phase <= Phase.JOINING:
            # A joining peer becomes a copy of its donor, and continues its count.
            self.clock.merge(peer, steps)
            if peer == self.me.id:
                self.me = replace(self.me, step=self.clock.own)
        elif peer != self.me.id:
            self.clock.hear(peer, steps, now, direct=peer == source)

    def _counted(self, member: Member, now: float, *, direct: bool) -> Member:
        if self.phase <= Phase.JOINING:
            self.clock.merge(member.id, member.step)
            return member
        steps = self.clock.hear(member.id, member.step, now, direct=direct)
        return member if steps == member.step else replace(member, step=steps)

    def _admit(self, member: Member, now: float, *, direct: bool) -> None:
        before, steps = self.known.get(member.id), member.step
        member, gone = self._counted(member, now, direct=direct), member.phase is Phase.LEFT
        known = Known(member, now, alive=not gone)
        if before is not None:
            # The peer's own last words stand until it speaks.
            known.told, known.spoken = before.told, before.spoken
        if direct:
            known.says(member, steps, now)
        self.known[member.id] = known
        self.strays.pop(member.id, None)
        self._order = self._takers = None
        if not gone:
            self._changes += [Meet(member.id, member.addresses), PeerMet(member.id)]
        elif before is not None:
            self._mark_left(known)

    def _refresh(self, known: Known, member: Member, now: float, *, direct: bool) -> None:
        before, steps = known.member, member.step
        if steps != before.step:
            member = self._counted(member, now, direct=direct)
        known.member, known.progress_s = member, now
        known.rises += 1
        if before.phase is not member.phase or known.rises <= RISES_TO_BELIEVE or not known.alive:
            self._takers = None
        if direct:
            known.says(member, steps, now)
        if member.phase is Phase.LEFT:
            self._mark_left(known)
            return
        if known.suspected or not known.alive:
            self._recover(known)
        if member.addresses != before.addresses:
            self._takers = None
            self._changes.append(Meet(member.id, member.addresses))

    def founded_with(self, envelope: Envelope) -> bool:
        """Return True if the sender is a founder of this peer's own roll call."""
        return self._founders.get(envelope.source) == envelope.source_incarnation

    def stray(self, envelope: Envelope, now: float) -> bool:
        """Note that the sender is in another swarm; return True if it was a member of this one."""
        peer = envelope.source
        if self.founded_with(envelope):
            self.strays.setdefault(peer, now + self._config.found_s)
        was_known = peer in self.known
        self.disown(peer)
        return was_known

    def disown(self, peer: PeerId) -> None:
        self.known.pop(peer, None)
        self._takers = self._order = None

    def left(self, peer: PeerId) -> None:
        known = self.known.get(peer)
        if known is not None and known.member.phase is not Phase.LEFT:
            before = known.member
            known.member = replace(
                before, phase=Phase.LEFT, heartbeat=min(before.heartbeat + 1, HEARTBEAT_MAX)
            )
            known.told = known.member
            known.progress_s = max(known.progress_s, self._ticked_s)
            self._mark_left(known)

    def leaving(self, peer: PeerId) -> None:
        known = self.known.get(peer)
        if known is not None and known.member.phase < Phase.LEAVING:
            known.member = replace(known.member, phase=Phase.LEAVING)
            self._takers = None

    def _mark_left(self, known: Known) -> None:
        known.alive = False
        self._takers = None
        self._changes += [Part(known.member.id), PeerLeft(known.member.id)]

    def tick(self, now: float) -> None:
        """Raise this peer's heartbeat and detect silent peers; call once per gossip interval."""
        self.me = replace(self.me, heartbeat=self.me.heartbeat + 1)
        stalled_s, self._ticked_s = self._health.ticked(now), now
        if stalled_s:
            # It has received no heartbeats: it would consider all others dead, and say so.
            for known in self.known.values():
                known.progress_s = min(known.progress_s + stalled_s, now)
        dead_s = self._config.dead_s * self._health.factor
        suspect_s = min(self._config.suspect_s * self._health.factor, dead_s)
        self.clock.speaking = sum([k.alive and k.spoken > 0 for k in self.known.values()])
        for peer, known in tuple(self.known.items()):
            silent_s = now - known.progress_s
            if silent_s <= suspect_s:
                continue
            if known.is_forgettable(silent_s, self._config.dead_s):
                del self.known[peer]
                self._takers = self._order = None
                self._changes.append(Part(peer))
            elif known.alive and silent_s > dead_s:
                known.alive = known.suspected = False
                self._takers = None
                self._changes.append(PeerDied(peer))
            elif known.alive and not known.suspected and silent_s > suspect_s:
                known.suspected = True
                self._changes.append(PeerSuspected(peer))
