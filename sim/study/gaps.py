"""By how much groups are behind the first, as factors or as differences."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from .statistics import Difference, differences

__all__ = ["gaps_to_first"]

# Zero has no logarithm. Less than this part of the largest is rounding.
_RELATIVE_MIN: Final = 1e-12


def gaps_to_first(
    values: Sequence[Mapping[int, float]], *, is_ratio: bool, resolution: float
) -> tuple[Difference, ...]:
    """Compare groups with the first of them.

    Args:
        values: For each group, at least one, a value for each seed.
        is_ratio: Whether they differ by factors; all values must be positive then.
        resolution: Values are known to this part of them only; for factors.

    Returns:
        One for each group but the first; values of p are not corrected yet.
    """
    largest = max(abs(value) for group in values for value in group.values())
    least = max(largest * _RELATIVE_MIN, math.ulp(0.0))
    if not is_ratio:
        return differences(values[1:], values[0], resolution=least)
    first, *others = [
        {seed: math.log(max(value, least)) for seed, value in group.items()} for group in values
    ]
    return tuple(map(_as_ratio, differences(others, first, resolution=resolution)))


def _as_ratio(gap: Difference) -> Difference:
    return Difference(
        mean=math.exp(gap.mean),
        low=math.exp(gap.low),
        high=math.exp(gap.high),
        p=gap.p,
        pairs=gap.pairs,
    )
