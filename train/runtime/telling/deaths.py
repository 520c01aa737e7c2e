"""Death notices from the launcher about processes of other peers."""

import json
import time
from pathlib import Path
from typing import Final

from ....gossip.errors import TrainingError
from ....gossip.types import Incarnation, PeerId
from ...storage.jsonl import Tail

__all__ = ["DeathNotices", "note_death"]

DEAD: Final = "dead.jsonl"
"""Name of the file in a peer's folder, written by its launcher."""

_EVERY_S: Final = 0.5


def note_death(folder: Path, id: PeerId, incarnation: Incarnation) -> None:
    """Notify the peer of a folder that an incarnation of another one has ended."""
    with open(folder / DEAD, "a") as file:
        file.write(json.dumps({"id": id, "incarnation": incarnation}) + "\n")


class DeathNotices:
    """Reads what `note_death` writes to *folder*; None for a peer without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._tail = None if folder is None else Tail(folder / DEAD)
        self._due_s = 0.0

    def take(self) -> list[tuple[PeerId, Incarnation]]:
        """Return the peers that have died since the last call."""
        if self._tail is None or (now_s := time.monotonic()) < self._due_s:
            return []
        self._due_s = now_s + _EVERY_S
        try:
            return [(str(row["id"]), int(row["incarnation"])) for row in self._tail.rows()]
        except (OSError, TrainingError, LookupError, TypeError, ValueError):
            return []  # a missed notice must not stop training
