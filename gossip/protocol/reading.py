"""Models that are shown to be read: no weight goes along, and nothing is mixed.

A reader asks with READ; whoever is asked answers at its next step boundary with a share of no
weight, which says how much weight its sender holds beside the model. It travels as any other share
does. The reader looks at the values and sends it back, which settles it. A rule never sees it.
"""

from ..effects.effects import X
from ..exchange.incoming import Inbox
from ..exchange.transfer import IncomingState, IncomingTransfer
from ..types import PeerId, ShareId
from ..wire.formats import Form
from ..wire.messages import Read
from .sending import FreshSnapshots, send_share
from .state import State

__all__ = ["READ_FIRST", "Reading"]

READ_FIRST = "its sender's model is read first"
"""Why what a peer pushes is refused while it is asked for its model."""

_WHOLE = Form()


class Reading:
    """What a peer reads of others, and shows to them.

    Args:
        state: What the protocol remembers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.asking: dict[tuple[PeerId, int], None] = {}
        """Who wants to read which shard, in the order in which they asked."""
        self._wanted: PeerId = ""

    def wants(self, peer: PeerId) -> bool:
        """Whether what a peer shows is of use here; not to one that gave its swarm up meanwhile."""
        return peer == self._wanted and self._state.table.phase.takes_shares

    def may_show(self, peer: PeerId) -> bool:
        """Whether a peer can be expected to show its model: it takes part, is heard, and one of the
        two can dial the other."""
        table = self._state.table
        member = table.member(peer)
        is_there = member is not None and member.phase.takes_shares and table.can_meet(member)
        return is_there and table.is_alive(peer) and not table.is_suspected(peer)

    def read(self, peer: PeerId) -> None:
        """Ask a peer for its model, and send back what others, or it before, have shown.

        Args:
            peer: Whose; empty for nobody's any more.
        """
        state, known = self._state, self._state.table.member(peer)
        for shard_state in state.busy_shards:
            for transfer in tuple(shard_state.inbox.transfers.values()):
                if transfer.offer.held and transfer.id.sender != peer:
                    _send_back(shard_state.inbox, transfer)
        self._wanted = peer
        if known is None or state.closing:
            return
        for shard_state in state.shard_states:
            sender = peer, known.incarnation
            found = shard_state.inbox.transfers.get(sender)
            if found is not None and not found.offer.held:
                # Until it is decided, nothing else can come from there, and no step decides it.
                shard_state.inbox.decide(found, 0, READ_FIRST)
            if found is None or not found.offer.held:
                shard_state.log.send(*sender, Read())

    def shown(self) -> tuple[tuple[ShareId, int], ...]:
        """What there is to read: a share of each shard, and the weight that its sender holds of
        it; nothing before all have come."""
        found = []
        for shard_state in self._state.busy_shards:
            for transfer in shard_state.inbox.transfers.values():
                if transfer.offer.held and transfer.state is IncomingState.READY:
                    found.append((transfer.id, transfer.offer.held))
        return tuple(found) if len(found) == len(self._state.shard_states) else ()

    def asked(self, peer: PeerId, shard: int) -> None:
        """Note that somebody wants to read a shard."""
        if not self._state.closing:
            self.asking[peer, shard] = None

    def show(self, now: float) -> None:
        """Show the model, at a step boundary, to those who want to read it; not without memory."""
        table = self._state.table
        for peer, shard in tuple(self.asking):
            if self._state.lacks_memory:
                return
            shard_state, known = self._state.shard_states[shard], table.member(peer)
            reads = known is not None and known.phase.takes_shares and table.is_alive(peer)
            if not reads or self._state.closing:
                del self.asking[peer, shard]
            elif shard_state.weight and not shard_state.outbox.is_busy(peer):
                del self.asking[peer, shard]
                send_share(
                    *(self._state, shard_state, peer, now, FreshSnapshots(), X, _WHOLE),
                    escrow=0,
                    held=shard_state.weight,
                    round=self._state.round,
                )
                self._state.gave = True


def _send_back(inbox: Inbox, transfer: IncomingTransfer) -> None:
    if transfer.state is IncomingState.READY:
        # It was read: that is no refusal.
        inbox.read(transfer)
    else:
        inbox.decide(transfer, 0, "nobody reads it any more")
