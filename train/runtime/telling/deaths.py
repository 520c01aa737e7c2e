"""Notices from the launcher: processes of other peers that have died."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....gossip.types import Incarnation, PeerId

__all__ = ["DeathNotices", "note_death"]

DEAD: Final = "dead.jsonl"
"""In a peer's folder, written by its launcher."""

_EVERY_S: Final = 0.5


def note_death(folder: Path, id: PeerId, incarnation: Incarnation) -> None:
    """Tell the peer of a folder that an incarnation of another one has ended.

    Raises:
        OSError: It cannot be written.
    """
    with open(folder / DEAD, "a") as file:
        file.write(json.dumps({"id": id, "incarnation": incarnation}) + "\n")


class DeathNotices:
    """Reads what `note_death` writes.

    Args:
        folder: The peer's; None where it has none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / DEAD
        self._offset = 0
        self._due_s = 0.0

    def take(self) -> Iterator[tuple[PeerId, Incarnation]]:
        """Peers that have died since the last call; the file is read twice a second at most."""
        if self._path is None or (now_s := time.monotonic()) < self._due_s:
            return
        self._due_s = now_s + _EVERY_S
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                lines = file.read().splitlines(keepends=True)
        except OSError:
            return
        for line in lines:
            if not line.endswith(b"\n"):
                return
            self._offset += len(line)
            # A disk that was full has cut a line off, and the next one was added to it.
            with suppress(ValueError, LookupError, TypeError):
                told = json.loads(line)
                yield str(told["id"]), int(told["incarnation"])
