"""Validation of messages: is each for this incarnation, model and swarm?"""

from ..effects.effects import Part
from ..effects.events import PeerRefused, SwarmGivenUp
from ..errors import RemoteProtocolError
from ..exchange.transfer import EscrowEvent
from ..membership.table import MemberTable
from ..types import ShareId
from ..wire.messages import Ack, Ask, Describe, Envelope, Hello, Offer, Pending, Phase, Query
from .join import Joining
from .state import State

__all__ = ["MessageFilter"]


class MessageFilter:
    """Decides which messages are processed at all."""

    def __init__(self, state: State, joining: Joining) -> None:
        self._state = state
        self._joining = joining

    def admits(self, envelope: Envelope, now: float) -> bool:
        """Return True if the body of a message may be processed; if not, tell the sender why."""
        state, source, body = self._state, envelope.source, envelope.body
        log, account, table = state.log, state.log.account, state.table
        if (
            envelope.swarm == log.swarm
            and envelope.schema == state.schema.hash
            and envelope.destination == account.id != source
            and envelope.destination_incarnation == account.incarnation
            and envelope.shard < len(state.shard_states)
            and type(body) is not Describe
            and (
                table.incarnation(source) >= envelope.source_incarnation
                if table.only is None
                else source in table.only
            )
        ):
            # Fast path for nearly every message: all checks below would pass.
            return True
        if source == account.id:
            raise RemoteProtocolError("a message in this peer's own name", source)
        is_mine = envelope.schema == state.schema.hash or type(body) is Describe
        if envelope.shard >= len(state.shard_states) and is_mine:
            raise RemoteProtocolError(f"a message about shard {envelope.shard}", source)
        # If an incarnation from the far future were believed, it would shut out all later ones.
        incarnation = envelope.source_incarnation
        if isinstance(table, MemberTable) and not table.is_plausible(incarnation, now):
            if isinstance(body, Hello):
                why = "its clock is far ahead of this peer's: set both by the same time"
                log.emit(PeerRefused(source, why))
            return False
        receiver = envelope.destination, envelope.destination_incarnation
        if receiver != account.life and not isinstance(body, Hello | Describe):
            # The sender must learn which incarnation runs here now, or it would ask forever.
            self._answer(envelope)
            return False
        if isinstance(body, Describe):
            difference = state.schema.difference(body.schema)
            if difference is not None:
                log.emit(PeerRefused(source, f"it trains another model: {difference}"))
                return False
        elif envelope.schema != state.schema.hash:
            log.send(source, incarnation, Describe(state.schema))
            return False
        return self._is_of_my_swarm(envelope, now) and self._is_known(envelope)

    def _is_known(self, envelope: Envelope) -> bool:
        """Return True if the sender of a share, or of a query about one, ever sent a HELLO."""
        # Each first exchange with an incarnation adds a permanent ledger entry, and invented names
        # are free.
        sender = envelope.source, envelope.source_incarnation
        if (
            not isinstance(envelope.body, Offer | Query | Ask)
            or self._state.table.member(envelope.source) is not None
            or sender in self._state.shard_states[envelope.shard].log.account.decided
        ):
            return True
        self._answer(envelope, reply=True)
        return False

    def _is_of_my_swarm(self, envelope: Envelope, now: float) -> bool:
        state, theirs, body = self._state, envelope.swarm, envelope.body
        if not theirs or not state.log.swarm or theirs == state.log.swarm:
            return True
        if isinstance(body, Hello):
            return self._meet_other_swarm(envelope, body, now)
        if isinstance(body, Offer) and self._is_known(envelope):
            incarnation = envelope.source_incarnation
            share = ShareId(envelope.source, incarnation, body.seq, envelope.shard)
            state.shard_states[envelope.shard].inbox.turn_away(share, "another swarm")
        # Shares pushed before a swarm was given up must still be settled.
        return isinstance(body, Query | Ack | Pending)

    def _meet_other_swarm(self, envelope: Envelope, hello: Hello, now: float) -> bool:
        state, source = self._state, envelope.source
        if self._must_yield(envelope, hello, now):
            self._joining.start_over(envelope.swarm, now)
            state.log.emit(SwarmGivenUp())
            return True
        # It may have been met before it had a swarm: it is not a neighbor any more.
        assert isinstance(state.table, MemberTable)
        if state.table.stray(envelope, now):
            state.log.emit(Part(source))
        for shard_state in state.busy_shards:
            shard_state.outbox.on(source, EscrowEvent.DIED, now)
        if state.rooted and hello.rooted:
            state.log.emit(PeerRefused(source, "it belongs to another swarm"))
        if hello.reply:
            self._answer(envelope)
        return False

    def _must_yield(self, envelope: Envelope, hello: Hello, now: float) -> bool:
        """Return True if this peer gives up its swarm, in which nothing was accepted.

        If neither side accepted anything, a founder's swarm stays; of two, that with the smaller
        hash. A newcomer that hears of two swarms with roots keeps the first.
        """
        state = self._state
        if state.swarm_is_rooted and not state.weight and state.table.takers():
            return False
        # A model that was finished alone is given up only for a founder of the same roll call.
        assert isinstance(state.table, MemberTable)
        begins = state.table.phase <= Phase.TRAINING
        begins |= state.table.phase is Phase.FINISHED and state.table.founded_with(envelope)
        if not begins or state.rooted or state.in_flight():
            return False
        if hello.rooted:
            return True
        # If no member holds any weight, only the swarm's name is left. Peers that a newcomer has
        # asked count, or it would switch back and forth forever.
        they_hold = bool(hello.members) and hello.members[0].phase.takes_shares
        since_s = now - state.config.stall_s
        i_hold = state.table.phase.takes_shares or any(
            state.table.spoke_since(peer, since_s)
            for peer in state.table.takers()
            if peer != state.table.id
        )
        return they_hold if they_hold is not i_hold else envelope.swarm < state.log.swarm

    def _answer(self, envelope: Envelope, *, reply: bool = False) -> None:
        hello = self._joining.hello(reply=reply, alone=reply)
        self._state.log.send(envelope.source, envelope.source_incarnation, hello)
