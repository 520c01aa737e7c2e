"""The protocol of one peer: events in, effects out; no clock, no socket, no value.

A live peer, a simulated one and a replay all drive this same class. Time is an argument (seconds
on a clock that never goes back), randomness comes in through the constructor, and everything that
is to happen outside is returned as a list of effects, to be carried out in order.
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
    Read,
    Refer,
    Stop,
)
from ..wire.schema import Schema
from .anti_entropy import Membership
from .context import RuleContext
from .join import Joining, StateTransfer
from .leave import Agreement, Leaving, Stops
from .rule import Rule, hook_of, outstanding_max_of, require_fit, requirements_of
from .sending import READ_FIRST, Reading
from .state import Neighbors, State
from .validation import MessageFilter, why_refused

__all__ = ["Protocol"]

_JOINING, _TRAINING, _FINISHED = Phase.JOINING, Phase.TRAINING, Phase.FINISHED  # 50 ns a lookup


class Protocol:
    """One incarnation of one peer.

    Args:
        anchor: Hash of the vector that it would found with, 16 bytes; or what makes it, which is
            called if it founds. A vector that keeps the anchor has its hash.
        membership: The static membership that it shares with others of one process; None for a
            member table of its own, which gossip keeps up to date.
        keeps_anchor: Whether the vector keeps the anchor, which formats other than float32 need.

    Raises:
        ConfigError: The rule cannot work with the format, or with shards.
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
        require_fit(rule, config.wire, schema.shards, exact=config.exact)
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
        """Who is there; look at it."""
        self.state = State(
            config=config,
            schema=schema,
            neighbors=neighbors,
            table=table,
            rng=rng("rule"),
            requirements=requirements,
            outstanding_max=outstanding_max_of(rule),
            anchor=anchor if keeps_anchor and isinstance(anchor, bytes) else b"",
            validate=self._validate_offer,
            is_open=self._is_open_to_shares,
        )
        self._rule = rule
        self._joining = Joining(self.state, anchor, partial(rng, "admission"))
        self._filter = MessageFilter(self.state, self._joining)
        self.agreement = Agreement(self.state)
        """How far merging has come; look at it."""
        self._leaving = leaving = Leaving(self.state, self.agreement)
        self._stops = Stops(self.state, leaving)
        # Where all members share one view, there is nothing to be learned.
        self._membership = (
            Membership(self.state, table, self._joining, partial(rng, "gossip"))
            if isinstance(table, MemberTable)
            else None
        )
        self._told = Phase.SEEKING  # the phase that all live peers were told of
        self._donations = StateTransfer(self.state)
        self.reading = Reading(self.state)
        """What `read` has brought, and who reads this peer's model; look at it."""
        self._seek_due_s = float("-inf")

    @property
    def phase(self) -> Phase:
        return self.state.table.phase

    @property
    def account(self) -> Account:
        """What this peer holds, of the first shard where there are several; do not change it."""
        return self.state.log.account

    @property
    def accounts(self) -> tuple[Account, ...]:
        """What this peer holds of each shard; read them, do not change them."""
        return tuple(each.log.account for each in self.state.shard_states)

    @property
    def swarm(self) -> bytes:
        """Hash of the swarm's anchor; empty until the peer belongs to one."""
        return self.state.log.swarm

    @property
    def done(self) -> bool:
        return self._leaving.done

    @property
    def staged(self) -> int:
        """Shares that have come, or are coming, and are not decided."""
        return sum([len(each.inbox) for each in self.state.busy_shards])

    @property
    def merging(self) -> bool:
        """Whether all live peers have finished, so that only agreement is left to reach."""
        return self.phase is _FINISHED and self.state.table.over

    def known(self) -> tuple[Member, ...]:
        """All others that are remembered and have not left, live or dead, sorted by id."""
        others = self.state.table.others
        return tuple(sorted((*others(alive=True), *others(alive=False)), key=lambda m: m.id))

    def last_heard(self) -> tuple[Member, ...]:
        """All others that are believed in: the live ones by id, then the dead, the latest first."""
        table = self.state.table
        dead = table.dead() if isinstance(table, MemberTable) else []
        return *(m for m in table.live() if m.id != table.id), *dead

    def departed(self) -> tuple[PeerId, ...]:
        """Those who have left and are remembered, sorted."""
        table = self.state.table
        return tuple(table.departed()) if isinstance(table, MemberTable) else ()

    def is_worth_waiting(self, since_s: float) -> bool:
        """Whether anybody who still has to settle something was heard at that time or later."""
        spoke = self.state.table.spoke_since
        return any([spoke(peer, since_s) for a in self.accounts for peer, _ in a.outstanding])

    def deadline(self) -> float:
        """When `wake` has something to do at the latest, seconds."""
        phase, due_s = self.state.table.phase, self.state.deadline()
        if phase <= _JOINING:
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
        """Start: found where there is nobody to look for, else look for a swarm.

        Args:
            returning: Whether it comes back with a checkpoint, and the anchor in it: it looks for
                its swarm, and founds it anew where after ``found_alone_s`` it has met nobody.
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
        """Call the rule between two optimizer steps: it mixes what has come, and perhaps pushes.

        Args:
            trained: Whether an optimizer step was taken since the last call. False while the peer
                joins, waits for a synchronous rule, or has finished.

        Raises:
            LocalProtocolError: A step was trained by a peer that has finished, or is leaving.
        """
        state = self.state
        state.samples, state.lr, state.gave, state.distances = samples, lr, False, None
        if len(state.shard_states) > 1:
            state.list_idle()
        phase = state.table.phase
        if trained:
            # Having given its swarm up, it trains on until the first share of the other one comes.
            if phase > _TRAINING:
                raise LocalProtocolError(f"a step while {phase.name.lower()}")
            state.swarm_steps = state.table.stepped(now)
        else:
            state.swarm_steps = state.table.clock.total
        if state.requirements.waits and state.founders > 1:
            # Gossip tells each peer another total. Peers that wait for one another must agree on
            # it, so that `--total-steps` ends all of them after the same step.
            state.swarm_steps = (
                state.founders * state.table.step
                if state.requirements.fixed_members
                else state.table.lockstep_total()
            )
        if state.config.exact and not self.agreement.compares:
            state.reclaim(now)
        if phase <= _JOINING:
            context = RuleContext(state, now, trained=False, merging=False)
            self._joining.take_copy(context, "" if self._is_open else self._rule.name)
        elif not state.closing:
            # One that closes settles what was pushed. Another push would delay that: where a round
            # trip takes longer than a step, there would always be one under way.
            if self.reading.asking:
                self.reading.show(now)
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
        """Tell a rule that pushes while an optimizer step goes on that a shard's numbers are what
        they will be after it; `step` follows."""
        state, push = self.state, hook_of(self._rule, "trained_shard")
        if self.phase is Phase.TRAINING and not state.closing and push is not None:
            context = RuleContext(state, now, trained=False, merging=False, within_step=True)
            # What the step before gave was a step ago.
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
        if self.phase <= Phase.JOINING and now >= self._seek_due_s:
            self._seek_due_s = now + state.config.seek_s
            self._joining.greet_seeds(now)
            self._joining.tick(now)
        # Last, because a transfer toward one that was just considered dead has let the link go.
        state.go_on(now)
        return self._finish_call(now)

    def finish(self, now: float) -> list[Effect | Event]:
        """Take no more optimizer steps, and go on mixing until all live peers have finished."""
        self._leaving.has_finished = True
        return self._finish_call(now)

    def leave(self, now: float, *, burn: bool = False) -> list[Effect | Event]:
        """Leave: refuse what comes, resolve the escrow, hand the weight on.

        Args:
            burn: Destroy the weight, because the vector that would go with it is not finite; a
                peer that is leaving may still find that out.
        """
        self._leaving.leave(now, burn=burn)
        return self._finish_call(now)

    def read(self, now: float, peer: PeerId = "") -> list[Effect | Event]:
        """Ask for the model of *peer*, to be read only; empty for nobody's any more.

        What has come is told by `reading`, and staged until the next call. What was shown before is
        sent back, unless it is of the same peer: asking again repeats only the question. Meanwhile
        this peer shows its own model to those who want to read it: values must not change.
        """
        self.reading.read(peer)
        if self.phase in (Phase.TRAINING, Phase.FINISHED):
            self.reading.show(now)
        return self._finish_call(now)

    def inspected(self, share: ShareId, now: float, *, finite: bool) -> list[Effect | Event]:
        """Answer an `Inspect`."""
        state = self.state
        state.shard_states[share.shard].inbox.inspected(share, finite, self._is_open)
        if not finite or state.log.effects or state.snapshot_refs.unread:
            return self._finish_call(now)  # a broken message before it may have left some
        # While it trains, nothing follows from a share that may be taken.
        is_training = state.table.phase is _TRAINING and not self._leaving.has_finished
        return [] if is_training else self._finish_call(now)

    def attached(self, share: ShareId, now: float, *, usable: bool) -> list[Effect | Event]:
        """Answer an `Attach`."""
        self.state.shard_states[share.shard].inbox.attached(share, now, usable=usable)
        return self._finish_call(now)

    def filled(self, now: float, *, is_full: bool) -> list[Effect | Event]:
        """Note whether memory has no room for another share, or has room again."""
        self.state.is_full, self.state.is_bounded = is_full, True
        return []

    def in_memory(self) -> tuple[dict[ShareId, int], set[SnapshotId]]:
        """What takes memory: shares let in and not decided, with their sizes, and snapshots."""
        inboxes = [each.inbox for each in self.state.busy_shards]
        incoming = {t.id: t.offer.size_bytes for each in inboxes for t in each.transfers.values()}
        return incoming, self.state.kept | self.state.snapshot_refs.held

    def measured(self, distances: Mapping[ShareId, float], now: float) -> list[Effect | Event]:
        """Answer a `Measure`, before the next optimizer step, with Euclidean norms of what was
        measured; without shares that were dropped. The rule is called again."""
        takes_part = Phase.TRAINING <= self.phase <= Phase.FINISHED and not self.state.closing
        if takes_part and not self.agreement.compares:
            known = (self.state.distances or {}) | dict(distances)
            self._call_rule(now, False, merging=self.merging, distances=known)
        return self._finish_call(now)

    def sketched(self, sketch: Sequence[float], now: float) -> list[Effect | Event]:
        """Answer a `TakeSketch`, before anything else changes the model; with no numbers where one
        of the model's is not finite."""
        if self.agreement.sketched(sketch):
            self._tell_phase()
        return self._finish_call(now)

    def place_of(self, envelope: Envelope) -> Stage | None:
        """Where the frame beside a message belongs, if it is to be received in place; the message
        itself is still to be received, once that is whole."""
        body, shard = envelope.body, envelope.shard
        if type(body) is not Chunk or shard >= len(self.state.shard_states):
            return None
        share = ShareId(envelope.source, envelope.source_incarnation, body.seq, shard)
        inbox = self.state.shard_states[shard].inbox
        return inbox.place_of(share, body, envelope.frame_bytes)

    def unsent(self, envelope: Envelope, now: float) -> list[Effect | Event]:
        """Note that the network refused a message, so that it can never arrive."""
        peer, body = envelope.destination, envelope.body
        if isinstance(body, Offer | Chunk):
            outbox = self.state.shard_states[envelope.shard].outbox
            share = envelope.destination_incarnation, body.seq
            outbox.on(peer, EscrowEvent.UNSENT, now, share=share)
        self.state.table.pass_over(peer, now + self.state.config.retry_s)
        return self._finish_call(now)

    def receive(self, envelope: Envelope, now: float) -> list[Effect | Event]:
        """Take in one message.

        Raises:
            RemoteProtocolError: The sender broke the protocol. The message has changed nothing,
                but that its sender was heard.
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
        # Of a thousand calls one comes upon another phase: the rest must not pay for it.
        if state.table.phase is not _TRAINING or self._leaving.has_finished:
            self._leaving.advance(now)
        if self._stops.askers:
            self._stops.follow()
        if state.table.phase is not self._told:
            self._begin_phase(now)
        if state.snapshot_refs.unread:
            state.snapshot_refs.release_unread()
        if state.measuring:
            state.log.ask(Measure(tuple(state.measuring)))
            state.measuring = []
        effects = state.log.effects
        taken = effects.copy()
        effects.clear()  # the logs of all shards share that list
        return taken

    def _begin_phase(self, now: float) -> None:
        """Tell others of a phase, and the rule of the one in which it is called."""
        state, start = self.state, hook_of(self._rule, "start")
        if state.table.phase is _TRAINING and start is not None:
            state.distances = None
            start(RuleContext(state, now, trained=False, merging=False))
        self._tell_phase()

    def _tell_phase(self) -> None:
        self._told = self.state.table.phase
        if self._membership is not None:
            self._membership.tell_phase()

    def _validate_offer(self, share: ShareId, offer: Offer) -> str:
        is_wanted = bool(self.reading.wanted) and self.reading.wants(share.sender)
        if bool(offer.held) is not is_wanted:
            return READ_FIRST if is_wanted else "nobody reads it"
        return why_refused(share, offer, self.state, self._rule.name)

    def _is_open_to_shares(self) -> bool:
        state = self.state
        return state.table.phase >= _TRAINING and not (state.closing or state.is_full)

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
                # Somebody holds what came from here: this swarm is not one peer's own any more.
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
                if self.phase <= Phase.JOINING and self._joining.may_adopt:
                    # It may be the answer that was waited for.
                    self._joining.tick(now)
            case Ask():
                self._donations.asking[peer] = body
            case Refer() if membership is not None:
                membership.referred(body, now)
                self._joining.referred(peer, body, now)
            case Read():
                self.reading.asked(peer, shard)
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
        # Once at each step boundary: an answer to what was measured comes at the same one.
        is_first = distances is None
        if is_first and self._is_open:
            state.copies = False
            if self._donations.asking or self._donations.given:
                self._donations.give(context)
        if (outcome := self._rule.step(context)) is not None:
            state.log.ask(outcome)
            if isinstance(outcome, Halt):
                state.halted = outcome.reason
        if merging and is_first:
            self.agreement.pushed(state.round - before)
