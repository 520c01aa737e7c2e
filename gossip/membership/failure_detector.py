"""Local health: a peer that is itself late receives every heartbeat late, and waits longer.

Source: Dadgar, Phillips and Currey, "Lifeguard: local health awareness for more accurate failure
detection", DSN-W 2018: timeouts grow with a peer's own health. Here, health is the lateness of the
peer's own gossip ticks.
"""

__all__ = ["LocalHealth"]

FACTOR_MAX = 8.0

_STALL = 3
"""Intervals without a tick that count as a stall (a long step, SIGSTOP) instead of lateness."""

_SMOOTHING = 0.25


class LocalHealth:
    """Measures how late a peer's ticks are.

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
        """Factor by which to extend the timeouts for other peers, at least 1."""
        return min(1.0 + self._late_s / self._interval_s, FACTOR_MAX)

    def ticked(self, now: float) -> float:
        """Note a tick; return how long this peer had stalled, s, a time when others were not
        silent."""
        before, self._last_s = self._last_s, now
        if before is None:
            return 0.0
        late_s = max(now - before - self._interval_s, 0.0)
        counted_s = min(late_s, FACTOR_MAX * self._interval_s)
        self._late_s += _SMOOTHING * (counted_s - self._late_s)
        return late_s if late_s > (_STALL - 1) * self._interval_s else 0.0
