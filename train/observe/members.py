"""What is known of each member: its own word where it answers, else what the others say."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ...gossip.types import PeerId
from ...gossip.wire.messages import Member, Phase, Sighting, Status
from ..runtime.telling.stats import METRICS
from .probe import bare_address
from .view import LinkView, PeerView, State

__all__ = ["Answers", "Opinion", "links_of", "opinions_of", "view_of"]

_STATES: Final[Mapping[Phase, State]] = {
    Phase.SEEKING: "seeking",
    Phase.JOINING: "joining",
    Phase.TRAINING: "training",
    Phase.FINISHED: "finished",
    Phase.QUIET: "quiet",
    Phase.LEAVING: "leaving",
    Phase.LEFT: "left",
}

# Rates are those of so many seconds: a slow peer takes a step in one of them.
_WINDOW_S: Final = 5.0


class Answers:
    """What one incarnation of one peer has answered lately.

    Args:
        status: Its first answer.
        now: When that came, on the observer's clock.
    """

    def __init__(self, status: Status, now: float) -> None:
        self.status = status
        """The last one."""
        self.answered_s = now
        """When that came."""
        self.event = 0
        """Number of the last event that it has told."""
        self.pages: list[Sighting] = []
        """What it has said so far of others, while it has more to say."""
        self._recent: deque[Status] = deque()

    def add(self, status: Status, now: float) -> None:
        """Take in an answer; one that is older than the last is passed over."""
        if self._recent and status.uptime_s <= self.status.uptime_s:
            return
        self.status, self.answered_s = status, now
        self._recent.append(replace(status, members=(), events=(), sample=()))
        # The first of them is to lie at least so far back, where there is one that does.
        while len(self._recent) > 2 and status.uptime_s - self._recent[1].uptime_s >= _WINDOW_S:
            self._recent.popleft()

    def grown(self, count: Callable[[Status], float | None]) -> float | None:
        """By how much a count grew over the last seconds; None where it is not told."""
        first, last = count(self._recent[0]), count(self._recent[-1])
        return None if first is None or last is None else last - first

    def rate(self, count: Callable[[Status], float | None]) -> float | None:
        """How fast a count grows, per second; None after only one answer."""
        grown, span_s = self.grown(count), self.status.uptime_s - self._recent[0].uptime_s
        # What goes back was never a count: who sends it lies, or has forgotten.
        return None if grown is None or span_s <= 0 else max(0.0, grown / span_s)


@dataclass(slots=True)
class Opinion:
    """What others say of one member."""

    member: Member
    """The latest entry."""
    live: int = 0
    suspected: int = 0
    dead: int = 0
    left: int = 0

    def count(self, sighting: Sighting) -> None:
        """Take in what one more says."""
        name = sighting.standing.name.lower()
        setattr(self, name, getattr(self, name) + 1)
        before, member = self.member, sighting.member
        # An entry of one that has left has nothing but its steps.
        order = before.incarnation, before.heartbeat, before.step
        if (member.incarnation, member.heartbeat, member.step) > order:
            self.member = member

    @property
    def state(self) -> State:
        """What most of them say."""
        voters = self.live + self.suspected + self.dead
        if self.left > voters:
            return "left"
        if 2 * self.dead > voters:
            return "dead"
        if 2 * (self.dead + self.suspected) > voters:
            return "suspected"
        return _STATES[self.member.phase]


def opinions_of(
    tables: Mapping[PeerId, Sequence[Sighting]], count_max: int
) -> dict[PeerId, Opinion]:
    """What is said of each member, of *count_max* at most, by id.

    Args:
        tables: Whom each member sees; what it says of itself does not count.
        count_max: Those beyond are left out.
    """
    found: dict[PeerId, Opinion] = {}
    for teller, table in tables.items():
        for sighting in table:
            id = sighting.member.id
            if id != teller and (id in found or len(found) < count_max):
                found.setdefault(id, Opinion(sighting.member)).count(sighting)
    return found


def view_of(
    id: PeerId, answers: Answers | None, opinion: Opinion | None, now: float, *, is_there: bool
) -> PeerView:
    """Say what is known of one member.

    Args:
        id: Its name.
        answers: None if it never answered.
        opinion: What others say; None where nobody says anything.
        now: The observer's time.
        is_there: Whether it answers.
    """
    told: dict[str, Any] = {}
    if opinion is not None:
        told = {"suspected_by": opinion.suspected, "dead_by": opinion.dead}
    if answers is None:
        assert opinion is not None, "somebody must have named it"
        return PeerView(id=id, state=opinion.state, source="others", **told, **_of(opinion.member))
    told |= _own_word(answers)
    told["silent_s"] = max(0.0, now - answers.answered_s)
    if is_there:
        return PeerView(id=id, source="self", **told)
    told |= {"steps_s": None, "bytes_out_s": None, "bytes_in_s": None, "state": "silent"}
    if opinion is not None:
        # Others go on hearing of one that only this observer does not reach any more.
        told["step"] = max(told["step"], opinion.member.step)
        if opinion.state in ("left", "dead", "suspected"):
            told["state"] = opinion.state
    return PeerView(id=id, source="others", **told)


def links_of(id: PeerId, answers: Answers, *, is_there: bool) -> Iterator[LinkView]:
    """The links that a member tells of."""
    for link in answers.status.links:
        out, came = (
            answers.rate(_of_link(link.peer, name)) if is_there else None
            for name in ("bytes_sent", "bytes_received")
        )
        told = asdict(link)
        told |= {"target": told.pop("peer"), "roundtrip_s": link.roundtrip_s or None}
        yield LinkView(source=id, bytes_out_s=out, bytes_in_s=came, **told)


def _of_link(peer: PeerId, name: str) -> Callable[[Status], float | None]:
    return lambda status: next((getattr(x, name) for x in status.links if x.peer == peer), None)


def _figure(name: str) -> Callable[[Status], float | None]:
    return lambda status: dict(status.figures).get(name)


def _of(member: Member) -> dict[str, Any]:
    return {
        "incarnation": None if member.phase is Phase.LEFT else member.incarnation,
        "address": bare_address(member.addresses[0]) if member.addresses else "",
        "step": member.step,
    }


def _own_word(answers: Answers) -> dict[str, Any]:
    """What a member says of itself."""
    status, settings = answers.status, dict(answers.status.settings)
    waits = bool(status.awaits) and status.me.phase is Phase.TRAINING
    return {
        **_of(status.me),
        "state": "waiting" if waits else _STATES[status.me.phase],
        "figures": dict(_known(status.figures)),
        "host": settings.get("host", ""),
        "steps_s": answers.rate(lambda status: status.me.step),
        "staleness_mean": _staleness(answers),
        "reasons": status.reasons,
        "bytes_out_s": answers.rate(_figure("bytes_sent")),
        "bytes_in_s": answers.rate(_figure("bytes_received")),
        "uptime_s": status.uptime_s,
        "awaits": status.awaits,
        "settings": settings,
    }


def _known(figures: Sequence[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Those of the table, without what can be no count."""
    for name, value in figures:
        metric = METRICS.get(name)
        if metric is not None and metric.unit in ("", "founders"):
            yield name, value
        elif metric is not None and math.isfinite(value) and not (metric.is_counter and value < 0):
            yield name, int(value)


def _staleness(answers: Answers) -> float | None:
    """The mean of the shares mixed lately, or of all where none was."""
    mixed, steps = map(_figure, ("mixed", "staleness_steps_sum"))
    count, behind = answers.grown(mixed), answers.grown(steps)
    if not count or count < 0 or behind is None:
        count, behind = mixed(answers.status), steps(answers.status)
    return None if not count or behind is None else max(0.0, float(behind / count))
