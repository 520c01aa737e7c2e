"""How often something is done: by the clock, by steps, or whichever comes first."""

import re
import time
from dataclasses import dataclass

from ...gossip.errors import ConfigError

__all__ = ["Interval", "Recurrence", "parse_interval"]

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_TERM = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|steps?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Between two times that something is done; neither for never."""

    every_s: float | None = None
    """Seconds."""

    every_steps: int | None = None
    """Optimizer steps of the peer itself."""

    def due(self, elapsed_s: float, steps: int) -> bool:
        """Whether so many seconds and steps after the last time it is time again."""
        by_clock = self.every_s is not None and elapsed_s >= self.every_s
        return by_clock or (self.every_steps is not None and steps >= self.every_steps)


class Recurrence:
    """Says when it is time again.

    Args:
        interval: How often.
        steps: Where the count of steps begins.
    """

    def __init__(self, interval: Interval, steps: int = 0) -> None:
        self._interval = interval
        self._steps = steps
        self._since_s = time.monotonic()

    def is_due(self, steps: int) -> bool:
        """Whether it is time again, now that so many steps were taken."""
        return self._interval.due(time.monotonic() - self._since_s, steps - self._steps)

    def done(self, steps: int) -> None:
        """Count from now on."""
        self._steps, self._since_s = steps, time.monotonic()


def parse_interval(text: str) -> Interval:
    """Read an interval as people type it.

    Raises:
        ConfigError: It has another form.

    >>> parse_interval("5min,500steps")
    Interval(every_s=300.0, every_steps=500)
    >>> parse_interval("never")
    Interval(every_s=None, every_steps=None)
    """
    if text.strip() == "never":
        return Interval()
    every_s: float | None = None
    every_steps: int | None = None
    for term in text.split(","):
        match = _TERM.fullmatch(term.strip().replace(" ", ""))
        number = float(match[1]) if match else 0.0
        by_steps = match is not None and match[2] in ("step", "steps")
        if match is None or number <= 0 or (by_steps and number % 1):
            raise ConfigError(
                f"interval {text!r} is malformed: write 60s, 5min, 1h or 500steps, two of them as "
                "in 60s,500steps for whichever comes first, or never"
            )
        if by_steps:
            every_steps = int(number)
        else:
            every_s = number * _SECONDS[match[2]]
    return Interval(every_s=every_s, every_steps=every_steps)
