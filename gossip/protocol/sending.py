"""Sending of shares: their snapshots, and the offers that they begin with."""

import math

from ..effects.effects import Drop, Snapshot, X
from ..exchange.transfer import IncomingState
from ..types import PeerId, ShareId, SnapshotId
from ..wire.formats import Form, parse_wire
from ..wire.messages import Offer, Push, Read
from .share import Kept, Pushed
from .state import READ_FIRST, State

__all__ = ["FreshSnapshots", "Reading", "form_of", "send_share"]

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
    held: int = 0,
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
        held=held,
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


class Reading:
    """Models that a peer reads from others, and shows to them.

    A reader asks with READ. The receiver answers at its next step boundary with a share of no
    weight, which states what its sender holds of the model. It travels as any other share does; the
    reader sends it back, which settles it, and rules never see it.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.asking: dict[tuple[PeerId, int], None] = {}
        """Pending readers, by peer and shard."""

    def may_show(self, peer: PeerId) -> bool:
        """Return True if a peer is expected to show its model."""
        table = self._state.table
        member, is_heard = table.member(peer), bool(table.reachable([peer], math.inf))
        return is_heard and member is not None and member.phase.takes_shares

    def read(self, peer: PeerId) -> None:
        """Ask a peer for its model, and send back the models that other peers have shown."""
        state, known = self._state, self._state.table.member(peer)
        for shard_state in state.busy_shards:
            for transfer in tuple(shard_state.inbox.transfers.values()):
                if not transfer.offer.held or transfer.id.sender == peer:
                    continue
                reason = "nobody reads it any more"
                if transfer.state is IncomingState.READY:
                    # It was read, which is not a refusal.
                    shard_state.log.emit(Drop(transfer.id))
                    reason = ""
                shard_state.inbox.decide(transfer, 0, reason)
        state.reads = peer
        if known is None or state.closing:
            return
        for shard_state in state.shard_states:
            sender = peer, known.incarnation
            found = shard_state.inbox.transfers.get(sender)
            if found is not None and not found.offer.held:
                # Until this share is decided, the sender cannot send another, and no step decides
                # it.
                shard_state.inbox.decide(found, 0, READ_FIRST)
            if found is None or not found.offer.held:
                shard_state.log.send(*sender, Read())

    def shown(self) -> tuple[tuple[ShareId, int], ...]:
        """Return the share of each shard, with its sender's weight; empty before all are here."""
        found = []
        for shard_state in self._state.busy_shards:
            for transfer in shard_state.inbox.transfers.values():
                if transfer.offer.held and transfer.state is IncomingState.READY:
                    found.append((transfer.id, transfer.offer.held))
        return tuple(found) if len(found) == len(self._state.shard_states) else ()

    def asked(self, peer: PeerId, shard: int) -> None:
        if not self._state.closing:
            self.asking[peer, shard] = None

    def show(self, now: float) -> None:
        """Show the model to peers that asked to read it, if memory allows."""
        table = self._state.table
        for peer, shard in tuple(self.asking):
            if self._state.lacks_memory:
                return
            shard_state, known = self._state.shard_states[shard], table.member(peer)
            reads = known is not None and known.phase.takes_shares and table.is_alive(peer)
            if not reads or self._state.closing:
                del self.asking[peer, shard]
            elif shard_state.weight and peer not in shard_state.outbox.transfers:
                del self.asking[peer, shard]
                send_share(
                    *(self._state, shard, peer, now, {}, X, _PLAIN),
                    escrow=0,
                    held=shard_state.weight,
                    round=self._state.round,
                )
                self._state.gave = True
