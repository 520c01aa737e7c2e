"""What happens among the members, in words for people and as rows for programs."""

import logging
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

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

__all__ = ["EVENTS", "Events", "Noted"]

_log = logging.getLogger("rumor")

EVENTS: Final = "events.jsonl"
"""What the file is called in a peer's folder."""

_HEARD_OR_GONE: Final = frozenset({"met", "recovered", "died", "left"})

# For whoever asks now and then: what is older stands in the file.
_KEPT_MAX: Final = 256


class Noted(NamedTuple):
    """An event that is remembered."""

    number: int
    """Counts them, from 1."""
    event: str
    peer: PeerId
    """Whom it is about; empty where that is this peer."""
    at_s: float
    """When, by ``time.monotonic``."""


class Events:
    """Tells of what happened; its methods may be called on any thread.

    Args:
        path: Where the rows go, one for each event, if the disk takes it; None for nowhere.
    """

    def __init__(self, path: Path | None) -> None:
        self._rows = JsonlLog(path)
        self._lock = threading.Lock()
        self._started_s = time.monotonic()
        self._refused: set[str] = set()
        self._kept: deque[Noted] = deque(maxlen=_KEPT_MAX)
        self._noted = 0
        self._suspected: set[PeerId] = set()

    def tell(self, event: Event) -> None:
        """Say what happened, where it is about members."""
        match event:
            case Founded():
                _log.info("founded a swarm")
                self._note("founded")
            case Joined(donor):
                _log.info("joined: the model is now a copy of %s's", donor)
                self._note("joined", donor)
            case PeerMet(peer):
                _log.info("met %s", peer)
                self._note("met", peer)
            case PeerSuspected(peer):
                _log.info("%s is silent: it gets no shares until it is heard again", peer)
                self._note("suspected", peer)
            case PeerRecovered(peer):
                _log.info("%s is heard again", peer)
                self._note("recovered", peer)
            case PeerDied(peer):
                _log.warning("%s has fallen silent and is considered dead", peer)
                self._note("died", peer)
            case PeerLeft(peer):
                _log.info("%s has left", peer)
                self._note("left", peer)
            case PeerRefused(peer, reason):
                if peer not in self._refused:
                    self._refused.add(peer)
                    _log.warning("%s cannot be one of this swarm: %s", peer, reason)
            case StaleIncarnation():
                _log.warning("a later incarnation of this peer's own name is known to others")
            case SwarmGivenUp():
                _log.warning("met another swarm, joining it: steps taken alone are lost")
            case ViewFull(names):
                _log.warning(
                    "%d names are kept in mind, which is all there is room for, and none of them "
                    "can be forgotten: whoever comes now is not let in by this peer",
                    names,
                )
                self._note("full")
            case _:
                pass

    def since(self, number: int, count_max: int) -> list[Noted]:
        """What is remembered of what came after the event of a number, the oldest first.

        Args:
            number: 0 for the latest ones that there are.
            count_max: How many at most.
        """
        with self._lock:
            later = [noted for noted in self._kept if noted.number > number]
        return later[:count_max] if number else later[-count_max:]

    @property
    def suspected(self) -> frozenset[PeerId]:
        """Those who are silent, and not considered dead; some may be forgotten by now."""
        with self._lock:
            return frozenset(self._suspected)

    def close(self) -> None:
        """Close the file; what happens later is told, and not noted."""
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
