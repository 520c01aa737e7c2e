"""Membership events, as log lines for people and as rows for programs."""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from ....gossip.effects.effects import Effect
from ....gossip.effects.events import (
    Event,
    Founded,
    Joined,
    PeerDied,
    PeerLeft,
    PeerMet,
    PeerRecovered,
    PeerRefused,
    PeerSuspected,
    StaleIncarnation,
    SwarmGivenUp,
    ViewFull,
)
from ....gossip.types import PeerId
from ...storage.jsonl import JsonlLog

__all__ = ["Events", "Noted", "is_told"]

_log = logging.getLogger("rumor")

_EVENTS: Final = "events.jsonl"
"""File in a peer's folder."""

_HEARD_OR_GONE: Final = frozenset({"met", "recovered", "died", "left"})

# Kept for observers, which poll; older events are in the file.
_KEPT_MAX: Final = 256


_TOLD: Final[Mapping[type[Event], tuple[str, str]]] = {
    Founded: ("founded a swarm", "founded"),
    Joined: ("joined: the model is now a copy of %s's", "joined"),
    PeerMet: ("met %s", "met"),
    PeerSuspected: ("%s is silent: it gets no shares until it is heard again", "suspected"),
    PeerRecovered: ("%s is heard again", "recovered"),
    PeerDied: ("%s has fallen silent and is considered dead", "died"),
    PeerLeft: ("%s has left", "left"),
    PeerRefused: ("%s cannot be one of this swarm: %s", ""),
    StaleIncarnation: ("a later incarnation of this peer's own name is known to others", ""),
    SwarmGivenUp: ("met another swarm, joining it: steps taken alone are lost", ""),
    ViewFull: (
        "%d names are kept in mind, which is all there is room for, and none of them can be "
        "forgotten: this peer lets no newcomer in",
        "full",
    ),
}
"""Log message, and name in the file; empty to leave it out of the file."""

# Nothing is wrong if members come, leave or pause.
_USUAL: Final = (Founded, Joined, PeerMet, PeerSuspected, PeerRecovered, PeerLeft)


def is_told(effect: Effect | Event) -> TypeGuard[Event]:
    """True for an event that concerns members."""
    return type(effect) in _TOLD


class Noted(NamedTuple):
    """A remembered event."""

    number: int
    """Number of the event, from 1."""
    event: str
    peer: PeerId
    """The peer that it concerns; empty for this peer."""
    at_s: float


class Events:
    """Logs events, and records them in a peer's folder, if it has one. Thread-safe."""

    def __init__(self, folder: Path | None) -> None:
        self._rows = JsonlLog(None if folder is None else folder / _EVENTS)
        self._lock = threading.Lock()
        self._started_s = time.monotonic()
        self._refused: set[Event] = set()
        self._kept: deque[Noted] = deque(maxlen=_KEPT_MAX)
        self._noted = 0
        self._suspected: set[PeerId] = set()

    def tell(self, event: Event) -> None:
        """Log and record an event that `is_told`; a refusal once."""
        if event in self._refused:
            return
        if isinstance(event, PeerRefused):
            self._refused.add(event)
        words, name = _TOLD[type(event)]
        level = logging.INFO if isinstance(event, _USUAL) else logging.WARNING
        _log.log(level, words, *astuple(event)[: words.count("%")])
        if name:
            self._note(name, getattr(event, "donor", getattr(event, "peer", None)))

    def since(self, number: int, count_max: int) -> list[Noted]:
        """Return at most *count_max* events after *number*, or the latest ones if it is 0."""
        with self._lock:
            later = [noted for noted in self._kept if noted.number > number]
        return later[:count_max] if number else later[-count_max:]

    def suspected(self) -> frozenset[PeerId]:
        """Return the suspected peers; the protocol may have forgotten some of them by now."""
        with self._lock:
            return frozenset(self._suspected)

    def close(self) -> None:
        """Close the file; later events are only logged."""
        with self._lock:
            self._rows.close()

    def _note(self, event: str, peer: str | None = None) -> None:
        t_s = time.monotonic() - self._started_s
        row = {"t_s": t_s, "unix_s": time.time(), "event": event, "peer": peer}
        with self._lock:
            self._noted += 1
            self._kept.append(Noted(self._noted, event, peer or "", time.monotonic()))
            if event == "suspected":
                self._suspected.add(peer or "")
            elif event in _HEARD_OR_GONE:
                self._suspected.discard(peer or "")
            self._rows.write(row)
