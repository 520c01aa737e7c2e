"""Local health: a peer that is late itself hears everybody late, and waits longer.

Source: Dadgar, Phillips and Currey, "Lifeguard: local health awareness for more accurate failure
detection", DSN-W 2018: time-outs grow with a peer's own health. Here its health is how late it
comes to its own gossip.
"""

__all__ = ["LocalHealth"]

FACTOR_MAX = 8.0

_STALL = 3
"""Intervals without a tick that count as a stall (a long step, SIGSTOP) rather than as lateness."""

_SMOOTHING = 0.25


class LocalHealth:
    """Measures how late the ticks of a peer come.

    >>> health = LocalHealth(1.0)
    >>> [health.ticked(now) for now in (0.0, 1.0, 3.0, 63.0)]
    [0.0, 0.0, 0.0, 59.0]
    >>> health.factor
    3.1875
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last_s: float | None = None
        self._late_s = 0.0

    @property
    def factor(self) -> float:
        """How many times longer than usual others may be silent, at least 1."""
        return min(1.0 + self._late_s / self._interval_s, FACTOR_MAX)

    def ticked(self, now: float) -> float:
        """Note a tick; returns how long this peer had stalled, so that others were not silent."""
        before, self._last_s = self._last_s, now
        if before is None:
            return 0.0
        late_s = max(now - before - self._interval_s, 0.0)
        counted_s = min(late_s, FACTOR_MAX * self._interval_s)
        self._late_s += _SMOOTHING * (counted_s - self._late_s)
        return late_s if late_s > (_STALL - 1) * self._interval_s else 0.0
