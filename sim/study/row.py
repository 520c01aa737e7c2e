"""What came of the cells at one point of an axis."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .statistics import Difference, Interval
from .words import count

__all__ = ["SIGNIFICANT", "Row"]

SIGNIFICANT: Final = 0.05
"""Differences with a smaller p, corrected, are more than noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of the cells at one point of the first axis."""

    label: str
    """Of the point."""

    group: tuple[str, ...]
    """Its key in `Results.groups`."""

    n: int
    """Seeds that there are results of."""

    missing: int
    """Seeds that there are none of, though there are of others, or they failed. Those that nobody
    has run yet count for nobody: a study that was interrupted is one with fewer seeds."""

    reached: int
    """Seeds that reached the target."""

    figures: Mapping[str, Interval]
    """By name of the measure (`MEASURES`), where all results have it. Those to the target are here
    only where no seed is missing and all reached it: the mean of the lucky ones would say too
    little."""

    gap: Difference | None = None
    """To the best: a factor (1.5 takes half as much again) where the comparison's measure is a
    ratio, else a difference. Its interval is for this pair alone. None for the best itself, and
    where there is nothing to compare."""

    p: float = math.nan
    """Of the gap, corrected for there being several (Holm); NaN where the noise is not known."""

    as_good_as_best: bool = False
    """Whether the gap is within the noise, or there is none; always False where one seed only
    says nothing about noise, but for the best."""

    @property
    def always_reached(self) -> bool:
        """Whether all seeds reached the target, and none is missing."""
        return not self.missing and 0 < self.n == self.reached

    @property
    def is_behind(self) -> bool:
        """Whether it is behind the best by more than the noise; False where that is not known."""
        return self.p < SIGNIFICANT

    @property
    def seeds(self) -> str:
        """How many seeds there are, where some are missing: ``1 of 3 seeds have a result``."""
        verb = "has" if self.n + self.missing == 1 else "have"
        return f"{self.n} of {count(self.n + self.missing, 'seed')} {verb} a result"
