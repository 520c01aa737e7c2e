"""How far the whole swarm has come: optimizer steps of every peer, merged by maximum.

Each peer raises its own row and takes over whatever is higher in the rows of others, those of peers
that are long gone included. All rows can only grow, so that messages may be lost, repeated or
come in any order: everybody tends to the same total, with no coordinator.

Source: the grow-only counter of Shapiro, Preguica, Baquero and Zawirski, INRIA RR-7506, 2011,
specification 6.
"""

from collections.abc import Mapping

from ..types import PeerId
from ..wire.messages import ROWS_TOLD_MAX, STEPS_MAX, ClockRow

__all__ = ["CLOCK_ROWS_MAX", "StepCounts"]

CLOCK_ROWS_MAX = 1 << 14
"""Peers that are counted; steps of further names are passed over."""


class StepCounts:
    """One peer's count of everybody's steps.

    Args:
        me: Whose it is.
        rows: Steps by peer, as remembered from an earlier incarnation.

    >>> clock = StepCounts("a", {"a": 3})
    >>> clock.tick(); clock.merge("b", 10); clock.merge("b", 7)
    >>> clock.own, clock.total
    (4, 14)
    """

    def __init__(self, me: PeerId, rows: Mapping[PeerId, int] | None = None) -> None:
        self._me = me
        self._rows = {me: 0, **(rows or {})}
        self.total = sum(self._rows.values())
        """Steps of all peers that ever were, as far as is known."""
        self._told = 0

    @property
    def own(self) -> int:
        """Steps of this peer, those of its earlier incarnations included."""
        return self._rows[self._me]

    def tick(self) -> None:
        """Count one step of this peer."""
        if self.own < STEPS_MAX:
            self._rows[self._me] += 1
            self.total += 1

    def merge(self, peer: PeerId, steps: int) -> None:
        """Raise a row; of this peer, too: an earlier incarnation may have taken more steps."""
        before, steps = self._rows.get(peer, 0), min(steps, STEPS_MAX)
        if steps > before and (before or len(self._rows) < CLOCK_ROWS_MAX or peer in self._rows):
            self._rows[peer] = steps
            self.total += steps - before

    def rows(self) -> dict[PeerId, int]:
        """Steps by peer, sorted by id."""
        return dict(sorted(self._rows.items()))

    def rows_beside(self, told: Mapping[PeerId, int]) -> tuple[ClockRow, ...]:
        """Rows that are higher than what is told anyway, some of them at a time.

        Args:
            told: Steps in the entries that travel along, by peer. A peer that came back without
                its checkpoint counts fewer than it had taken before.
        """
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
