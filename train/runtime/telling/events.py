"""Membership events, as log lines for people and as rows for programs."""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final, TypeGuard

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
from ....gossip.errors import TrainingError
from ....gossip.types import Incarnation, PeerId
from ....gossip.wire.messages import EVENTS_TOLD_MAX, EventNote
from ...storage.jsonl import JsonlLog, Tail

__all__ = ["Events", "is_told", "note_death"]

_log = logging.getLogger("rumor")

# Files in a peer's folder; its launcher writes the second one.
_EVENTS: Final = "events.jsonl"
_DEATHS: Final = "dead.jsonl"
_DEATHS_EVERY_S: Final = 0.5

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


def note_death(folder: Path, id: PeerId, incarnation: Incarnation) -> None:
    """Notify the peer of a folder that the process of an incarnation of another one has ended."""
    with open(folder / _DEATHS, "a") as file:
        file.write(json.dumps({"id": id, "incarnation": incarnation}) + "\n")


class Events:
    """Logs events, and records them in a peer's folder, if it has one. Thread-safe."""

    def __init__(self, folder: Path | None) -> None:
        self._rows = JsonlLog(None if folder is None else folder / _EVENTS)
        self._deaths = None if folder is None else Tail(folder / _DEATHS)
        self._deaths_due_s = 0.0
        self._lock = threading.Lock()
        self._started_s = time.monotonic()
        self._refused: set[Event] = set()
        # With the time of each.
        self._kept: deque[tuple[float, EventNote]] = deque(maxlen=_KEPT_MAX)
        self._noted = 0
        self._suspected: set[PeerId] = set()
        self._dead: set[PeerId] = set()

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

    def since(self, number: int, now: float) -> tuple[EventNote, ...]:
        """Return the events after *number* that an answer has room for, or the latest ones if it
        is 0."""
        with self._lock:
            later = [
                replace(note, ago_s=max(0.0, now - at_s))
                for at_s, note in self._kept
                if note.number > number
            ]
        return tuple(later[:EVENTS_TOLD_MAX] if number else later[-EVENTS_TOLD_MAX:])

    def doubted(self) -> tuple[frozenset[PeerId], frozenset[PeerId]]:
        """Return the suspected peers, and those whose process has ended, as their launcher said.

        The protocol has the latter as left, and may have forgotten some of the former by now.
        """
        with self._lock:
            return frozenset(self._suspected), frozenset(self._dead)

    def take_deaths(self) -> list[tuple[PeerId, Incarnation]]:
        """Return those of `note_death` since the last call."""
        if self._deaths is None or (now_s := time.monotonic()) < self._deaths_due_s:
            return []
        self._deaths_due_s = now_s + _DEATHS_EVERY_S
        try:
            return [(str(row["id"]), int(row["incarnation"])) for row in self._deaths.rows()]
        except (OSError, TrainingError, LookupError, TypeError, ValueError):
            return []  # a missed notice must not stop training

    def mark_dead(self, peer: PeerId) -> None:
        """Remember that the process of *peer* has ended."""
        with self._lock:
            self._dead.add(peer)

    def close(self) -> None:
        """Close the file; later events are only logged."""
        with self._lock:
            self._rows.close()

    def _note(self, event: str, peer: str | None = None) -> None:
        t_s = time.monotonic() - self._started_s
        row = {"t_s": t_s, "unix_s": time.time(), "event": event, "peer": peer}
        with self._lock:
            if event == "left" and peer in self._dead:
                row["event"] = event = "died"
            self._noted += 1
            note = EventNote(number=self._noted, event=event, peer=peer or "", ago_s=0.0)
            self._kept.append((time.monotonic(), note))
            if event == "suspected":
                self._suspected.add(peer or "")
            elif event in _HEARD_OR_GONE:
                self._suspected.discard(peer or "")
                if event in ("met", "recovered"):
                    self._dead.discard(peer or "")
            self._rows.write(row)
