"""What one peer keeps of another: its latest entry, and whose word that is.

An entry that a peer tells of itself is direct evidence; what others tell of it is hearsay. Whoever
was heard itself lately is the only one to raise its phase, its incarnation and its steps: hearsay
that says otherwise is a reason to ask it, no more. Hearsay about one that has been silent is
believed, until its owner speaks again and corrects it.

Without this rule, one forged HELLO ("b has left", "a later b has started") takes a running peer
out of the swarm for good.
"""

from dataclasses import dataclass, replace

from ..types import Incarnation
from ..wire.messages import Member, Phase

__all__ = ["RISES_TO_BELIEVE", "Known"]

RISES_TO_BELIEVE = 2

_NEVER = float("-inf")

# A tombstone is kept so many times `dead_s`, for the news to overtake the last hearsay.
_TOMBSTONE = 10


@dataclass(slots=True)
class Known:
    """All that is known of one other peer."""

    member: Member
    progress_s: float
    """When its heartbeat last rose, or it was last heard."""
    spoke_s: float = _NEVER
    """When it was last heard itself."""
    rises: int = 0
    alive: bool = True
    suspected: bool = False
    passed_over_until_s: float = 0.0
    told: Member | None = None
    """Its latest entry that came from itself."""
    told_steps: int = 0
    """How many steps it said in that; of which the entry has those that are believed."""
    spoken: Incarnation = 0
    """The latest incarnation that was heard itself, 0 where none was."""
    reason: str = ""
    """Why its rule could not go on, as it said when it began to leave."""
    asked_s: float = _NEVER
    """When it was last asked whether hearsay is true."""
    earlier: tuple[Incarnation, int, float] | None = None
    """An earlier incarnation that was heard since this one fell silent: which, its heartbeat when
    that was first noticed, and when that was."""

    @property
    def believed(self) -> bool:
        return self.rises >= RISES_TO_BELIEVE

    def answers(self, now: float) -> bool:
        return self.alive and not self.suspected and now >= self.passed_over_until_s

    def says(self, member: Member, steps: int, now: float) -> None:
        """Note an entry that came from the peer itself, and how many steps it says."""
        self.told, self.spoken, self.told_steps = member, member.incarnation, steps
        self.spoke_s, self.rises = now, RISES_TO_BELIEVE

    def speaks(self, now: float, within_s: float) -> bool:
        """Whether it was heard itself that lately, and has not said that it is gone."""
        return now - self.spoke_s <= within_s and not self.has_said_goodbye(self.spoken)

    def has_said_goodbye(self, incarnation: Incarnation) -> bool:
        """Whether that incarnation, or a later one, has said itself that it is gone."""
        told = self.told
        return told is not None and told.phase is Phase.LEFT and told.incarnation >= incarnation

    def is_news(self, member: Member, *, direct: bool) -> bool:
        """Whether an entry of the incarnation that is known says more than what is known.

        A peer's own word is held against its own earlier words alone: a heartbeat that others made
        up must not drown it.
        """
        if direct and self.told is not None and self.told.incarnation == member.incarnation:
            return member.heartbeat > self.told.heartbeat
        return direct or member.heartbeat > self.member.heartbeat

    @property
    def steps_at_end(self) -> int | None:
        """Steps after which it has finished, as it says itself; None unless it does."""
        told, now = self.told, self.member
        if told is None or told.incarnation != now.incarnation:
            return None
        return self.told_steps if told.phase is now.phase is Phase.FINISHED else None

    def contradicts(self, member: Member) -> bool:
        """Whether hearsay says other things of a peer than that it goes on."""
        before = self.member
        return (
            member.incarnation != before.incarnation
            or member.phase is not before.phase
            or member.addresses != before.addresses
            or member.merge != before.merge
        )

    def goes_on(self, member: Member) -> bool:
        """Whether nothing has changed but the heartbeat and the step."""
        quiet = self.alive and not self.suspected and self.believed
        return quiet and not self.contradicts(member)

    def gives_way(self, member: Member, now: float, dead_s: float) -> bool:
        """Whether an incarnation with a smaller number than this one's runs, and this one does not.

        A peer that has lost its disk, and whose clock was ahead before, numbers its next life below
        the last one. Old messages that arrive late come from a smaller number, too; but seldom two
        of them, with a risen heartbeat, further apart than it takes to consider a peer dead.
        """
        if self.alive:
            return False
        first = self.earlier
        if first is None or first[0] != member.incarnation or first[2] < self.progress_s:
            first = self.earlier = member.incarnation, member.heartbeat, now
        return member.heartbeat > first[1] and now - first[2] > dead_s

    def is_forgettable(self, silent_s: float, dead_s: float) -> bool:
        """Whether it is of no more use: it was never believed, or has long left."""
        if self.member.phase is Phase.LEFT:
            return silent_s > _TOMBSTONE * dead_s
        return not self.believed and silent_s > dead_s

    def correct(self, incarnation: Incarnation) -> bool:
        """Take back what only others have said, now that this incarnation was heard itself; returns
        False where a later one has spoken."""
        latest = self.member
        if incarnation < self.spoken or self.has_said_goodbye(incarnation):
            return incarnation == latest.incarnation
        self.spoken = incarnation
        if latest.incarnation != incarnation or latest.phase is Phase.LEFT:
            if self.told is not None and self.told.incarnation == incarnation:
                self.member = self.told
            else:
                # Nobody knows its phase: it is asked.
                self.member = replace(
                    latest, incarnation=incarnation, heartbeat=0, phase=Phase.TRAINING, merge=0
                )
        return True
