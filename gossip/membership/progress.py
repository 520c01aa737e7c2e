"""How far the whole swarm has come: optimizer steps of every peer, merged by maximum.

Each peer raises its own row and takes over whatever is higher in the rows of others, those of peers
that are long gone included. All rows can only grow, so that messages may be lost, repeated or
come in any order: everybody tends to the same total, with no coordinator.

A row is somebody's word. A member raises none faster than its own steps let it believe, so that no
message, whoever sent it, can end training.

Source: the grow-only counter of Shapiro, Preguica, Baquero and Zawirski, INRIA RR-7506, 2011,
specification 6.
"""

from collections.abc import Mapping

from ..types import PeerId
from ..wire.messages import ROWS_TOLD_MAX, STEPS_MAX, ClockRow

__all__ = ["CLOCK_ROWS_MAX", "StepCounts"]

CLOCK_ROWS_MAX = 1 << 14
"""Peers that are counted; steps of further names are passed over."""

_TIMES_OWN = 16
"""So many times as fast as this peer another may be. One that is faster is counted at that pace,
and is counted in full later, when it is slower or has ended."""

_TIMES_HEARSAY = 4
"""So much faster than this peer all others may be on average, of whom others tell."""

_RATE_UNKNOWN = 10.0
"""Steps a second, of a peer that has not taken `_WINDOW` of them yet."""

_WINDOW = 16
"""Steps over which the own pace is measured: a single one may seem to take no time."""

_INSTANT_S = 1e-9

_SPAN_INTERVALS = 4
"""A row that was not heard of may have grown for so many gossip intervals at that pace; what is
more than that takes as long to be believed."""


class StepCounts:
    """One peer's count of everybody's steps.

    >>> clock = StepCounts("a", {"a": 3})
    >>> clock.tick(0.0); clock.merge("b", 10); clock.merge("b", 7)
    >>> clock.own, clock.total
    (4, 14)
    """

    def __init__(
        self, me: PeerId, rows: Mapping[PeerId, int] | None = None, gossip_s: float = 1.0
    ) -> None:
        self._me = me
        self._gossip_s = gossip_s
        self._raised_s: dict[PeerId, float] = {}
        self._window: tuple[int, float] | None = None
        self._rate = 0.0
        self._hearsay = 0.0
        self._hearsay_s: float | None = None
        self.speaking = 0
        """How many live peers were heard themselves."""
        self._rows = {me: 0, **(rows or {})}
        self.total = sum(self._rows.values())
        """Steps of all peers that ever were, as far as is known."""
        self._told = 0

    @property
    def own(self) -> int:
        """Steps of this peer, those of its earlier incarnations included."""
        return self._rows[self._me]

    def tick(self, now: float) -> None:
        """Count one step of this peer, which ends at that time, seconds."""
        own = self.own
        if own < STEPS_MAX:
            self._rows[self._me] = own + 1
            self.total += 1
        if self._window is None:
            self._window = own, now
        elif own - self._window[0] >= _WINDOW:
            lasted_s = max(now - self._window[1], _INSTANT_S)
            self._rate = max(self._rate, (own - self._window[0]) / lasted_s)
            self._window = own, now

    def merge(self, peer: PeerId, steps: int) -> None:
        """Raise a row; of this peer, too: an earlier incarnation may have taken more steps."""
        before, steps = self._rows.get(peer, 0), min(steps, STEPS_MAX)
        if steps > before and (before or len(self._rows) < CLOCK_ROWS_MAX or peer in self._rows):
            self._rows[peer] = steps
            self.total += steps - before

    def hear(self, peer: PeerId, steps: int, now: float, *, direct: bool) -> int:
        """Raise a row as far as it can have grown; returns how much of what is said is believed."""
        before = self._rows.get(peer, 0)
        if steps <= before:
            return steps
        rate = self._rate or _RATE_UNKNOWN
        # However slow the steps are, one of them must count some time.
        span_s = max(_SPAN_INTERVALS * self._gossip_s, 1 / rate)
        if not before and peer not in self._raised_s and len(self._raised_s) >= CLOCK_ROWS_MAX:
            return 0  # names cost nothing, and this one would be kept in mind
        since_s = self._raised_s.setdefault(peer, now - self._gossip_s)
        credit = int(_TIMES_OWN * rate * min(now - since_s, span_s))
        if not direct:
            credit = min(credit, int(self._hearsay_credit(rate, span_s, now)))
        raised = min(steps - before, credit)
        if raised > 0:
            self.merge(peer, before + raised)
            self._raised_s[peer] = now
            self._hearsay -= 0 if direct else raised
        return min(steps, self._rows.get(peer, 0))

    def _hearsay_credit(self, rate: float, span_s: float, now: float) -> float:
        """Steps that may be added by what peers say of one another: names cost nothing."""
        rate *= _TIMES_OWN + _TIMES_HEARSAY * self.speaking
        since_s = now - span_s if self._hearsay_s is None else self._hearsay_s
        self._hearsay = min(self._hearsay + rate * (now - since_s), rate * span_s)
        self._hearsay_s = now
        return self._hearsay

    def rows(self) -> dict[PeerId, int]:
        return dict(sorted(self._rows.items()))

    def rows_beside(self, told: Mapping[PeerId, int]) -> tuple[ClockRow, ...]:
        """Rows that are higher than what is told anyway, some of them at a time."""
        absent = [row for row in sorted(self._rows.items()) if row[1] > told.get(row[0], 0)]
        if len(absent) <= ROWS_TOLD_MAX:
            return tuple(absent)
        start = self._told % len(absent)
        self._told = start + ROWS_TOLD_MAX
        return tuple((absent + absent)[start : start + ROWS_TOLD_MAX])

    def forget_others(self) -> None:
        """Count anew, in another swarm."""
        self._rows = {self._me: self.own}
        self.total = self.own
