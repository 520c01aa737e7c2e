"""A static membership: all members know one another from the start, and share one view.

Simulated workers use it, since n tables of n entries would be n^2. Nothing is sent, and no silent
member is considered dead.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from ..types import Incarnation, PeerId
from ..wire.messages import Member, Phase

__all__ = ["StaticMemberTable", "StaticMembership"]


class StaticMembership:
    """The shared view: the members, and the phase of each."""

    def __init__(
        self,
        ids: Sequence[PeerId],
        *,
        anchored: bool = False,
        machines: Mapping[PeerId, bytes] | None = None,
    ) -> None:
        self.ids, hosts = tuple(ids), machines or {}
        self.entries = {
            id: Member(id, 1, 0, Phase.SEEKING, 0, (), anchored, host=hosts.get(id, b""))
            for id in self.ids
        }
        """Entry of each member, without its steps."""
        self.present = dict.fromkeys(self.ids)
        """Members that are neither leaving nor gone."""
        self.over = not self.ids
        """True if every member has taken all its steps, or has left."""
        self.total = 0
        """Steps of all members."""
        self.steps_of_gone = 0
        """The part of `total` by members that are leaving or gone."""
        self._running = len(self.ids)
        self.taking: tuple[PeerId, ...] | None = None
        """Cached result of `takers`; None if it may have changed."""

    def rows(self) -> dict[PeerId, int]:
        """Always empty: no member needs to be sent the steps of others."""
        return {}

    def takers(self) -> tuple[PeerId, ...]:
        if self.taking is None:
            self.taking = tuple([id for id in self.present if self.entries[id].phase.takes_shares])
        return self.taking

    def enter(self, id: PeerId, phase: Phase) -> None:
        before = self.entries[id].phase
        self.entries[id] = replace(self.entries[id], phase=phase)
        self._running -= before < Phase.FINISHED <= phase
        self.over = self._running == 0
        if before.takes_shares is not phase.takes_shares:
            self.taking = None
        if phase >= Phase.LEAVING:
            self.present.pop(id, None)


class StaticMemberTable:
    """One member's handle on a static membership, in place of a `MemberTable`."""

    merge: Final = 0
    """Always 0: values of simulated members are computed later, so there is nothing to compare."""

    def __init__(self, me: Member, membership: StaticMembership) -> None:
        self.id = me.id
        self.phase = me.phase
        self.step = me.step
        self.clock = membership
        """In place of `StepCounts`, since every member sees every step at once."""
        self.outward: Set[PeerId] = frozenset()
        self.only: Mapping[PeerId, Member] | None = membership.entries
        self.member: Callable[[PeerId], Member | None] = membership.entries.get
        self._membership = membership
        self._passed_over: dict[PeerId, float] = {}

    @property
    def me(self) -> Member:
        return replace(self._membership.entries[self.id], step=self.step)

    @property
    def over(self) -> bool:
        return self._membership.over

    def stepped(self, now: float) -> int:
        self.step += 1
        self._membership.total += 1
        return self._membership.total

    def lockstep_total(self) -> int:
        return self.step * len(self._membership.present) + self._membership.steps_of_gone

    def advance(
        self,
        *,
        phase: Phase | None = None,
        anchored: bool | None = None,
        merge: int = 0,
        sketch: tuple[float, ...] = (),
    ) -> None:
        if phase is not None:
            if phase >= Phase.LEAVING > self.phase:
                self._membership.steps_of_gone += self.step
            self.phase = phase
            self._membership.enter(self.id, phase)

    def incarnation(self, peer: PeerId) -> Incarnation:
        return 1 if peer in self._membership.entries else 0

    def others(self, *, alive: bool) -> tuple[Member, ...]:
        return ()

    def is_alive(self, peer: PeerId) -> bool:
        return peer in self._membership.present

    def can_meet(self, member: Member) -> bool:
        return True

    def spoke_since(self, peer: PeerId, since_s: float) -> bool:
        return peer in self._membership.present

    def reachable(self, peers: Sequence[PeerId], now: float) -> list[PeerId]:
        if self._passed_over:
            peers = [peer for peer in peers if now >= self._passed_over.get(peer, now)]
        return [*filter(self._membership.present.__contains__, peers)]

    def pass_over(self, peer: PeerId, until_s: float) -> None:
        self._passed_over[peer] = until_s

    def live(self) -> tuple[Member, ...]:
        entries = self._membership.entries
        return tuple([entries[id] for id in self._membership.present])

    def takers(self) -> tuple[PeerId, ...]:
        return self._membership.taking or self._membership.takers()

    def __len__(self) -> int:
        return len(self._membership.ids)
