"""Means over seeds, their intervals, and tests of differences against noise."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, nctdtrinc, polygamma, stdtr, stdtrit

__all__ = [
    "Difference",
    "Interval",
    "differences",
    "exp",
    "fisher",
    "holm",
    "interval",
    "minimum_detectable",
    "quantile",
]

# All pairs share the reference's noise, so their common variance is worth at most this many times
# one pair's freedom. Satterthwaite gives 4, with which `holm` over 28 groups finds half as many.
_BORROWED_MAX: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over seeds, and the 95 % confidence interval of the true mean, by Student's t."""

    mean: float
    """NaN without any value."""
    low: float
    """NaN with fewer than two values: one says nothing about the noise."""
    high: float
    n: int
    """Number of values in the mean."""

    @property
    def half(self) -> float:
        """Half width of the interval, to write after ±; NaN with fewer than two values."""
        return (self.high - self.low) / 2


def interval(values: Iterable[float]) -> Interval:
    """Return the mean of some values, with its 95 % interval.

    >>> found = interval([9.0, 10.0, 11.0])
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3), found.n
    (10.0, 7.516, 12.484, 3)
    """
    found = np.array(list(values), np.float64)
    n = len(found)
    mean = float(found.mean()) if n else math.nan
    half = quantile(n - 1) * float(found.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of two groups, seed by seed."""

    mean: float
    """Mean of the first minus the second, over the seeds that both have; NaN without any."""
    low: float
    """The 95 % interval for this one difference; NaN, as all that follows, if the noise is
    unknown."""
    high: float
    p: float
    """Two-sided probability that noise alone makes a difference as large."""
    error: float = math.nan
    """Standard error of the mean."""
    freedom: float = math.nan
    """Degrees of freedom of the standard error."""


def differences(
    values: Sequence[Mapping[int, float]],
    reference: Mapping[int, float],
    *,
    resolution: float = 0.0,
) -> tuple[Difference, ...]:
    """Compare groups with one, each by a paired t test whose variance is shrunk towards that of
    all pairs; p is not corrected yet, see `holm`.

    Args:
        resolution: Values are known this precisely only; noise counts as at least the noise
            that this causes.

    Source: Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004, sections 4
    to 6.2.
    """
    deltas = [
        np.array([one - reference[seed] for seed, one in group.items() if seed in reference])
        for group in values
    ]
    # Rounding a value to a grid adds a uniform error; each of two values has its own.
    least = resolution**2 / 6
    variances = np.array(
        [max(float(found.var(ddof=1)), least) if len(found) > 1 else math.nan for found in deltas]
    )
    freedom = np.array([max(0, len(found) - 1) for found in deltas], np.float64)
    prior, prior_freedom = _in_common(variances, freedom)
    usable = int((freedom > 0).sum())
    freedom_max = float(freedom.sum()) / (1 + (usable - 1) / _BORROWED_MAX) if usable else 0.0
    found: list[Difference] = []
    for delta, variance, own in zip(deltas, variances, freedom, strict=True):
        shared = prior
        if own > 0 and math.isfinite(prior_freedom):
            shared = (prior_freedom * prior + own * variance) / (prior_freedom + own)
        mean = float(delta.mean()) if len(delta) else math.nan
        known = min(prior_freedom + own, max(own, freedom_max))
        if not len(delta) or math.isnan(shared) or known < 1:
            found.append(Difference(mean=mean, low=math.nan, high=math.nan, p=math.nan))
            continue
        error = math.sqrt(float(shared) / len(delta))
        half = quantile(known) * error
        p = float(2 * stdtr(known, -abs(mean) / error)) if error else float(mean == 0)
        found.append(
            Difference(
                mean=mean, low=mean - half, high=mean + half, p=p, error=error, freedom=known
            )
        )
    return tuple(found)


def holm(p: Sequence[float], *, family: int | None = None) -> tuple[float, ...]:
    """Correct p values for several comparisons; NaN, an unknown value, does not count.

    Args:
        family: Number of comparisons that these were chosen from; default: no others.

    Source: Holm, Scandinavian Journal of Statistics 6, 1979.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    known = sorted((value, index) for index, value in enumerate(p) if not math.isnan(value))
    several = max(len(known), family or 0)
    corrected = [math.nan] * len(p)
    largest = 0.0
    for rank, (value, index) in enumerate(known):
        largest = max(largest, min(1.0, (several - rank) * value))
        corrected[index] = largest
    return tuple(corrected)


def minimum_detectable(found: Difference, level: float) -> float:
    """Return the smallest true difference that is significant in 4 of 5 studies with the noise of
    *found*, at the corrected *level*; NaN if the noise is unknown.

    >>> (one,) = differences([{0: 5.0, 1: 6.0, 2: 7.0}], {0: 4.0, 1: 4.9, 2: 6.1})
    >>> round(minimum_detectable(one, 0.05), 2), round(minimum_detectable(one, 0.005), 2)
    (0.33, 1.04)
    """
    if not found.error > 0:
        return found.error
    bar = stdtrit(found.freedom, 1 - level / 2)
    # A true difference of this many standard errors is missed with a probability of 0.2.
    return found.error * float(nctdtrinc(found.freedom, 0.2, bar))


@cache
def fisher(arrived: int, of: int, reference: int, of_reference: int) -> float:
    """Return the probability that two counts of seeds differ this much by chance alone.

    Source: Fisher's exact test, two sides; Journal of the Royal Statistical Society 98, 1935.

    >>> fisher(0, 3, 3, 3), round(fisher(0, 6, 6, 6), 5)
    (0.1, 0.00216)
    """
    from scipy.stats import fisher_exact

    table = [[arrived, of - arrived], [reference, of_reference - reference]]
    # Rounded to the last bits, since comparing with 0.1 means 1 of 10.
    return round(float(fisher_exact(table).pvalue), 12)


def quantile(freedom: float) -> float:
    """Return how many standard errors the 95 % interval extends to each side, by Student's t.

    >>> round(quantile(2), 3)
    4.303
    """
    return float(stdtrit(freedom, 0.975))


def _in_common(variances: NDArray[np.float64], freedom: NDArray[np.float64]) -> tuple[float, float]:
    """Return the common variance, and the degrees of freedom that it is worth, by the moments of
    the logarithms of scaled F; zeros with too few variances."""
    usable = (freedom > 0) & (variances > 0)
    if usable.sum() < 2:
        return 0.0, 0.0
    variances, half = variances[usable], freedom[usable] / 2
    logs = np.log(variances) - digamma(half) + np.log(half)
    excess = float(logs.var(ddof=1) - polygamma(1, half).mean())
    if excess <= 0:
        return float(variances.mean()), math.inf
    # The trigamma function falls from infinity to 0.
    prior_half = float(brentq(lambda at: float(polygamma(1, at)) - excess, 1e-8, 1e8))
    prior = math.exp(float(logs.mean()) + float(digamma(prior_half)) - math.log(prior_half))
    return prior, 2 * prior_half


def exp(value: float) -> float:
    """Return e to a power, infinite beyond the range of floats."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
