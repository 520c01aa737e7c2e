"""Who still needs which snapshot."""

from .agenda import Agenda
from .effects import Release, SnapshotId

__all__ = ["Readers"]


class Readers:
    """Counts the transfers that read a snapshot, and lets it go after the last one.

    Args:
        agenda: Where effects go.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.unread: list[SnapshotId] = []
        """Snapshots that may be let go at the end of the call at hand."""
        self._counts: dict[SnapshotId, int] = {}
        self._abandoned: set[SnapshotId] = set()

    def add(self, snapshot: SnapshotId) -> None:
        """Note one more reader."""
        self._counts[snapshot] = self._counts.get(snapshot, 0) + 1

    def remove(self, snapshot: SnapshotId, *, abandoned: bool = False) -> None:
        """Note one reader less.

        Args:
            snapshot: What it read.
            abandoned: Whether a neighbor that is held for dead may read it all the same.
        """
        self._counts[snapshot] -= 1
        if abandoned:
            self._abandoned.add(snapshot)
        if self._counts[snapshot] == 0:
            self.unread.append(snapshot)

    def release_unread(self) -> None:
        """Let go of what has no reader any more; at the end of a call.

        Not earlier: a second push of the same turn may read a snapshot that the first is done with.
        """
        for snapshot in self.unread:
            if self._counts.get(snapshot) == 0:
                del self._counts[snapshot]
                abandoned = snapshot in self._abandoned
                self._abandoned.discard(snapshot)
                self._agenda.ask(Release(snapshot, abandoned))
        self.unread.clear()
