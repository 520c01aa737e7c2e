"""Figures of a swarm that runs, in words: columns of members, a line about all, lines of events."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import printable

if TYPE_CHECKING:
    from ...train.observe.view import EventView, PeerView, SwarmView

__all__ = [
    "COLUMNS",
    "STYLES",
    "Column",
    "amount",
    "ascending",
    "columns_for",
    "event_line",
    "ordered",
    "rate",
    "shown_name",
    "span",
    "summary",
]

STYLES: Final = {
    "training": "green",
    "waiting": "yellow",
    "finished": "blue",
    "quiet": "blue",
    "suspected": "yellow",
    "silent": "yellow",
    "dead": "red",
    "left": "dim",
}
"""How states are told apart; others are as usual."""

_NAME_MAX: Final = 24
_TELLERS_MAX: Final = 3

Value = float | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of members."""

    title: str
    width: int
    value: "Callable[[PeerView], Value]"
    """What members are put into order by; None where it is not known."""
    text: "Callable[[PeerView], str]"
    room: int = 0
    """How wide a terminal must be for it to be shown."""


def amount(value: float | None, digits: int = 3) -> str:
    """A number in a few characters.

    >>> amount(1234567), amount(0.12345), amount(None), amount(0.000123), amount(float("inf"))
    ('1.23M', '0.123', '-', '1.2e-04', 'inf')
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if 0 < abs(value) < 1e-3:
        return f"{value:.1e}"
    # What is rounded up to a thousand is one of the next letter.
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if 1e18 > abs(value) >= 0.9995 * size:
            return f"{value / size:.{digits}g}{letter}"
    if 1e6 > abs(value) >= 1e4:
        return f"{value / 1e3:.{digits}g}k"
    return f"{value:.0f}" if 10**digits - 0.5 <= abs(value) < 1e4 else f"{value:.{digits}g}"


def rate(bytes_s: float | None) -> str:
    """Bytes per second.

    >>> rate(0.0), rate(950.0), rate(12_345.0), rate(3.2e6), rate(None)
    ('0', '950', '12.3k', '3.2M', '-')
    """
    return amount(None if bytes_s is None else float(round(bytes_s)))


def span(seconds: float | None) -> str:
    """A time in a few characters.

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
    """A name from elsewhere: without what would command a terminal, and not too long."""
    text = printable(text)
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def _staleness(peer: "PeerView") -> str:
    if peer.staleness_mean is None:
        return "-"
    return amount(round(peer.staleness_mean, 1) if math.isfinite(peer.staleness_mean) else None)


def _lost(peer: "PeerView") -> int | None:
    """Shares that came to nothing, its own and others'."""
    found = [count for count in (peer.refusals, peer.refused) if count is not None]
    return sum(found) if found else None


COLUMNS: Final = (
    Column("peer", 12, lambda p: p.id, lambda p: shown_name(p.id)),
    # A state with a * is what other members say of it.
    Column("state", 10, lambda p: p.state, lambda p: p.state + "*" * (p.source == "others")),
    Column("step", 7, lambda p: p.step, lambda p: amount(p.step, 4)),
    Column("step/s", 6, lambda p: p.steps_s, lambda p: amount(p.steps_s)),
    Column("weight", 7, lambda p: p.weight, lambda p: amount(p.weight)),
    Column("loss", 7, lambda p: p.loss, lambda p: amount(p.loss)),
    Column("stale", 5, lambda p: p.staleness_mean, _staleness),
    Column("out/s", 6, lambda p: p.bytes_out_s, lambda p: rate(p.bytes_out_s)),
    Column("in/s", 6, lambda p: p.bytes_in_s, lambda p: rate(p.bytes_in_s)),
    Column("lost", 4, _lost, lambda p: amount(_lost(p))),
    Column("accuracy", 8, lambda p: p.accuracy, lambda p: amount(p.accuracy, 4), room=100),
    Column("stale max", 9, lambda p: p.staleness_max, lambda p: amount(p.staleness_max), room=112),
    Column("up", 8, lambda p: p.uptime_s, lambda p: span(p.uptime_s), room=122),
    Column(
        "address",
        21,
        lambda p: p.address,
        lambda p: shown_name(p.address, 40) or "dials out",
        room=146,
    ),
)
"""In the order in which they are shown."""


def columns_for(width: int) -> tuple[Column, ...]:
    """The columns that a terminal of so many characters has room for."""
    return tuple(column for column in COLUMNS if column.room <= width)


def ascending(column: Column) -> bool:
    """Whether members are first shown with the least one on top: names are, figures are not."""
    return column.title in ("peer", "state", "address")


def ordered(
    peers: "Sequence[PeerView]", column: Column, *, reverse: bool = False
) -> "list[PeerView]":
    """Members by one figure; those of whom it is not known come last, whatever the order."""
    known = [peer for peer in peers if column.value(peer) is not None]
    unknown = [peer for peer in peers if column.value(peer) is None]
    # By name first, so that equals do not change places each second.
    known.sort(key=lambda peer: peer.id)
    known.sort(key=_key(column), reverse=reverse)
    return known + sorted(unknown, key=lambda peer: peer.id)


def _key(column: Column) -> "Callable[[PeerView], tuple[float, str]]":
    def key(peer: "PeerView") -> tuple[float, str]:
        value = column.value(peer)
        return (0.0, value) if isinstance(value, str) else (float(value or 0), "")

    return key


def summary(view: "SwarmView") -> str:
    """The swarm in a line or two."""
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
    "founded": "has founded a swarm",
    "met": "is there",
    "suspected": "is silent",
    "recovered": "is heard again",
    "died": "is considered dead",
    "left": "has left",
    "full": "has no room for more names",
}


def event_line(event: "EventView") -> str:
    """An event in words."""
    at = time.strftime("%H:%M:%S", time.localtime(event.time_s))
    what = _WORDS.get(event.event, printable(event.event))
    if event.event == "joined":
        what = "has joined" + (f", a copy of {shown_name(event.donor)}" if event.donor else "")
    told = [teller for teller in event.told_by if teller != event.peer]
    if not told:
        return f"{at}  {shown_name(event.peer)} {what}"
    names = ", ".join(map(shown_name, told[:_TELLERS_MAX]))
    more = f" and {len(told) - _TELLERS_MAX} more" if len(told) > _TELLERS_MAX else ""
    return f"{at}  {shown_name(event.peer)} {what} (say {names}{more})"
