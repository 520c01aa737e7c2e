"""Who reads a snapshot: it is let go after the last transfer that does."""

from ..effects.effect_log import EffectLog
from ..effects.effects import Release
from ..types import SnapshotId

__all__ = ["SnapshotRefs"]


class SnapshotRefs:
    """Counts the transfers that read a snapshot, and lets it go after the last one."""

    def __init__(self, log: EffectLog) -> None:
        self._log = log
        self.unread: list[SnapshotId] = []
        """Snapshots that may be let go at the end of the call at hand."""
        self._counts: dict[SnapshotId, int] = {}
        self._abandoned: set[SnapshotId] = set()

    @property
    def held(self) -> set[SnapshotId]:
        """Snapshots that have a reference, or are about to be released."""
        return set(self._counts)

    def add(self, snapshot: SnapshotId) -> None:
        """Add a reference."""
        self._counts[snapshot] = self._counts.get(snapshot, 0) + 1

    def remove(self, snapshot: SnapshotId, *, abandoned: bool = False) -> None:
        """Drop a reference.

        Args:
            abandoned: Whether a neighbor that is considered dead may still read it.
        """
        self._counts[snapshot] -= 1
        if abandoned:
            self._abandoned.add(snapshot)
        if self._counts[snapshot] == 0:
            self.unread.append(snapshot)

    def release_unread(self) -> None:
        """Release unreferenced snapshots, at the end of a call.

        Not earlier: a second push of the same call may read a snapshot that the first is done with.
        """
        for snapshot in self.unread:
            if self._counts.get(snapshot) == 0:
                del self._counts[snapshot]
                abandoned = snapshot in self._abandoned
                self._abandoned.discard(snapshot)
                self._log.ask(Release(snapshot, abandoned))
        self.unread.clear()
