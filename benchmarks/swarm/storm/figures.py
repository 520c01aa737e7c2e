"""What a storm came to, from when each peer stepped, exchanged, and was down: live and predicted
alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import mean, median

__all__ = [
    *("Course", "Participation", "Pause", "Returns", "Strikes"),
    *("longest_pause", "participation", "returns"),
]

Span = tuple[float, float]
"""From when to when, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What one peer did when; all times in seconds since all trained."""

    id: str
    steps_s: tuple[float, ...]
    """Ends of its steps, ascending."""
    exchanges_s: tuple[float, ...]
    """Ends of steps since whose predecessor it has pushed or mixed a share, ascending."""
    down: tuple[Span, ...]
    """When its process was not there, or stood still."""
    starts_s: tuple[float, ...]
    """When its process was started again after a kill."""
    cuts: tuple[Span, ...] = ()
    """When it was cut off from most others."""

    def ran_s(self, begin_s: float, end_s: float) -> float:
        """How long its process ran in a span of time, seconds; its times down do not overlap."""
        lost_s = sum(max(0.0, min(end_s, b) - max(begin_s, a)) for a, b in self.down)
        return end_s - begin_s - lost_s

    def gaps(self) -> list[Span]:
        """From each step to the next, where it was up all the time between them."""
        return [
            (a, b)
            for a, b in pairwise(self.steps_s)
            if not any(begin < b and end > a for begin, end in self.down)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strikes:
    """What was done to the process of one peer, or is to be; times in seconds."""

    kills_s: tuple[float, ...] = ()
    starts_s: tuple[float, ...] = ()
    """When it was started again."""
    pauses: tuple[Span, ...] = ()
    cuts: tuple[Span, ...] = ()
    """When it was cut off from those that no group of a partition names."""

    def down(self, end_s: float) -> tuple[Span, ...]:
        """When there was no process, or it stood still: apart from one another, in order.

        Args:
            end_s: When it is over in any case.
        """
        found = [
            (kill_s, min((s for s in self.starts_s if s >= kill_s), default=end_s))
            for kill_s in self.kills_s
        ]
        for begin_s, over_s in self.pauses:
            # A pause ends with the process that stands still.
            killed_s = min((s for s in self.kills_s if s >= begin_s), default=end_s)
            found.append((begin_s, min(over_s, killed_s, end_s)))
        found = sorted((begin_s, over_s) for begin_s, over_s in found if over_s > begin_s)
        reach = accumulate((over_s for _, over_s in found), max)
        merged: list[Span] = []
        for (begin_s, _), over_s in zip(found, reach, strict=True):
            if merged and begin_s <= merged[-1][1]:
                merged[-1] = (merged[-1][0], over_s)
            else:
                merged.append((begin_s, over_s))
        return tuple(merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """Who took part in exchanges."""

    alive: float
    """Peers whose process ran for at least half of an interval, mean over the intervals."""
    took_part: float
    """Those among them that pushed or mixed a share in it, likewise."""
    least: int
    """In the interval that had fewest of these."""
    intervals: int

    @property
    def part(self) -> float:
        """Of those that were alive, from 0 to 1."""
        return self.took_part / self.alive if self.alive else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The longest time from one step of a peer to its next, where nothing was done to itself."""

    id: str
    at_s: float
    """When it began."""
    seconds: float
    steps: float
    """In usual steps of its own: 1 is no pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """How long killed peers took from their process's start to their next step."""

    seconds: tuple[float, ...]
    """Of each that came to a step, ascending."""
    cut_short: int
    """Of those that were struck again before, or cut off from those they were to join."""

    @property
    def median_s(self) -> float:
        """Seconds; 0 where nobody returned."""
        return median(self.seconds) if self.seconds else 0.0

    @property
    def worst_s(self) -> float:
        """Seconds; 0 where nobody returned."""
        return max(self.seconds, default=0.0)


def participation(courses: Sequence[Course], every_s: float, end_s: float) -> Participation:
    """Count who took part, interval after interval.

    Args:
        courses: Of all peers.
        every_s: Length of an interval, seconds.
        end_s: Only whole intervals up to then count; the first begins at 0.
    """
    alive, took = [], []
    for number in range(int(end_s / every_s)):
        begin_s, over_s = number * every_s, (number + 1) * every_s
        there = [c for c in courses if c.ran_s(begin_s, over_s) >= every_s / 2]
        alive.append(len(there))
        took.append(sum(any(begin_s < s <= over_s for s in c.exchanges_s) for c in there))
    if not alive:
        return Participation(alive=0.0, took_part=0.0, least=0, intervals=0)
    return Participation(
        alive=mean(alive), took_part=mean(took), least=min(took), intervals=len(took)
    )


def longest_pause(courses: Sequence[Course]) -> Pause | None:
    """The longest pause of all, in steps of whoever made it; None where nobody took two steps."""
    found = []
    for course in courses:
        gaps = course.gaps()
        usual_s = median(b - a for a, b in gaps) if gaps else 0.0
        found += [
            Pause(id=course.id, at_s=a, seconds=b - a, steps=(b - a) / usual_s)
            for a, b in gaps
            if usual_s > 0
        ]
    return max(found, key=lambda pause: pause.steps, default=None)


def returns(courses: Sequence[Course]) -> Returns:
    """How long each took that was started again."""
    seconds, cut_short = [], 0
    for course in courses:
        for start_s in course.starts_s:
            struck_s = min((a for a, _ in course.down if a > start_s), default=float("inf"))
            first_s = min((s for s in course.steps_s if s > start_s), default=float("inf"))
            cut = any(a < first_s and b > start_s for a, b in course.cuts)
            if first_s < struck_s and not cut:
                seconds.append(first_s - start_s)
            else:
                cut_short += 1
    return Returns(seconds=tuple(sorted(seconds)), cut_short=cut_short)
