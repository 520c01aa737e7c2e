"""Shares on their way out: what was copied for them, and the offer that they begin with."""

from ..effects.effects import Snapshot
from ..types import PeerId, SnapshotId
from ..wire.formats import Form
from ..wire.messages import Offer, Push
from .share import Kept, Pushed
from .state import ShardState, State

__all__ = ["FreshSnapshots", "send_share"]


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


def send_share(
    state: State,
    shard_state: ShardState,
    peer: PeerId,
    now: float,
    fresh: FreshSnapshots,
    pushed: Pushed,
    form: Form,
    *,
    escrow: int,
    held: int = 0,
    epoch: int = 0,
    round: int,
    note: int = 0,
) -> None:
    """Send a share: whole where it is small, else as an offer.

    Args:
        state: What the protocol remembers.
        shard_state: Of which shard.
        peer: To whom; no share is under way there.
        now: Seconds.
        fresh: What was copied during this call.
        pushed: What to send.
        form: In which format.
        escrow: The weight that goes along, or 0 where *held* only tells it.
        held: See `Offer`, as are the others.
        epoch: Likewise.
        round: Likewise.
        note: Likewise.
    """
    outbox, table, shard = shard_state.outbox, state.table, shard_state.shard
    size = form.size_bytes(state.schema, shard)
    make = Push if size <= state.config.inline_bytes_max else Offer
    offer = make(
        seq=outbox.next_seq(peer),
        escrow=escrow,
        size_bytes=size,
        form=form,
        epoch=epoch,
        round=round,
        note=note,
        step=table.step,
        held=held,
    )
    shown = make is Offer and table.shares_memory(peer)
    snapshot = fresh.take(state, pushed, form, shard, shown)
    if not shard_state.is_listed:
        state.list_busy(shard_state)
    outbox.push(peer, table.incarnation(peer), offer, snapshot, now, shown=shown)
