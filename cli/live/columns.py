"""Figures of a running swarm, in words: columns of members, lines about all and each event."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import printable

if TYPE_CHECKING:
    from ...train.observe.view import EventView, PeerView, SwarmView

__all__ = [
    *("COLUMNS", "STYLES", "Column", "amount", "event_line", "ordered", "shown_name"),
    *("span", "summary"),
]

STYLES: Final = {
    "training": "green",
    "waiting": "yellow",
    "finished": "blue",
    "quiet": "blue",
    "cut off": "yellow",
    "suspected": "yellow",
    "silent": "yellow",
    "dead": "red",
    "left": "dim",
}
"""Colors of states; other states have none."""

_NAME_MAX: Final = 24


def amount(value: float | None, digits: int = 3) -> str:
    """Format a number in a few characters.

    >>> amount(1234567), amount(0.12345), amount(None), amount(0.000123), amount(float("inf"))
    ('1.23M', '0.123', '-', '1.2e-04', 'inf')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if 0 < abs(value) < 1e-3:
        return f"{value:.1e}"
    # A value that rounds up to a thousand gets the next letter.
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if 1e18 > abs(value) >= 0.9995 * size:
            return f"{value / size:.{digits}g}{letter}"
    if 1e6 > abs(value) >= 1e4:
        return f"{value / 1e3:.{digits}g}k"
    return f"{value:.0f}" if 10**digits - 0.5 <= abs(value) < 1e4 else f"{value:.{digits}g}"


def span(seconds: float | None) -> str:
    """Format a time in a few characters.

    >>> span(0.00042), span(0.412), span(3.21), span(83.0), span(7300.0), span(None)
    ('0.42 ms', '412 ms', '3.2 s', '1:23', '2:01:40', '-')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 0.9995:
        return f"{1000 * seconds:.{2 if seconds < 0.0995 else 3}g} ms"
    if seconds < 60:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def shown_name(text: str, length_max: int = _NAME_MAX) -> str:
    """Return a foreign name without control characters for a terminal, and not too long."""
    text = printable(text)
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of members."""

    title: str
    value: "Callable[[PeerView], float | str | None]"
    """Sort key of members; None if unknown."""
    text: "Callable[[PeerView], str]"
    room: int = 0
    """Minimum width of a terminal to show it."""

    @property
    def ascends(self) -> bool:
        """True if the least value is on top: names are sorted so, figures are not."""
        return self.title in ("peer", "state", "address")


def _number(
    title: str,
    value: "Callable[[PeerView], float | None]",
    shown: Callable[[float | None], str] = amount,
    room: int = 0,
) -> Column:
    return Column(title, value, lambda peer: shown(value(peer)), room)


def _figure(title: str, name: str, digits: int = 3, room: int = 0) -> Column:
    return _number(title, lambda peer: peer.figures.get(name), lambda x: amount(x, digits), room)


def _lost(peer: "PeerView") -> float | None:
    # Its own shares, and others'.
    found = [peer.figures[name] for name in ("refusals", "refused") if name in peer.figures]
    return sum(found) if found else None


COLUMNS: Final = (
    Column("peer", lambda p: p.id, lambda p: shown_name(p.id)),
    # A state with a * comes from other members.
    Column("state", lambda p: p.state, lambda p: p.state + "*" * (p.source == "others")),
    _number("step", lambda p: p.step, lambda step: amount(step, 4)),
    _number("step/s", lambda p: p.steps_s),
    _figure("weight", "weight"),
    _figure("loss", "loss"),
    _number("stale", lambda p: p.staleness_mean),
    _number("out/s", lambda p: p.bytes_out_s),
    _number("in/s", lambda p: p.bytes_in_s),
    _number("lost", _lost),
    _figure("accuracy", "accuracy", 4, room=100),
    _number("up", lambda p: p.uptime_s, span, room=122),
    Column(
        "address",
        lambda p: p.address,
        lambda p: shown_name(p.address, 40) or ("-" if p.is_gone else "dials out"),
        room=146,
    ),
)
"""Columns in display order."""


def ordered(peers: "Sequence[PeerView]", sort: str) -> "list[PeerView]":
    """Sort members by the column of a title; members without a value come last in any case."""
    column = next(column for column in COLUMNS if column.title == sort)
    # Sorted by name first, so that equals keep their places every second.
    peers = sorted(peers, key=lambda peer: peer.id)
    known = [peer for peer in peers if column.value(peer) is not None]
    # All values of a column have one type.
    known.sort(key=column.value, reverse=not column.ascends)  # type: ignore[arg-type]
    return known + [peer for peer in peers if column.value(peer) is None]


def summary(view: "SwarmView") -> str:
    """Describe the swarm in a line or two."""
    gone = len(view.peers) - view.alive
    parts = [
        f"swarm {view.swarm[:8] or '?'}",
        f"step {view.swarm_step:,}" + (f" (+{amount(view.steps_s)}/s)" if view.steps_s else ""),
        f"{view.alive} alive" + (f", {gone} gone" if gone else ""),
    ]
    if view.weight is not None:
        parts.append(f"weight {amount(view.weight, 4)}")
    if view.consensus_distance is not None:
        parts.append(f"models differ by {amount(view.consensus_distance, 2)}")
    if view.uptime_s is not None:
        parts.append(f"up {span(view.uptime_s)}")
    return " · ".join(parts)


_WORDS: Final = {
    "founded": "founded the swarm",
    "suspected": "is suspected",
    "recovered": "is back",
    "died": "is considered dead",
    "left": "left",
    "full": "has no room for more members",
}


def event_line(event: "EventView") -> str:
    """Describe an event."""
    at = time.strftime("%H:%M:%S", time.localtime(event.time_s))
    what = _WORDS.get(event.event, printable(event.event))
    if event.event == "joined":
        what = "joined" + (f", as a copy of {shown_name(event.donor)}" if event.donor else "")
    tellers = [teller for teller in event.told_by if teller != event.peer]
    source = f" (reported by {', '.join(map(shown_name, tellers))})" if tellers else ""
    return f"{at}  {shown_name(event.peer)} {what}{source}"
