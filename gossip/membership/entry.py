"""One peer's record of another: its latest entry, and the evidence for it.

An entry that a peer sends about itself is direct evidence; entries from others are hearsay. About a
peer that was heard recently, contradicting hearsay is merely a reason to ask it: one forged HELLO
("b has left") must not remove a running peer. Other hearsay is believed until the peer speaks.
"""

from dataclasses import dataclass, replace

from ..types import Incarnation
from ..wire.messages import Member, Phase

__all__ = ["RISES_TO_BELIEVE", "Known"]

RISES_TO_BELIEVE = 2

_NEVER = float("-inf")

# A tombstone is kept this many times `dead_s`, so that the news outlives the last hearsay.
_TOMBSTONE = 10


@dataclass(slots=True)
class Known:
    """Everything known about one other peer."""

    member: Member
    progress_s: float
    """Time when its heartbeat last rose, or it was last heard."""
    spoke_s: float = _NEVER
    rises: int = 0
    alive: bool = True
    suspected: bool = False
    passed_over_until_s: float = 0.0
    told: Member | None = None
    """Its latest entry from itself, with the steps that are believed."""
    told_steps: int = 0
    """Steps that it claimed in that entry."""
    spoken: Incarnation = 0
    """Latest incarnation that was heard directly, 0 if none."""
    reason: str = ""
    """Why its rule could not continue, as it said when it began to leave."""
    asked_s: float = _NEVER
    """Time when it was last asked whether hearsay is true."""
    earlier: tuple[Incarnation, int, float] | None = None
    """An earlier incarnation, heard since: its number, and its first heartbeat with the time."""

    @property
    def believed(self) -> bool:
        return self.rises >= RISES_TO_BELIEVE

    def says(self, member: Member, steps: int, now: float) -> None:
        self.told, self.spoken, self.told_steps = member, member.incarnation, steps
        self.spoke_s, self.rises = now, RISES_TO_BELIEVE

    def speaks(self, now: float, within_s: float) -> bool:
        """Return True if it was heard directly that recently, and has not said that it is gone."""
        return now - self.spoke_s <= within_s and not self.has_said_goodbye(self.spoken)

    def has_said_goodbye(self, incarnation: Incarnation) -> bool:
        """Return True if that incarnation, or a later one, said itself that it is gone."""
        told = self.told
        return told is not None and told.phase is Phase.LEFT and told.incarnation >= incarnation

    def is_news(self, member: Member, *, direct: bool) -> bool:
        """Return True if an entry of the known incarnation is newer than the known one."""
        # A heartbeat invented by others must not mask the peer's own entry.
        if direct and self.told is not None and self.told.incarnation == member.incarnation:
            return member.heartbeat > self.told.heartbeat
        return direct or member.heartbeat > self.member.heartbeat

    @property
    def steps_at_end(self) -> int | None:
        """Steps after which it finished, by its own account; None if it has not."""
        told, now = self.told, self.member
        if told is None or told.incarnation != now.incarnation:
            return None
        return self.told_steps if told.phase is now.phase is Phase.FINISHED else None

    def contradicts(self, member: Member) -> bool:
        """Return True if hearsay says more than that the peer still runs."""
        before = self.member
        return (
            member.incarnation != before.incarnation
            or member.phase is not before.phase
            or member.addresses != before.addresses
            or member.merge != before.merge
        )

    def goes_on(self, member: Member) -> bool:
        """Return True if only the heartbeat and the step have changed."""
        quiet = self.alive and not self.suspected and self.believed
        return quiet and not self.contradicts(member)

    def gives_way(self, member: Member, now: float, dead_s: float) -> bool:
        """Return True if an incarnation with a smaller number runs, and this one does not."""
        # A peer that lost its disk, and whose clock was ahead before, numbers its next incarnation
        # below the last one. Late messages of old ones do not have rising heartbeats for so long.
        if self.alive:
            return False
        first = self.earlier
        if first is None or first[0] != member.incarnation or first[2] < self.progress_s:
            first = self.earlier = member.incarnation, member.heartbeat, now
        return member.heartbeat > first[1] and now - first[2] > dead_s

    def is_forgettable(self, silent_s: float, dead_s: float) -> bool:
        """Return True if it can be forgotten: it was never believed, or left long ago."""
        if self.member.phase is Phase.LEFT:
            return silent_s > _TOMBSTONE * dead_s
        return not self.believed and silent_s > dead_s

    def correct(self, incarnation: Incarnation) -> bool:
        """Discard hearsay about an incarnation that was heard; return False if it is stale."""
        latest = self.member
        if incarnation < self.spoken or self.has_said_goodbye(incarnation):
            return incarnation == latest.incarnation
        self.spoken = incarnation
        if latest.incarnation != incarnation or latest.phase is Phase.LEFT:
            if self.told is not None and self.told.incarnation == incarnation:
                self.member = self.told
            else:
                # Its phase is unknown: it is asked.
                self.member = replace(
                    latest, incarnation=incarnation, heartbeat=0, phase=Phase.TRAINING, merge=0
                )
        return True
