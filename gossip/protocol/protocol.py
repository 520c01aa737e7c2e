"""The protocol of one peer: events in, effects out; no clock, no socket, no value.

A live peer, a simulated one and a replay all drive this same class. Time is an argument (seconds
on a clock that never goes back), randomness comes in through the constructor, and everything that
is to happen outside is returned as a list of effects, to be carried out in order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.effects import Effect, Halt, ShareId, Stage
from ..effects.events import Event
from ..effects.ledger import Account
from ..errors import LocalProtocolError
from ..exchange.flow_control import LinkEstimators, RateLimiter
from ..exchange.incoming import Inbox
from ..exchange.outgoing import Outbox, SnapshotRefs
from ..membership.progress import StepCounts
from ..membership.static import StaticMembership, StaticMemberTable, StaticProgress
from ..membership.table import MemberTable
from ..wire.formats import NATIVE, Form, parse_wire
from ..wire.messages import (
    Ack,
    Ask,
    Chunk,
    End,
    Envelope,
    Grant,
    Hello,
    Incarnation,
    Leave,
    Member,
    Offer,
    PeerId,
    Pending,
    Phase,
    Push,
    Query,
    Refer,
)
from ..wire.schema import Schema
from .anti_entropy import Membership
from .context import RuleContext
from .join import Joining, StateTransfer
from .leave import Leaving
from .rule import Rule, require_fit, requirements_of
from .state import Neighbors, ShardState, State
from .validation import MessageFilter

__all__ = ["Protocol"]

_CLOSED = (
    "a swarm that trains with {} takes nobody in once it has started: start all its peers "
    "together (founders, on the command line --founders), or use a rule that can, such as gosgd"
)


class Protocol:
    """One life of one peer.

    Args:
        id: The peer's name, unique in its swarm.
        incarnation: Which life of it; larger after every restart, at least 1.
        schema: Its model's schema.
        anchor: Hash of the vector that it would found with, 16 bytes.
        rule: The algorithm.
        neighbors: The topology on a live view.
        rng: Opens the peer's random stream for a purpose.
        config: Sizes and times.
        addresses: Where others can reach it; empty for a peer that only dials out.
        crew: The view that it shares with others of one process, who all know one another; None
            for a view of its own, which gossip keeps up to date.
        keeps_anchor: Whether the vector keeps the anchor, which formats other than float32 need.
        host: Alike for peers that can read one another's memory, 16 bytes; empty for one whose
            memory nobody shall read.
        clock: Optimizer steps of peers, its own earlier ones among them, as a checkpoint
            remembers them.

    Raises:
        ConfigError: The rule cannot work with the format, or with shards.
    """

    def __init__(
        self,
        *,
        id: PeerId,
        incarnation: Incarnation,
        schema: Schema,
        anchor: bytes,
        rule: Rule,
        neighbors: Neighbors,
        rng: Callable[[str], np.random.Generator],
        config: ProtocolConfig | None = None,
        addresses: Sequence[str] = (),
        crew: StaticMembership | None = None,
        keeps_anchor: bool = False,
        host: bytes = b"",
        clock: Mapping[PeerId, int] | None = None,
    ) -> None:
        config = config or ProtocolConfig()
        require_fit(rule, config.wire, schema.shards, exact=config.exact)
        self._demands = demands = requirements_of(rule)
        self._is_open = not demands.fixed_members
        if demands.staged_max > config.staged_max:
            config = replace(config, staged_max=demands.staged_max)
        me = Member(
            id=id,
            incarnation=incarnation,
            heartbeat=0,
            phase=Phase.SEEKING,
            step=0,
            addresses=tuple(addresses),
            host=host if config.shared_memory else b"",
        )
        agenda, links = (
            EffectLog(Account(id, incarnation), schema.hash, b""),
            LinkEstimators(config),
        )
        pacer = RateLimiter(config.bandwidth_bytes_s)
        lanes, readers = [], SnapshotRefs(agenda)
        for shard in range(schema.shards):
            desk = agenda.beside(Account(id, incarnation, shard)) if shard else agenda
            inbox = Inbox(config, schema, desk, self._gate, self._is_open_to_shares)
            outbox = Outbox(config, desk, links, pacer, readers, schema.shards)
            lanes.append(ShardState(shard, desk, inbox, outbox))
        roster = MemberTable(me, config, clock) if crew is None else StaticMemberTable(me, crew)
        self._state = State(
            config=config,
            schema=schema,
            neighbors=neighbors,
            agenda=agenda,
            roster=roster,
            lanes=tuple(lanes),
            links=links,
            pacer=pacer,
            readers=readers,
            rng=rng("rule"),
            anchor=anchor if keeps_anchor else b"",
            outstanding_max=rule.outstanding_max,
            swarm_steps=roster.clock.total,
        )
        self._rule = rule
        self._admission = Joining(self._state, anchor, partial(rng, "admission"))
        self._border = MessageFilter(self._state, self._admission)
        self._departure = Leaving(self._state)
        self._membership = Membership(self._state, self._admission, partial(rng, "gossip"))
        self._donations = StateTransfer(self._state)
        self._seek_due_s = float("-inf")

    @property
    def phase(self) -> Phase:
        """Where this peer stands in its life."""
        return self._state.roster.phase

    @property
    def account(self) -> Account:
        """What this peer holds, of the first shard where there are several; do not change it."""
        return self._state.agenda.account

    @property
    def accounts(self) -> tuple[Account, ...]:
        """What this peer holds of each shard; read them, do not change them."""
        return tuple(lane.agenda.account for lane in self._state.lanes)

    @property
    def is_anchored(self) -> bool:
        """Whether the anchor that its vector keeps is the swarm's."""
        return self._state.is_anchored

    @property
    def weight(self) -> int:
        """Weight held now of all shards together, escrow not counted."""
        return self._state.weight

    @property
    def swarm(self) -> bytes:
        """Hash of the swarm's anchor; empty until the peer belongs to one."""
        return self._state.agenda.swarm

    @property
    def done(self) -> bool:
        """Whether nobody needs this peer any more, so that it may close."""
        return self._departure.done

    @property
    def staged(self) -> int:
        """Shares that have come, or are coming, and are not decided."""
        return sum([len(lane.inbox) for lane in self._state.lanes])

    @property
    def merging(self) -> bool:
        """Whether all live peers have finished, so that only agreement is left to reach."""
        return self.phase is Phase.FINISHED and self._departure.merging

    def live(self) -> tuple[Member, ...]:
        """Everybody who is believed to run, this peer included, sorted by id."""
        return self._state.roster.live()

    def known(self) -> tuple[Member, ...]:
        """All others that are remembered and have not left, live or dead, sorted by id."""
        roster = self._state.roster
        both = (*roster.others(alive=True), *roster.others(alive=False))
        return tuple(sorted(both, key=lambda member: member.id))

    def last_heard(self) -> tuple[Member, ...]:
        """All others that are believed in: the live ones by id, then the dead, the latest first."""
        roster = self._state.roster
        live = [member for member in roster.live() if member.id != roster.id]
        return *live, *roster.dead()

    def departed(self) -> tuple[PeerId, ...]:
        """Those who have left and are remembered, sorted."""
        return tuple(self._state.roster.departed())

    def shares_memory(self, peer: PeerId) -> bool:
        """Whether *peer* may be able to read this peer's memory."""
        return self._state.roster.shares_memory(peer)

    def is_worth_waiting(self, since_s: float) -> bool:
        """Whether anybody who still has to settle something was heard at that time or later."""
        spoke, accounts = self._state.roster.spoke_since, self.accounts
        return any([spoke(peer, since_s) for each in accounts for peer, _ in each.outstanding])

    @property
    def clock(self) -> StepCounts | StaticProgress:
        """Optimizer steps of all peers that ever were; read it, do not change it."""
        return self._state.roster.clock

    @property
    def swarm_steps(self) -> int:
        """Optimizer steps of all peers, as they were known at this peer's last turn.

        Between two turns it stays the same, so that what follows from it, such as a learning
        rate, is the same in a replay.
        """
        return self._state.swarm_steps

    def deadline(self) -> float:
        """When `wake` has something to do at the latest, seconds."""
        state = self._state
        due_s = min(state.pacer.due_s, self._departure.due_s)
        for lane in state.lanes:
            due_s = min(due_s, lane.inbox.deadline(), lane.outbox.deadline())
        phase = state.roster.phase
        if phase <= Phase.JOINING:
            due_s = min(due_s, self._seek_due_s)
        return due_s if phase is Phase.LEFT else min(due_s, self._membership.due_s)

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
            now: Seconds.
            seeds: Addresses of any members; calling again adds to them.
            founders: How many peers, this one included, found together.
            returning: Whether it comes back with a checkpoint, and the anchor in it: it looks for
                its swarm, and founds it anew where after ``found_alone_s`` it has met nobody.
        """
        if self.phase is Phase.SEEKING:
            self._state.founders = founders
            self._admission.start(now, seeds, founders, returns=returning)
        return self.wake(now)

    def step(self, now: float, *, trained: bool = True) -> list[Effect | Event]:
        """Take the turn between two optimizer steps: mix what has come, perhaps push.

        Args:
            now: Seconds.
            trained: Whether an optimizer step was taken since the last turn. False while the peer
                joins, waits for a synchronous rule, or has finished.

        Raises:
            LocalProtocolError: A step was trained by a peer that has finished, or is leaving.
        """
        state = self._state
        phase = state.roster.phase
        if trained:
            # One that gave its swarm up trains on until the first share of the other one comes.
            if phase > Phase.TRAINING:
                raise LocalProtocolError(f"a step while {phase.name.lower()}")
            state.roster.stepped()
        state.swarm_steps = state.roster.clock.total
        if state.config.exact:
            state.reclaim(now)
        if phase <= Phase.JOINING:
            self._take_first_share(now)
        elif phase.takes_shares:
            self._take_turn(now, trained)
        return self._finish_call(now)

    def wake(self, now: float) -> list[Effect | Event]:
        """Do what time has made due."""
        state = self._state
        for lane in state.lanes:
            lane.inbox.expire(now)
            lane.outbox.query_due(now)
        self._membership.wake(now)
        if self.phase <= Phase.JOINING and now >= self._seek_due_s:
            self._seek_due_s = now + state.config.seek_s
            self._admission.greet_seeds(now)
            self._admission.tick(now)
        # Last, because a transfer toward one that was just held for dead has let the link go.
        while (front := state.pacer.front(now)) is not None:
            shard, peer = front
            state.lanes[shard].outbox.go_on(peer, now)
        return self._finish_call(now)

    def finish(self, now: float) -> list[Effect | Event]:
        """Take no more optimizer steps, and go on mixing until all live peers have finished."""
        if self.phase is Phase.TRAINING:
            self._state.roster.advance(phase=Phase.FINISHED)
        return self._finish_call(now)

    def leave(self, now: float, *, burn: bool = False) -> list[Effect | Event]:
        """Leave: refuse what comes, resolve the escrow, hand the weight on.

        Args:
            now: Seconds.
            burn: Destroy the weight, because the vector that would go with it is not finite; a
                peer that is leaving may still find that out.
        """
        self._departure.leave(now, burn=burn)
        return self._finish_call(now)

    def inspected(self, share: ShareId, now: float, *, finite: bool) -> list[Effect | Event]:
        """Answer an `Inspect`."""
        self._state.lanes[share.shard].inbox.inspected(share, finite=finite)
        return self._finish_call(now)

    def attached(self, share: ShareId, now: float, *, usable: bool) -> list[Effect | Event]:
        """Answer an `Attach`."""
        self._state.lanes[share.shard].inbox.attached(share, now, usable=usable)
        return self._finish_call(now)

    def place_of(self, envelope: Envelope) -> Stage | None:
        """Where the frame beside a message belongs, if it is to be received in place.

        Nothing changes: the message still has to be received, once its frame is there and whole.
        """
        body, state = envelope.body, self._state
        if type(body) is not Chunk or envelope.shard >= len(state.lanes):
            return None
        share = ShareId(envelope.source, envelope.source_incarnation, body.seq, envelope.shard)
        return state.lanes[envelope.shard].inbox.place_of(share, body, envelope.frame_bytes)

    def unsent(self, envelope: Envelope, now: float) -> list[Effect | Event]:
        """Note that the network refused a message, so that it can never arrive."""
        peer, body = envelope.destination, envelope.body
        if isinstance(body, Offer | Chunk | End):
            self._state.lanes[envelope.shard].outbox.unsent(peer, body.seq, now)
        self._state.roster.pass_over(peer, now + self._state.config.retry_s)
        return self._finish_call(now)

    def receive(self, envelope: Envelope, now: float) -> list[Effect | Event]:
        """Take in one message.

        Raises:
            RemoteProtocolError: The sender broke the protocol. The message has changed nothing,
                but that its sender was heard.
        """
        if self._border.admits(envelope, now):
            source, incarnation = envelope.source, envelope.source_incarnation
            if self._state.roster.heard(source, incarnation, now):
                self._membership.heard(source, incarnation, now)
                if not self.swarm and self._admission.may_adopt:
                    self._state.enter(envelope.swarm)
                self._dispatch(envelope, now)
            else:
                self._membership.outlived_by(envelope)
        return self._finish_call(now)

    def _finish_call(self, now: float) -> list[Effect | Event]:
        state = self._state
        # Of a thousand calls one comes upon another phase: the rest must not pay for it.
        if state.roster.phase > Phase.TRAINING:
            self._departure.advance(now)
        if state.roster.phase is not self._membership.told:
            self._membership.tell_phase()
        if state.readers.unread:
            state.readers.release_unread()
        return state.agenda.take()

    def _gate(self, share: ShareId, offer: Offer) -> str:
        """Why an offered share is refused at the door."""
        if self._departure.closing:
            return "finished" if self.phase < Phase.LEAVING else "leaving"
        if self.phase is Phase.SEEKING:
            return "not asked for"
        if self.phase is Phase.JOINING:
            if offer.form != Form(copy=True, anchor=offer.form.anchor):
                return "not a copy"
            # Two donors may have been asked; the bytes of the second would only slow the first.
            if any([lane.inbox.expects_copy(but=share.sender) for lane in self._state.lanes]):
                return "another copy is on its way"
        return "" if offer.form.wire == NATIVE else self._hindrance(offer.form)

    def _hindrance(self, form: Form) -> str:
        """Why a share in this format is of no use here, or nothing."""
        wire, demands = parse_wire(form.wire), self._demands
        if wire.needs_anchor and not self._state.is_anchored:
            return "a difference from an anchor that is not known here"
        if demands.lossless or (demands.whole and not wire.is_dense):
            return f"in a format that {self._rule.name} cannot use"
        return ""

    def _is_open_to_shares(self) -> bool:
        return Phase.TRAINING <= self.phase < Phase.LEAVING and not self._departure.closing

    def _dispatch(self, envelope: Envelope, now: float) -> None:
        shard, size = envelope.shard, envelope.frame_bytes
        lane = self._state.lanes[shard]
        peer, life, body = envelope.source, envelope.source_incarnation, envelope.body
        match body:
            case Push():
                lane.inbox.push(ShareId(peer, life, body.seq, shard), body, size, now)
            case Ack():
                lane.outbox.ack(peer, life, body, now)
                # Somebody holds what came from here: this swarm is not one peer's own any more.
                self._state.rooted |= body.accepted > 0
            case Offer():
                lane.inbox.offer(ShareId(peer, life, body.seq, shard), body, now)
            case Chunk():
                lane.inbox.chunk(ShareId(peer, life, body.seq, shard), body, size, now)
            case End():
                lane.inbox.end(ShareId(peer, life, body.seq, shard), now)
            case Query():
                lane.inbox.query(ShareId(peer, life, body.seq, shard), now)
            case Grant():
                lane.outbox.grant(peer, life, body, now)
            case Pending():
                lane.outbox.pending(peer, life, body.seq, now)
            case Hello():
                self._membership.greeted(envelope, body, now)
                self._donations.follow(peer)
                if self.phase <= Phase.JOINING and self._admission.may_adopt:
                    # It may be the answer that was waited for.
                    self._admission.tick(now)
            case Ask():
                self._donations.asked(peer, body)
            case Refer():
                self._membership.referred(body, now)
                self._admission.referred(peer, body, now)
            case Leave():
                self._donations.forget(peer)
                self._membership.take_leave_of(peer, body, now)
            case _:  # a schema that is the same as mine
                pass

    def _take_first_share(self, now: float) -> None:
        if not self._is_open:
            if self.phase is Phase.JOINING:
                self._state.agenda.ask(Halt(_CLOSED.format(self._rule.name)))
            return
        turn = RuleContext(self._state, now, trained=False, merging=False)
        state = self._state
        donor, others = "", []
        for share in turn.shares():
            lane = state.lanes[share.id.shard]
            # One share of each shard makes a copy; with any more, two models would be blended.
            if lane.copied:
                others.append(share)
                continue
            turn.mix(share)
            donor, lane.copied, lane.anchored = share.sender, True, share.form.anchor
        if donor and all([lane.copied for lane in state.lanes]):
            if all([lane.anchored for lane in state.lanes]):
                state.anchor = state.agenda.swarm
            state.enter(state.agenda.swarm)
            self._admission.joined(donor)
        else:
            # As long as these lie here, their donor is not free to give what is still missing.
            for share in others:
                turn.refuse(share, "of this shard there is a copy")

    def _take_turn(self, now: float, trained: bool) -> None:
        if self._departure.closing:
            # What was pushed is being settled. Another push would put that off: where a round trip
            # takes longer than a turn, there would always be one under way.
            return
        turn = RuleContext(self._state, now, trained=trained, merging=self.merging)
        if self._is_open:
            self._donations.give(turn)
        hindrance = self._rule.step(turn)
        if hindrance is not None:
            self._state.agenda.ask(hindrance)
        self._departure.turned()
