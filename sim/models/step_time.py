"""Durations of steps: the same for all, or drawn."""

import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import Parameter
from ...gossip.specs.spec import make
from ...gossip.types import stream
from ...train.faults.schedule import parse_slow

__all__ = [
    *("FORM", "PACES", "StepTime", "constant", "is_constant", "lognormal", "make_step_time"),
    *("pareto", "parse_speeds", "slowdowns"),
]


FORM = "SPEEDx:PERCENT%,..., such as 0.5x:25%,1x:50%,4x:25%"
"""Form of classes of speed, for messages."""

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_CLASS = re.compile(rf"\s*{_NUMBER}x\s*:\s*{_NUMBER}%\s*")


def slowdowns(
    ids: Sequence[str], *, speeds: str | None, slow: Sequence[str], seed: int
) -> list[float]:
    """Return how many times as long each worker's steps take as a step at speed 1x.

    Args:
        speeds: Classes of speed (`parse_speeds`); None for 1x everywhere.
        slow: Stragglers (`parse_slow`), on top of their class.
    """
    factors = [1.0] * len(ids)
    if speeds is not None:
        drawn = iter(stream(seed, "swarm", "speeds").permutation(len(ids)).tolist())
        classes = parse_speeds(speeds)
        for (speed, _), count in zip(classes, _counts(classes, len(ids)), strict=True):
            for _ in range(count):
                factors[next(drawn)] = 1 / speed
    for worker, factor in parse_slow(slow, ids).items():
        factors[worker] *= factor
    return factors


def parse_speeds(text: str) -> list[tuple[float, Fraction]]:
    """Parse classes of speed; a worker of speed 4x takes a quarter of the time for a step.

    >>> parse_speeds("0.5x:25%,1x:75%")
    [(0.5, Fraction(25, 1)), (1.0, Fraction(75, 1))]
    """
    classes = []
    for part in text.split(","):
        match = _CLASS.fullmatch(part)
        speed = float(match[1]) if match else 0.0
        if match is None or not 0 < speed < math.inf:
            raise ConfigError(
                f"speeds {text!r}: {part.strip()!r} is not SPEEDx:PERCENT% with a speed above 0; "
                f"it must be {FORM}"
            )
        # Exact, so that 33.3 + 33.3 + 33.4 is 100.
        classes.append((speed, Fraction(match[2])))
    if (total := sum(percent for _, percent in classes)) != 100:
        raise ConfigError(
            f"speeds {text!r}: the percentages add up to {float(total):g}, must be 100"
        )
    return classes


def _counts(classes: Sequence[tuple[float, Fraction]], n: int) -> list[int]:
    # Method of the largest remainder; the first class wins a tie.
    quotas = [n * percent / 100 for _, percent in classes]
    counts = [math.floor(quota) for quota in quotas]
    remainders = [count - quota for quota, count in zip(quotas, counts, strict=True)]
    for index in np.argsort([float(r) for r in remainders], kind="stable")[: n - sum(counts)]:
        counts[index] += 1
    return counts


# Draws made at a time: opening a stream takes about 20 us, and 8 bytes are kept per draw.
_BITS = 6
_BLOCK = 1 << _BITS

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]


class StepTime(Protocol):
    """The durations of steps, each a pure function of seed, worker and step."""

    def step_s(self, worker: int, step: int) -> float:
        """Return the duration of a worker's step, counted from 0, seconds, > 0; fast in order."""

    def mean_s(self, worker: int) -> float:
        """Return the mean duration of a worker's steps, seconds."""


def is_constant(step_time: StepTime) -> bool:
    """Return True if each worker's steps all take as long as its first."""
    return isinstance(step_time, _Steps) and step_time.draw is None


def make_step_time(
    spec: str,
    *,
    ids: Sequence[str],
    step_s: float,
    speeds: str | None = None,
    slow: Sequence[str] = (),
    seed: int,
) -> StepTime:
    """Make the pace of a simulated swarm.

    Args:
        spec: Spec of one of `PACES`, such as ``lognormal:cv=0.3``.
        ids: The workers; random draws depend on ids, not on positions. Workers that join later take
            the paces of these, in turn.
        step_s: Mean duration of a step at speed 1x, seconds, > 0.
        speeds: See `parse_speeds`; None for 1x everywhere.
        slow: See `parse_slow`.
    """
    if not (math.isfinite(step_s) and step_s > 0):
        raise ConfigError(f"step_s is {step_s}: it must be a finite number of seconds above 0")
    draw = make("pace", spec, PACES)
    means = [step_s * f for f in slowdowns(ids, speeds=speeds, slow=slow, seed=seed)]
    if not all(math.isfinite(mean) and mean > 0 for mean in means):
        raise ConfigError(
            f"step_s is {step_s}: with speeds and slow, steps would take {max(means)}"
        )
    return _Steps(draw, means, ids, seed)


class _Steps:
    """Keeps each worker's current block of draws; any block can be drawn again independently."""

    def __init__(
        self, draw: Draw | None, means: list[float], ids: Sequence[str], seed: int
    ) -> None:
        self.draw = draw
        self._means = means
        self._ids = ids
        self._seed = seed
        self._blocks: list[Sequence[float]] = [()] * len(means)
        self._numbers = [-1] * len(means)

    def step_s(self, worker: int, step: int) -> float:
        worker %= len(self._means)
        if self.draw is None:
            return self._means[worker]
        if self._numbers[worker] != step >> _BITS:
            self._numbers[worker] = number = step >> _BITS
            rng = stream(self._seed, self._ids[worker], f"pace:{number}")
            durations = self._means[worker] * self.draw(rng, _BLOCK)
            # An array is faster to index than numpy's, and a quarter of the size of a list.
            self._blocks[worker] = array("d", durations.tobytes())
        return self._blocks[worker][step & (_BLOCK - 1)]

    def mean_s(self, worker: int) -> float:
        return self._means[worker % len(self._means)]


def constant() -> None:
    """All steps take equally long."""


def lognormal(
    cv: Annotated[float, Parameter("coefficient of variation.", low=0, high=100)] = 0.3,
) -> Draw:
    """Random: the jitter of a machine with little other load."""
    variance = math.log1p(cv**2)
    # The mean of a lognormal is exp(mu + variance / 2), and is to be 1.
    return lambda rng, n: rng.lognormal(-variance / 2, math.sqrt(variance), n)


def pareto(
    shape: Annotated[float, Parameter("the smaller, the heavier the tail.", above=1)] = 2.5,
) -> Draw:
    """Random with a heavy tail: occasionally, a step takes very much longer."""
    # numpy's starts at 0, so 1 + that starts at 1, and its mean is shape / (shape - 1).
    least = (shape - 1) / shape
    return lambda rng, n: least * (1 + rng.pareto(shape, n))


PACES: Mapping[str, Callable[..., Draw | None]] = MappingProxyType(
    {"constant": constant, "lognormal": lognormal, "pareto": pareto}
)
"""By name, factories of the draws of durations of mean 1; None for a pace without draws."""
