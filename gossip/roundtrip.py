"""How long a neighbor takes to answer, learnt from its answers."""

__all__ = ["RoundTrip"]

_FIRST_S = 1.0


class RoundTrip:
    """Smoothed time from a push to its ACK, the receiver's wait for a step included.

    Source: Jacobson, SIGCOMM 1988, appendix A; RFC 6298, section 2.

    >>> trip = RoundTrip()
    >>> trip.timeout_s()
    1.0
    >>> trip.measured(0.2)
    >>> round(trip.timeout_s(), 3)
    0.6
    """

    def __init__(self) -> None:
        self._mean_s: float | None = None
        self._deviation_s = 0.0

    @property
    def mean_s(self) -> float | None:
        """Smoothed round trip, seconds; None where none was measured."""
        return self._mean_s

    def measured(self, seconds: float) -> None:
        """Take one measured round trip into account."""
        if self._mean_s is None:
            self._mean_s, self._deviation_s = seconds, seconds / 2
            return
        self._deviation_s += (abs(seconds - self._mean_s) - self._deviation_s) / 4
        self._mean_s += (seconds - self._mean_s) / 8

    def timeout_s(self) -> float:
        """How long to wait for an answer before asking, seconds."""
        if self._mean_s is None:
            return _FIRST_S
        return self._mean_s + 4 * self._deviation_s
