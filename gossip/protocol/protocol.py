"""The protocol of one peer: events in, effects out; without clocks, sockets or values.

A live peer, a simulated one and a replay all use this class. Time is an argument (seconds on a
monotonic clock), and what must happen outside is returned as effects, to be applied in order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from ..config import ProtocolConfig
from ..effects.effects import Effect, Halt, Measure, Stage, TakeSketch
from ..effects.events import Event
from ..effects.ledger import Account
from ..errors import LocalProtocolError
from ..exchange.transfer import EscrowEvent
from ..membership.static import StaticMembership, StaticMemberTable
from ..membership.table import MemberTable
from ..types import Incarnation, PeerId, ShareId, SnapshotId
from ..wire.messages import (
    Ack,
    Ask,
    Chunk,
    Envelope,
    Grant,
    Hello,
    Leave,
    Member,
    Offer,
    Pending,
    Phase,
    Push,
    Query,
    Refer,
    Stop,
)
from ..wire.schema import Schema
from .anti_entropy import Membership
from .context import RuleContext
from .join import Joining, StateTransfer
from .leave import Agreement, Leaving, Stops
from .rule import Rule, hook_of, outstanding_max_of, require_fit, requirements_of
from .state import Neighbors, State
from .validation import MessageFilter

__all__ = ["Protocol"]

# Bound once: up to Python 3.11, looking a member of an enum up costs more than a call.
_TRAINING, _FINISHED = Phase.TRAINING, Phase.FINISHED


class Protocol:
    """One incarnation of one peer.

    Args:
        anchor: Hash of the vector that it would found with, 16 bytes, or a function that returns
            it, called if the peer founds.
        membership: Static membership shared with other peers of one process; None for a member
            table of its own, updated by gossip.
        keeps_anchor: True if the vector keeps the anchor, which formats other than float32 need.
    """

    def __init__(
        self,
        *,
        id: PeerId,
        incarnation: Incarnation,
        schema: Schema,
        anchor: bytes | Callable[[], bytes],
        rule: Rule,
        neighbors: Neighbors,
        rng: Callable[[str], np.random.Generator],
        config: ProtocolConfig | None = None,
        addresses: Sequence[str] = (),
        membership: StaticMembership | None = None,
        keeps_anchor: bool = False,
        host: bytes = b"",
        clock: Mapping[PeerId, int] | None = None,
    ) -> None:
        config, rng = config or ProtocolConfig(), cache(rng)
        require_fit(rule, config.wire, schema.shards)
        requirements = requirements_of(rule)
        self._is_open = not requirements.fixed_members
        if requirements.staged_max > config.staged_max:
            config = replace(config, staged_max=requirements.staged_max)
        me = Member(
            id=id,
            incarnation=incarnation,
            heartbeat=0,
            phase=Phase.SEEKING,
            step=0,
            addresses=tuple(addresses),
            host=host if config.shared_memory else b"",
        )
        table = (
            MemberTable(me, config, clock)
            if membership is None
            else StaticMemberTable(me, membership)
        )
        self.table = table
        self.state = State(
            config=config,
            schema=schema,
            neighbors=neighbors,
            table=table,
            rng=rng("rule"),
            rule_name=rule.name,
            requirements=requirements,
            host=me.host if membership is None else b"",
            outstanding_max=outstanding_max_of(rule),
            anchor=anchor if keeps_anchor and isinstance(anchor, bytes) else b"",
        )
        self._rule = rule
        self._joining = Joining(self.state, anchor, partial(rng, "admission"))
        self._filter = MessageFilter(self.state, self._joining)
        self.agreement = Agreement(self.state)
        self._leaving = leaving = Leaving(self.state, self.agreement)
        self._stops = Stops(self.state, leaving)
        # If all members share one view, there is nothing to learn.
        self._membership = (
            Membership(self.state, table, self._joining, partial(rng, "gossip"))
            if isinstance(table, MemberTable)
            else None
        )
        self._told = Phase.SEEKING  # the phase that was last announced to live peers
        self._donations = StateTransfer(self.state)
        self._seek_due_s = float("-inf")

    @property
    def phase(self) -> Phase:
        return self.state.table.phase

    @property
    def account(self) -> Account:
        """Account of this peer, of the first shard if there are several; read-only."""
        return self.state.log.account

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Accounts of this peer, one for each shard; read-only."""
        return tuple(each.log.account for each in self.state.shard_states)

    @property
    def swarm(self) -> bytes:
        """Hash of the swarm's anchor; empty until the peer belongs to one."""
        return self.state.log.swarm

    @property
    def done(self) -> bool:
        return self._leaving.done

    @property
    def has_askers(self) -> bool:
        """True while someone who requested a stop has not read that this peer is done."""
        return bool(self._stops.askers)

    @property
    def staged(self) -> int:
        """Number of incoming shares that are not decided."""
        return sum([len(each.inbox.transfers) for each in self.state.busy_shards])

    @property
    def merging(self) -> bool:
        """True if all live peers have finished, and only need to reach agreement."""
        return self.phase is _FINISHED and self.state.table.over

    def known(self) -> tuple[Member, ...]:
        """Return the other peers that have not left, live or dead, sorted by id."""
        others = self.state.table.others
        return tuple(sorted((*others(alive=True), *others(alive=False)), key=lambda m: m.id))

    def last_heard(self) -> tuple[Member, ...]:
        """Return the other live peers by id, then the dead, most recently heard first."""
        table = self.state.table
        dead = table.dead() if isinstance(table, MemberTable) else []
        return *(m for m in table.live() if m.id != table.id), *dead

    def departed(self) -> tuple[PeerId, ...]:
        table = self.state.table
        return tuple(table.departed()) if isinstance(table, MemberTable) else ()

    @property
    def strays(self) -> tuple[PeerId, ...]:
        """Founders of the same roll call that are in another swarm."""
        table = self.state.table
        return tuple(sorted(table.strays)) if isinstance(table, MemberTable) else ()

    def is_worth_waiting(self, since_s: float) -> bool:
        """Return True if a peer that still has to settle something was heard since then."""
        spoke = self.state.table.spoke_since
        return any([spoke(peer, since_s) for a in self.accounts for peer, _ in a.outstanding])

    def deadline(self) -> float:
        """Return the latest time at which `wake` must be called, seconds."""
        phase, due_s = self.state.table.phase, self.state.deadline()
        if phase < _TRAINING:
            due_s = min(due_s, self._seek_due_s)
        elif phase > _TRAINING:
            due_s = min(due_s, self._leaving.due_s)
        if phase is Phase.LEFT or self._membership is None:
            return due_s
        return min(due_s, self._membership.due_s)

    def join(
        self,
        now: float,
        seeds: Sequence[str] = (),
        founders: int = 1,
        *,
        returning: bool = False,
    ) -> list[Effect | Event]:
        """Found a swarm if this peer has neither seeds nor other founders, else look for one.

        A *returning* peer has the anchor: if it stays alone, it founds its swarm anew.
        """
        if self.phase is Phase.SEEKING:
            self.state.founders = founders
        self._joining.start(now, seeds, founders, returns=returning)
        return self.wake(now)

    def step(
        self,
        now: float,
        *,
        trained: bool = True,
        samples: int | None = None,
        lr: float | None = None,
    ) -> list[Effect | Event]:
        """Call the rule between two optimizer steps: it mixes arrived shares, and may push.

        If *trained*, an optimizer step was taken since the last call: not after the last one.
        """
        state = self.state
        state.samples, state.lr, state.gave, state.distances = samples, lr, False, None
        if len(state.shard_states) > 1:
            state.list_idle()
        phase = state.table.phase
        if trained:
            # A peer that gave its swarm up trains on until the other's first share arrives.
            if phase > _TRAINING:
                raise LocalProtocolError(f"a step while {phase.name.lower()}")
            state.swarm_steps = state.table.stepped(now)
        else:
            state.swarm_steps = state.table.clock.total
        if state.requirements.waits and state.founders > 1:
            # With gossip, each peer knows a different total. All must agree on it, so that
            # `--total-steps` ends them after the same step.
            state.swarm_steps = (
                state.founders * state.table.step
                if state.requirements.fixed_members
                else state.table.lockstep_total()
            )
        if phase < _TRAINING:
            context = RuleContext(state, now, trained=False, merging=False)
            self._joining.take_copy(context, "" if self._is_open else self._rule.name)
        elif not state.closing:
            # A closing peer settles its pushes: if a round trip takes longer than a step, another
            # one would always be in flight.
            if phase is _FINISHED:
                return self._merge(now)
            self._call_rule(now, trained, merging=False)
        return self._finish_call(now)

    def _merge(self, now: float) -> list[Effect | Event]:
        agreement, merging = self.agreement, self.state.table.over
        if not agreement.compares:
            self._call_rule(now, False, merging=merging)
        if agreement.turn(merging=merging):
            self._tell_phase()
        effects = self._finish_call(now)
        return [*effects, TakeSketch()] if agreement.wants_sketch else effects

    def trained_shard(self, shard: int, now: float) -> list[Effect | Event]:
        """Tell a rule that a shard is final for the optimizer step going on; `step` follows."""
        state, push = self.state, hook_of(self._rule, "trained_shard")
        if self.phase is _TRAINING and not state.closing and push is not None:
            context = RuleContext(state, now, trained=False, merging=False, within_step=True)
            state.steps_going_on, state.gave, state.distances = 1, False, None
            try:
                push(context, shard)
            finally:
                state.steps_going_on = 0
        return self._finish_call(now)

    def wake(self, now: float) -> list[Effect | Event]:
        state = self.state
        state.expire(now)
        if self._membership is not None:
            self._membership.wake(now)
        self._stops.wake(now)
        if self.phase < _TRAINING and now >= self._seek_due_s:
            self._seek_due_s = now + state.config.seek_s
            self._joining.greet_seeds(now)
            self._joining.tick(now)
        return self._finish_call(now)

    def finish(self, now: float) -> list[Effect | Event]:
        """Take no more optimizer steps, and continue mixing until all live peers have finished."""
        self._leaving.has_finished = True
        return self._finish_call(now)

    def leave(self, now: float, *, burn: bool = False) -> list[Effect | Event]:
        """Refuse shares, settle the escrow, and hand the weight on; burn it if it is of no use."""
        self._leaving.leave(now, burn=burn)
        return self._finish_call(now)

    def inspected(self, share: ShareId, now: float, *, finite: bool) -> list[Effect | Event]:
        """Answer an `Inspect`."""
        state = self.state
        state.shard_states[share.shard].inbox.inspected(share, finite, self._is_open)
        is_calm = finite and state.table.phase is _TRAINING and not self._leaving.has_finished
        # While a peer trains, nothing follows from a share that its next step may take.
        return [] if is_calm and not state.log.effects else self._finish_call(now)

    def attached(self, share: ShareId, now: float, *, usable: bool) -> list[Effect | Event]:
        """Answer an `Attach`."""
        self.state.shard_states[share.shard].inbox.attached(share, now, usable=usable)
        return self._finish_call(now)

    def filled(self, now: float, *, is_full: bool) -> list[Effect | Event]:
        """Record whether memory has room for another share."""
        self.state.is_full, self.state.is_bounded = is_full, True
        return []

    def in_memory(self) -> tuple[dict[ShareId, int], set[SnapshotId]]:
        """Return what takes memory: accepted undecided shares, with their sizes, and snapshots."""
        inboxes = [each.inbox for each in self.state.busy_shards]
        incoming = {t.id: t.offer.size_bytes for each in inboxes for t in each.transfers.values()}
        return incoming, self.state.kept | self.state.snapshot_refs.held

    def measured(self, distances: Mapping[ShareId, float], now: float) -> list[Effect | Event]:
        """Answer a `Measure`, except for dropped shares: the rule is called again."""
        takes_part = _TRAINING <= self.phase <= _FINISHED and not self.state.closing
        if takes_part and not self.agreement.compares:
            known = (self.state.distances or {}) | dict(distances)
            self._call_rule(now, False, merging=self.merging, distances=known)
        return self._finish_call(now)

    def sketched(self, sketch: Sequence[float], now: float) -> list[Effect | Event]:
        """Answer a `TakeSketch` before the model changes; with nothing if that is not finite."""
        if self.agreement.sketched(sketch):
            self._tell_phase()
        return self._finish_call(now)

    def place_of(self, envelope: Envelope) -> Stage | None:
        """Return where to receive a frame in place, if anywhere, before its message."""
        body, shard = envelope.body, envelope.shard
        if type(body) is not Chunk or shard >= len(self.state.shard_states):
            return None
        share = ShareId(envelope.source, envelope.source_incarnation, body.seq, shard)
        inbox = self.state.shard_states[shard].inbox
        return inbox.place_of(share, body, envelope.frame_bytes)

    def unsent(self, envelope: Envelope, now: float) -> list[Effect | Event]:
        """Note that the network refused a message."""
        peer, body = envelope.destination, envelope.body
        if isinstance(body, Offer | Chunk):
            outbox = self.state.shard_states[envelope.shard].outbox
            share = envelope.destination_incarnation, body.seq
            outbox.on(peer, EscrowEvent.UNSENT, now, share=share)
        self.state.table.pass_over(peer, now + self.state.config.retry_s)
        return self._finish_call(now)

    def receive(self, envelope: Envelope, now: float) -> list[Effect | Event]:
        """Process one message.

        Raises:
            RemoteProtocolError: The sender broke the protocol; it was only heard.
        """
        if self._filter.admits(envelope, now):
            if self._membership is None or self._membership.hears(envelope, now):
                if not self.state.log.swarm and self._joining.may_adopt:
                    self.state.enter(envelope.swarm)
                self._dispatch(envelope, now)
            else:
                self._membership.answer_stale(envelope)
        return self._finish_call(now)

    def _finish_call(self, now: float) -> list[Effect | Event]:
        state = self.state
        # One in a thousand calls sees another phase: the rest must not pay for it.
        if state.table.phase is not _TRAINING or self._leaving.has_finished:
            self._leaving.advance(now)
        if self._stops.askers:
            self._stops.follow()
        if state.table.phase is not self._told:
            self._begin_phase(now)
        if state.snapshot_refs.unread:
            state.snapshot_refs.release_unread()
        if state.measuring:
            state.log.emit(Measure(tuple(state.measuring)))
            state.measuring = []
        effects = state.log.effects
        taken = effects.copy()
        effects.clear()  # the logs of all shards share this list
        return taken

    def _begin_phase(self, now: float) -> None:
        state, start = self.state, hook_of(self._rule, "start")
        if state.table.phase is _TRAINING and start is not None:
            state.distances = None
            start(RuleContext(state, now, trained=False, merging=False))
        self._tell_phase()

    def _tell_phase(self) -> None:
        self._told = self.state.table.phase
        if self._membership is not None:
            self._membership.tell_phase()

    def _dispatch(self, envelope: Envelope, now: float) -> None:
        shard, size = envelope.shard, envelope.frame_bytes
        shard_state = self.state.shard_states[shard]
        if not shard_state.is_listed:
            self.state.list_busy(shard_state)
        peer, incarnation, body = envelope.source, envelope.source_incarnation, envelope.body
        inbox, membership = shard_state.inbox, self._membership
        match body:
            case Push():
                inbox.push(ShareId(peer, incarnation, body.seq, shard), body, size, now)
            case Ack():
                shard_state.outbox.ack(peer, incarnation, body, now)
                # Another peer holds weight of this one: the swarm is shared now.
                self.state.rooted |= body.accepted > 0
            case Offer():
                inbox.offer(ShareId(peer, incarnation, body.seq, shard), body, now)
            case Chunk():
                inbox.chunk(ShareId(peer, incarnation, body.seq, shard), body, size, now)
            case Query():
                inbox.query(ShareId(peer, incarnation, body.seq, shard), now)
            case Grant():
                share = incarnation, body.seq
                shard_state.outbox.on(peer, EscrowEvent.GRANT, now, body.credit_bytes, share=share)
            case Pending():
                share = incarnation, body.seq
                shard_state.outbox.on(peer, EscrowEvent.PENDING, now, share=share)
            case Hello() if membership is not None:
                membership.greeted(envelope, body, now)
                self._donations.follow(peer)
                if self.phase < _TRAINING and self._joining.may_adopt:
                    # This may be the awaited answer.
                    self._joining.tick(now)
            case Ask():
                self._donations.asking[peer] = body
            case Refer() if membership is not None:
                membership.referred(body, now)
                self._joining.referred(peer, body, now)
            case Leave() if membership is not None:
                self._donations.forget(peer)
                membership.take_leave_of(peer, body, now)
            case Stop():
                self._stops.asked(envelope, body, now)

    def _call_rule(
        self,
        now: float,
        trained: bool,
        *,
        merging: bool,
        distances: dict[ShareId, float] | None = None,
    ) -> None:
        state = self.state
        before, state.distances = state.round, distances
        context = RuleContext(state, now, trained=trained, merging=merging)
        # Only once per step boundary: the answer to a measurement comes at the same one.
        is_first = distances is None
        if is_first and self._is_open:
            state.copies = False
            if self._donations.asking or self._donations.given:
                self._donations.give(context)
        if (outcome := self._rule.step(context)) is not None:
            state.log.emit(outcome)
            if isinstance(outcome, Halt):
                state.halted = outcome.reason
        if merging and is_first:
            self.agreement.pushed(state.round - before)
