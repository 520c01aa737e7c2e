"""Shares on their way out: what was copied for them, and the offer that they begin with."""

from collections.abc import Sequence

from ..effects.effects import Snapshot
from ..errors import LocalProtocolError
from ..types import PeerId, SnapshotId
from ..wire.formats import Form, parse_wire
from ..wire.messages import Offer, Push
from .share import Kept, Pushed
from .state import ShardState, State

__all__ = ["FreshSnapshots", "form_of", "registers_of", "send_share"]

_PLAIN = Form()


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


def form_of(state: State, peer: PeerId, *, copy: bool, anchor: bool, whole: bool) -> Form:
    """What a share consists of that is a copy, or in a format of its own where it can be.

    Args:
        state: What the protocol remembers.
        peer: Who is to read it.
        copy, anchor, whole: See `RuleContext.push`.
    """
    if copy:
        is_anchor_sent = anchor and state.is_anchored
        return Form(copy=True, anchor=is_anchor_sent, registers=len(state.copied))
    if whole or state.bare:
        return _PLAIN
    needs_anchor = parse_wire(state.config.wire).needs_anchor
    if needs_anchor and not (state.is_anchored and state.table.is_anchored(peer)):
        return _PLAIN
    return Form(state.config.wire)


def registers_of(
    state: State, fresh: FreshSnapshots, given: Sequence[str] | Kept, form: Form
) -> tuple[Pushed, Form]:
    """What is pushed, and its form, where that is several registers, or was kept.

    Raises:
        LocalProtocolError: There are none, or more registers than the rule says.
    """
    if isinstance(given, Kept):
        fresh.note(given)
        return given, given.form
    registers = tuple(given)
    most = state.share_registers
    if not 1 <= len(registers) <= most:
        raise LocalProtocolError(
            f"cannot push {len(registers)} registers in one share: the rule's "
            f"requirements.share_registers is {most}"
        )
    if len(registers) == 1:
        return registers[0], form
    return registers, form._replace(registers=len(registers))


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
        step=table.step + state.steps_going_on,
        held=held,
    )
    shown = make is Offer and table.shares_memory(peer)
    snapshot = fresh.take(state, pushed, form, shard, shown)
    if not shard_state.is_listed:
        state.list_busy(shard_state)
    outbox.push(peer, table.incarnation(peer), offer, snapshot, now, shown=shown)
