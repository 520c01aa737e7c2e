"""What is known of one member: its own word where it answers, else what the others say."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...gossip.types import PeerId
from ...gossip.wire.messages import Member, Phase, Sighting, Standing
from .history import History
from .probe import bare_address
from .view import LinkView, PeerView, State

__all__ = ["Hearsay", "Opinion", "links_of", "portrait"]

_STATES: Final[Mapping[Phase, State]] = {
    Phase.SEEKING: "seeking",
    Phase.JOINING: "joining",
    Phase.TRAINING: "training",
    Phase.FINISHED: "finished",
    Phase.QUIET: "quiet",
    Phase.LEAVING: "leaving",
    Phase.LEFT: "left",
}

# So long what a member has said of others counts, after it was asked for the last time.
_TABLE_S: Final = 15.0

_COUNTS: Final = (
    *("pushes", "mixed", "refusals", "refused", "skipped", "queued", "errors"),
    *("bytes_sent", "bytes_received", "model_bytes"),
)
_REALS: Final = ("weight", "escrow", "loss", "accuracy", "test_loss")
_MEMORY: Final = ("snapshots_bytes", "segments_bytes", "staged_bytes", "idle_bytes")


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
        names = {Standing.LIVE: "live", Standing.SUSPECTED: "suspected", Standing.DEAD: "dead"}
        name = names.get(sighting.standing, "left")
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


class Hearsay:
    """What members say of one another, the latest word of each.

    Args:
        count_max: Of how many members at most it is kept.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._tables: dict[PeerId, tuple[float, Sequence[Sighting]]] = {}

    def tell(self, teller: PeerId, members: Sequence[Sighting], now: float) -> None:
        """Take in whom a member sees, all of them."""
        self._tables[teller] = now, members
        for other, (told_s, _) in tuple(self._tables.items()):
            if now - told_s > _TABLE_S:
                del self._tables[other]

    def opinions(self) -> dict[PeerId, Opinion]:
        """What is said of each; what members say of themselves is not among it."""
        found: dict[PeerId, Opinion] = {}
        for teller, (_, table) in self._tables.items():
            for sighting in table:
                id = sighting.member.id
                if id == teller or (id not in found and len(found) >= self._count_max):
                    continue
                found.setdefault(id, Opinion(sighting.member)).count(sighting)
        return found


def portrait(
    id: PeerId, history: History | None, opinion: Opinion | None, now: float, *, is_there: bool
) -> PeerView:
    """Say what is known of one member.

    Args:
        id: Its name.
        history: What it has answered; None if it never did.
        opinion: What others say; None where nobody says anything.
        now: The observer's time.
        is_there: Whether it answers.
    """
    told: dict[str, Any] = {}
    if opinion is not None:
        told = {"suspected_by": opinion.suspected, "dead_by": opinion.dead}
    if history is None:
        assert opinion is not None, "somebody must have named it"
        return PeerView(id=id, state=opinion.state, source="others", **told, **_of(opinion.member))
    told |= _answered(history)
    told["silent_s"] = max(0.0, now - history.answered_s)
    if is_there:
        return PeerView(id=id, source="self", **told)
    told["steps_s"] = told["bytes_out_s"] = told["bytes_in_s"] = None
    told["state"] = "silent"
    if opinion is not None:
        # Others go on hearing of one that only this observer does not reach any more.
        told["step"] = max(told["step"], opinion.member.step)
        if opinion.state in ("left", "dead", "suspected"):
            told["state"] = opinion.state
    return PeerView(id=id, source="others", **told)


def links_of(id: PeerId, history: History, *, is_there: bool) -> Iterator[LinkView]:
    """The links that a member tells of."""
    for link in history.status.links:
        out, came = history.link_rates(link.peer) if is_there else (None, None)
        yield LinkView(
            source=id,
            target=link.peer,
            shares_memory=link.shares_memory,
            bytes_out_s=out,
            bytes_in_s=came,
            bytes_sent=link.bytes_sent,
            bytes_received=link.bytes_received,
            frames_sent=link.frames_sent,
            frames_received=link.frames_received,
            pushes=link.pushes,
            refusals=link.refusals,
            mixed=link.mixed,
            in_flight=link.in_flight,
            roundtrip_s=link.roundtrip_s or None,
            silent_s=link.silent_s,
        )


def _of(member: Member) -> dict[str, Any]:
    return {
        "incarnation": None if member.phase is Phase.LEFT else member.incarnation,
        "address": bare_address(member.addresses[0]) if member.addresses else "",
        "step": member.step,
    }


def _answered(history: History) -> dict[str, Any]:
    """What a member says of itself."""
    status, settings = history.status, dict(history.status.settings)
    figures = dict(status.figures)
    told: dict[str, Any] = {name: _count(figures.get(name)) for name in _COUNTS}
    told |= {name: figures.get(name) for name in _REALS}
    memory = [_count(figures.get(name)) for name in _MEMORY]
    waits = bool(status.awaits) and status.me.phase is Phase.TRAINING
    return {
        **_of(status.me),
        **told,
        "state": "waiting" if waits else _STATES[status.me.phase],
        "host": settings.get("host", ""),
        "steps_s": history.steps_s,
        "staleness_mean": _staleness(history),
        "staleness_max": _count(figures.get("staleness_steps_max")),
        "reasons": status.reasons,
        "bytes_out_s": history.rate("bytes_sent"),
        "bytes_in_s": history.rate("bytes_received"),
        "memory_bytes": sum(filter(None, memory)) if None not in memory else None,
        "uptime_s": status.uptime_s,
        "awaits": status.awaits,
        "settings": settings,
    }


def _staleness(history: History) -> float | None:
    """The mean of the shares mixed lately, or of all where none was."""
    mixed, steps = history.grown("mixed"), history.grown("staleness_steps")
    if not mixed or mixed < 0 or steps is None:
        figures = dict(history.status.figures)
        mixed, steps = figures.get("mixed"), figures.get("staleness_steps")
    if not mixed or steps is None:
        return None
    return max(0.0, float(steps / mixed))


def _count(value: float | None) -> int | None:
    """A count as it must be; None for what can be none."""
    return int(value) if value is not None and 0 <= value < math.inf else None
