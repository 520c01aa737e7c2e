"""What one peer has answered lately: rates come of the difference of two answers."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ...gossip.wire.messages import LinkStatus, Sighting, Status

__all__ = ["History", "Sample"]

# Rates are those of so many seconds: a slow peer takes a step in one of them.
_WINDOW_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The part of one answer that rates are made of."""

    uptime_s: float
    step: int
    figures: dict[str, float]
    links: dict[str, LinkStatus]


@dataclass(slots=True)
class History:
    """The answers of one incarnation of one peer."""

    status: Status
    """The last one."""
    answered_s: float
    """When that came, on the observer's clock."""
    event: int = 0
    """Number of the last event that it has told."""
    members: tuple[Sighting, ...] = ()
    """What it said last of others."""
    pages: list[Sighting] = field(default_factory=list)
    """What it has said so far of others, while it has more to say."""
    _samples: deque[Sample] = field(default_factory=deque)

    @property
    def incarnation(self) -> int:
        """Which one."""
        return self.status.me.incarnation

    def answered(self, status: Status, now: float) -> None:
        """Take in an answer; one that is older than the last is passed over."""
        if self._samples and status.uptime_s <= self._samples[-1].uptime_s:
            return
        self.status, self.answered_s = status, now
        figures = dict(status.figures)
        links = {link.peer: link for link in status.links}
        self._samples.append(Sample(status.uptime_s, status.me.step, figures, links))
        # The first of them is to lie at least so far back, where there is one that does.
        while len(self._samples) > 2 and status.uptime_s - self._samples[1].uptime_s >= _WINDOW_S:
            self._samples.popleft()

    @property
    def span_s(self) -> float:
        """Between the answers that are compared; 0 where there is only one."""
        return self._samples[-1].uptime_s - self._samples[0].uptime_s

    @property
    def steps_s(self) -> float | None:
        """Steps per second."""
        return self._rate(self._samples[-1].step - self._samples[0].step)

    def grown(self, name: str) -> float | None:
        """By how much a count grew between these answers; None where it is not told."""
        first, last = (each.figures.get(name) for each in (self._samples[0], self._samples[-1]))
        return None if first is None or last is None else last - first

    def rate(self, name: str) -> float | None:
        """How fast a count grows, per second."""
        grown = self.grown(name)
        return None if grown is None else self._rate(grown)

    def link_rates(self, peer: str) -> tuple[float | None, float | None]:
        """Bytes per second toward another peer, and from it."""
        first, last = (each.links.get(peer) for each in (self._samples[0], self._samples[-1]))
        if first is None or last is None:
            return None, None
        out, came = (last.bytes_sent - first.bytes_sent, last.bytes_received - first.bytes_received)
        return self._rate(out), self._rate(came)

    def _rate(self, grown: float) -> float | None:
        span_s = self.span_s
        # What goes back was never a count: who sends it lies, or has forgotten.
        return max(0.0, grown / span_s) if span_s > 0 else None
