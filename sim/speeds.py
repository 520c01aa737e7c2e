"""Which workers are fast and which are slow: classes of speed, and single stragglers."""

import math
import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..gossip.errors import ConfigError
from ..gossip.streams import stream

__all__ = ["FORM", "parse_slow", "parse_speeds", "slowdowns"]

FORM = "SPEEDx:PERCENT%,..., such as 0.5x:25%,1x:50%,4x:25%"
"""What classes of speed look like, for messages."""

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_CLASS = re.compile(rf"\s*{_NUMBER}x\s*:\s*{_NUMBER}%\s*")


def slowdowns(
    ids: Sequence[str], *, speeds: str | None, slow: Sequence[str], seed: int
) -> list[float]:
    """Say how many times as long each worker's steps take as a step at speed 1x.

    Classes are as large as their percentages say, rounded by largest remainder, the first of
    equals first; who is in which is drawn from the seed.

    Args:
        ids: The workers.
        speeds: Classes of speed (`parse_speeds`); None for 1x everywhere.
        slow: Stragglers (`parse_slow`), on top of their class.
        seed: The run's seed.

    Returns:
        One factor for each worker, above 0.

    Raises:
        ConfigError: *speeds* or *slow* is not of its form.

    >>> sorted(slowdowns("abcd", speeds="0.5x:25%,4x:75%", slow=[], seed=0))
    [0.25, 0.25, 0.25, 2.0]
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
    """Read classes of speed.

    Args:
        text: ``SPEEDx:PERCENT%`` once or more, commas between. A worker of speed 4x takes a
            quarter of the time for a step.

    Returns:
        Speed and percentage of each class; the percentages add up to 100.

    Raises:
        ConfigError: The text is not of that form, a speed is 0, or the sum is another.

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
            f"speeds {text!r}: the percentages add up to {float(total):g}, they must to 100"
        )
    return classes


def parse_slow(texts: Sequence[str], ids: Sequence[str]) -> dict[int, float]:
    """Read ``WORKER:FACTOR``, the form that ``rumor launch --slow`` takes.

    Args:
        texts: WORKER is an id, or an index from 0; its steps take FACTOR times as long.
        ids: The workers.

    Returns:
        The factor of each worker that is named, by index.

    Raises:
        ConfigError: One has another form, names no worker, or one that was named before.

    >>> parse_slow(["3:10", "peer-0:1.5"], ids=["peer-0", "peer-1", "peer-2", "peer-3"])
    {3: 10.0, 0: 1.5}
    """
    factors: dict[int, float] = {}
    for text in texts:
        name, _, number = text.strip().rpartition(":")
        if not name or not re.fullmatch(_NUMBER, number) or not 1 <= float(number) < math.inf:
            raise ConfigError(
                f"slow {text!r} is not WORKER:FACTOR: write 3:10 for steps of worker 3 that take "
                "10 times as long (FACTOR >= 1)"
            )
        worker = _index(name, ids)
        if worker is None:
            raise ConfigError(
                f"slow {text!r}: there is no worker {name}, only 0 to {len(ids) - 1}, "
                f"called {ids[0]} to {ids[-1]}"
            )
        if worker in factors:
            raise ConfigError(f"slow names worker {worker} twice")
        factors[worker] = float(number)
    return factors


def _index(name: str, ids: Sequence[str]) -> int | None:
    # An id first: nodes of a file may be called by numbers, and need not start at 0.
    if name in ids:
        return ids.index(name)
    is_index = name.isascii() and name.isdigit() and int(name) < len(ids)
    return int(name) if is_index else None


def _counts(classes: Sequence[tuple[float, Fraction]], n: int) -> list[int]:
    quotas = [n * percent / 100 for _, percent in classes]
    counts = [math.floor(quota) for quota in quotas]
    remainders = [count - quota for quota, count in zip(quotas, counts, strict=True)]
    for index in np.argsort([float(r) for r in remainders], kind="stable")[: n - sum(counts)]:
        counts[index] += 1
    return counts
