"""Progress of the whole swarm: optimizer steps of every peer, merged by maximum.

Rows only grow, so messages may be lost, repeated or reordered. A member raises no row faster than
its own steps make plausible, so that no forged message can end training.

Source: the grow-only counter of Shapiro, Preguica, Baquero and Zawirski, INRIA RR-7506, 2011,
specification 6.
"""

from collections.abc import Mapping

from ..types import PeerId
from ..wire.messages import ROWS_TOLD_MAX, STEPS_MAX, ClockRow

__all__ = ["CLOCK_ROWS_MAX", "StepCounts"]

CLOCK_ROWS_MAX = 1 << 14
"""Most peers that are counted; steps of further names are ignored."""

_TIMES_OWN = 16
"""Another peer is believed to be at most this many times as fast as this one."""

_TIMES_HEARSAY = 4
"""Peers known from hearsay are believed to be at most this many times as fast, on average."""

_RATE_UNKNOWN = 10.0
"""Assumed steps per second of a peer that has not taken `_WINDOW` of them yet."""

_WINDOW = 16
"""Steps over which a peer measures its own pace: a single one may appear to take no time."""

_SPAN_INTERVALS = 4
"""Gossip intervals for which an unheard row is credited with growth at that pace."""


class StepCounts:
    """One peer's count of the steps of all peers."""

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
        """Number of live peers that were heard directly."""
        self._rows = {me: 0, **(rows or {})}
        self.total = sum(self._rows.values())
        """Steps of all peers that ever existed, as far as known."""
        self._told = 0

    @property
    def own(self) -> int:
        """Steps of this peer, including those of its earlier incarnations."""
        return self._rows[self._me]

    def tick(self, now: float) -> None:
        """Count one step of this peer, ending at *now*, seconds."""
        own = self.own
        if own < STEPS_MAX:
            self._rows[self._me] = own + 1
            self.total += 1
        if self._window is None:
            self._window = own, now
        elif own - self._window[0] >= _WINDOW:
            lasted_s = max(now - self._window[1], 1e-9)
            self._rate = max(self._rate, (own - self._window[0]) / lasted_s)
            self._window = own, now

    def merge(self, peer: PeerId, steps: int) -> None:
        """Raise a row, possibly this peer's own, by an earlier incarnation's."""
        before, steps = self._rows.get(peer, 0), min(steps, STEPS_MAX)
        if steps > before and (before or len(self._rows) < CLOCK_ROWS_MAX or peer in self._rows):
            self._rows[peer] = steps
            self.total += steps - before

    def hear(self, peer: PeerId, steps: int, now: float, *, direct: bool) -> int:
        """Raise a row as far as is plausible; return how many of the claimed steps are believed."""
        before = self._rows.get(peer, 0)
        if steps <= before:
            return steps
        rate = self._rate or _RATE_UNKNOWN
        # The credit must cover at least one step, however slow the steps are.
        span_s = max(_SPAN_INTERVALS * self._gossip_s, 1 / rate)
        if not before and peer not in self._raised_s and len(self._raised_s) >= CLOCK_ROWS_MAX:
            return 0  # invented names are free, and each would take memory
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
        """Steps that may be added by hearsay; bounded in total, since invented names are free."""
        rate *= _TIMES_OWN + _TIMES_HEARSAY * self.speaking
        since_s = now - span_s if self._hearsay_s is None else self._hearsay_s
        self._hearsay = min(self._hearsay + rate * (now - since_s), rate * span_s)
        self._hearsay_s = now
        return self._hearsay

    def rows(self) -> dict[PeerId, int]:
        return dict(sorted(self._rows.items()))

    def rows_beside(self, told: Mapping[PeerId, int]) -> tuple[ClockRow, ...]:
        """Return rows that are higher than those in *told*, a limited number per call."""
        absent = [row for row in sorted(self._rows.items()) if row[1] > told.get(row[0], 0)]
        if len(absent) <= ROWS_TOLD_MAX:
            return tuple(absent)
        start = self._told % len(absent)
        self._told = start + ROWS_TOLD_MAX
        return tuple((absent + absent)[start : start + ROWS_TOLD_MAX])

    def forget_others(self) -> None:
        """Restart the count, in another swarm."""
        self._rows = {self._me: self.own}
        self.total = self.own
