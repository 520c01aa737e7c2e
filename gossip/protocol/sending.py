"""Sending of shares: their snapshots, and the offers that they begin with."""

from ..effects.effects import Snapshot
from ..types import PeerId, SnapshotId
from ..wire.formats import Form, parse_wire
from ..wire.messages import Offer, Push
from .share import Kept, Pushed
from .state import State

__all__ = ["FreshSnapshots", "form_of", "send_share"]

_PLAIN = Form()

FreshSnapshots = dict[tuple[str | tuple[str, ...], Form, int, bool], SnapshotId]
"""Snapshots by content, form, shard and whether they are shown: pushes of a register that has not
changed in between share one."""


def form_of(state: State, peer: PeerId, *, copy: bool, anchor: bool, whole: bool) -> Form:
    """Return the form of a share: the configured one if the receiver can decode it."""
    if copy:
        return Form(copy=True, anchor=anchor and state.is_anchored)
    if whole or state.requirements.bare:
        return _PLAIN
    needs_anchor = parse_wire(state.config.wire).needs_anchor
    member = state.table.member(peer)
    if needs_anchor and not (state.is_anchored and member is not None and member.anchored):
        return _PLAIN
    return Form(state.config.wire)


def send_share(
    state: State,
    shard: int,
    peer: PeerId,
    now: float,
    fresh: FreshSnapshots,
    pushed: Pushed,
    form: Form,
    *,
    escrow: int,
    epoch: int = 0,
    round: int,
    note: int = 0,
) -> None:
    """Send a share: whole if it is small, else as an offer."""
    shard_state, table = state.shard_states[shard], state.table
    outbox, size = shard_state.outbox, form.size_bytes(state.schema, shard)
    seq = outbox.last_seq[peer] = outbox.last_seq.get(peer, 0) + 1
    make = Push if size <= state.config.inline_bytes_max else Offer
    offer = make(
        seq=seq,
        escrow=escrow,
        size_bytes=size,
        form=form,
        epoch=epoch,
        round=round,
        note=note,
        step=table.step + state.steps_going_on,
    )
    shown = make is Offer and state.shares_memory(peer)
    if isinstance(pushed, Kept):
        snapshot = pushed.as_sent
    elif (key := (pushed, form, shard, shown)) in fresh:
        snapshot = fresh[key]
    else:
        snapshot = fresh[key] = state.snapshots = state.snapshots + 1
        state.log.emit(Snapshot(snapshot, pushed, form, shard, shown))
    if not shard_state.is_listed:
        state.list_busy(shard_state)
    outbox.push(peer, table.incarnation(peer), offer, snapshot, now, shown=shown)
