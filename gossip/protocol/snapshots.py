"""What was copied out of registers during one call of the rule."""

from ..effects.effects import Snapshot
from ..types import SnapshotId
from ..wire.formats import Form
from .share import Kept, Pushed
from .state import State

__all__ = ["FreshSnapshots"]


class FreshSnapshots(dict[Pushed, dict[tuple[Form, int, bool], SnapshotId]]):
    """By what was pushed: pushes of a register that has not changed in between share a snapshot."""

    def take(self, state: State, pushed: Pushed, form: Form, shard: int, shown: bool) -> SnapshotId:
        """Find the snapshot of what is pushed, or have it taken."""
        fresh, key = self.setdefault(pushed, {}), (form, shard, shown)
        snapshot = fresh.get(key)
        if snapshot is None:
            assert not isinstance(pushed, Kept)
            snapshot = state.snapshots = fresh[key] = state.snapshots + 1
            state.log.ask(Snapshot(snapshot, pushed, form, shard, shown))
        return snapshot

    def note(self, kept: Kept) -> None:
        """Let pushes of what was kept read that."""
        self[kept] = {(kept.form, 0, shown): kept.as_sent for shown in (False, True)}

    def forget(self, register: str) -> None:
        """Let the next push of a register that has changed have a snapshot of its own."""
        for pushed in [*self]:
            if register == pushed or (type(pushed) is tuple and register in pushed):
                del self[pushed]
