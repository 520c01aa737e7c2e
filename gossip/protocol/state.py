"""All state of one peer's protocol, shared by its parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.effects import Effect
from ..effects.events import NO_MEMORY, Event
from ..effects.ledger import Account
from ..exchange.flow_control import LinkEstimator
from ..exchange.incoming import Inbox
from ..exchange.outgoing import Outbox
from ..exchange.transfer import STRANDED, SnapshotRefs
from ..membership.static import StaticMemberTable
from ..membership.table import MemberTable
from ..types import PeerId, ShareId, SnapshotId
from ..wire.formats import NATIVE, Form, parse_wire
from ..wire.messages import Offer, Phase
from ..wire.schema import Schema
from .rule import Requirements

__all__ = [
    "Neighbors",
    "ShardState",
    "State",
]


# Bound once: up to Python 3.11, looking a member of an enum up costs more than a call.
_TRAINING = Phase.TRAINING

Neighbors = Callable[[Sequence[PeerId], PeerId, int], Sequence[PeerId]]
"""A topology on the live peers: ``(sorted live ids, peer, round) -> push targets``. If it has a
mixing matrix, its method ``weights`` with the same parameters returns the peer's row."""


@dataclass(slots=True)
class ShardState:
    """State of one shard."""

    shard: int
    log: EffectLog
    inbox: Inbox
    outbox: Outbox
    copied: bool = False
    """True if this newcomer has received its copy of this shard."""
    anchored: bool = False
    """True if that copy included this part of the anchor."""
    is_listed: bool = True
    """True if it is in `State.busy_shards`."""

    @property
    def is_busy(self) -> bool:
        outbox = self.outbox
        return bool(self.inbox.transfers or outbox.transfers or outbox.returned)

    @property
    def weight(self) -> int:
        return self.log.account.weight


@dataclass(slots=True, kw_only=True)
class State:
    """State of a protocol."""

    config: ProtocolConfig
    schema: Schema
    neighbors: Neighbors
    table: MemberTable | StaticMemberTable
    rng: np.random.Generator
    rule_name: str
    requirements: Requirements
    outstanding_max: int
    host: bytes
    """Id of the machine whose memory neighbors may read; empty if they may not."""
    anchor: bytes
    """Hash of the anchor that the vector keeps; empty if it keeps none."""
    log: EffectLog = field(init=False)
    shard_states: tuple[ShardState, ...] = field(init=False)
    busy_shards: tuple[ShardState, ...] = field(init=False)
    """Shards that may have a share in flight, in order: the others must cost nothing."""
    links: dict[PeerId, LinkEstimator] = field(default_factory=dict)
    snapshot_refs: SnapshotRefs = field(init=False)
    kept: set[SnapshotId] = field(default_factory=set)
    """Snapshots that the rule keeps, even if no share reads them."""
    reads: PeerId = ""
    measuring: list[ShareId] = field(default_factory=list)
    """Shares whose distance from ``x`` the rule has requested in this call."""
    distances: dict[ShareId, float] | None = None
    """Distances measured since the model last changed; None before the rule has asked."""
    cursor: int = 0
    rooted: bool = False
    """True if a share of this swarm was ever accepted, by this peer or from it."""
    swarm_is_rooted: bool = False
    """True if another member says so of itself."""
    returning: set[PeerId] = field(default_factory=set)
    """Newcomers that belonged to this swarm before."""
    is_stale: bool = False
    """True if others ignore this incarnation, since a later one has started."""
    round: int = 0
    swarm_steps: int = 0
    """Steps of the whole swarm, as known when the rule was last called."""
    passed: int = 0
    """Rounds of the topology without a reachable neighbor, which were passed over."""
    snapshots: SnapshotId = 0
    samples: int | None = None
    steps_going_on: int = 0
    """1 while shards are pushed during an optimizer step that is not counted yet, else 0."""
    lr: float | None = None
    called_s: float | None = None
    founders: int = 1
    may_close: bool | None = None
    """The rule's last answer, see `RuleContext.may_close`."""
    rests: bool = False
    is_full: bool = False
    """True if memory has no room for another share, by the latest report."""
    is_bounded: bool = False
    """True if there ever was such a report, so that there may be room for only one share."""
    copies: bool = False
    """True while a large copy is on its way to a newcomer, with the link to itself."""
    gave: bool = False
    """True if the current step has copied the model out for a newcomer."""
    closing: bool = False
    halted: str = ""

    def __post_init__(self) -> None:
        config, schema, me = self.config, self.schema, self.table.me
        accounts = [Account(me.id, me.incarnation, shard) for shard in range(schema.shards)]
        effects: list[Effect | Event] = []
        logs = [EffectLog(account, schema.hash, b"", effects) for account in accounts]
        self.log, self.snapshot_refs = logs[0], SnapshotRefs(logs[0])
        self.swarm_steps = self.table.clock.total
        self.shard_states = tuple(
            [
                ShardState(
                    shard,
                    log,
                    Inbox(config, schema, log, self.why_refused, self.is_open),
                    Outbox(config, log, self.links, self.snapshot_refs, schema.shards),
                    is_listed=schema.shards == 1,
                )
                for shard, log in enumerate(logs)
            ]
        )
        self.busy_shards = self.shard_states if schema.shards == 1 else ()

    @property
    def weight(self) -> int:
        return sum([each.weight for each in self.shard_states])

    def shares_memory(self, peer: PeerId) -> bool:
        member = self.table.member(peer)
        return bool(self.host) and member is not None and member.host == self.host

    @property
    def is_anchored(self) -> bool:
        return bool(self.anchor) and self.anchor == self.log.swarm

    def list_busy(self, shard_state: ShardState) -> None:
        shard_state.is_listed = True
        listed = (*self.busy_shards, shard_state)
        self.busy_shards = tuple(sorted(listed, key=lambda each: each.shard))

    def list_idle(self) -> None:
        for shard_state in self.busy_shards:
            shard_state.is_listed = shard_state.is_busy
        self.busy_shards = tuple([each for each in self.busy_shards if each.is_listed])

    def is_open(self) -> bool:
        """Return True if a sender's next share would be accepted."""
        return self.table.phase >= _TRAINING and not (self.closing or self.is_full)

    def expects_copy(self, but: PeerId = "") -> bool:
        """Return True if a copy is on its way here from a peer other than *but*."""
        shares = [t for each in self.busy_shards for t in each.inbox.transfers.values()]
        return any([each.offer.form.copy for each in shares if each.id.sender != but])

    def why_refused(self, share: ShareId, offer: Offer) -> str:
        phase, form = self.table.phase, offer.form
        if self.closing:
            return "finished" if phase < Phase.LEAVING else "leaving"
        if self.is_full and phase > Phase.JOINING:
            return NO_MEMORY
        if phase < _TRAINING:
            if phase is Phase.SEEKING:
                return "not asked for"
            if form != Form(copy=True, anchor=form.anchor):
                return "not a copy"
            # Two donors may have been asked: the second would only slow down the first.
            if self.expects_copy(but=share.sender):
                return "another copy is on its way"
        if form.wire == NATIVE and form.registers == 1 and not form.bare:
            return ""
        return self._why_useless(form)

    def _why_useless(self, form: Form) -> str:
        """Return why the rule cannot use a share in this format, or an empty string."""
        wire, requirements = parse_wire(form.wire), self.requirements
        most = 1 if form.copy else requirements.share_registers
        if form.registers > most:
            return f"of {form.registers} registers, and {self.rule_name} takes {most}"
        if form.needs_anchor() and not self.is_anchored:
            return "a difference from an anchor that is not known here"
        needs_all = requirements.whole or requirements.measures
        if (
            (requirements.lossless and not wire.is_native)
            or (needs_all and not (wire.is_dense or form.bare))
            or (form.bare and not requirements.bare)
            or (wire.is_for_differences and not form.bare)
        ):
            return f"in a format that {self.rule_name} cannot use"
        return ""

    def in_flight(self) -> int:
        """Return how many shares are not settled whose receivers are not considered dead."""
        outboxes = [each.outbox for each in self.busy_shards]
        return sum([t.state not in STRANDED for box in outboxes for t in box.transfers.values()])

    def close(self, reason: str) -> None:
        """Push and accept nothing more: the rule is not called again."""
        self.closing = True
        for snapshot in self.kept:
            self.snapshot_refs.remove(snapshot)
        self.kept.clear()
        self.refuse_all(reason)

    def refuse_all(self, reason: str) -> None:
        for shard_state in self.busy_shards:
            shard_state.inbox.refuse_all(reason)

    def expire(self, now: float) -> None:
        for shard_state in self.busy_shards:
            shard_state.inbox.expire(now)
            shard_state.outbox.query_due(now)

    @property
    def lacks_memory(self) -> bool:
        return self.is_full or (self.is_bounded and self.gave)

    def deadline(self) -> float:
        due_s = float("inf")
        for each in self.busy_shards:
            due_s = min([due_s, *[t.deadline_s for t in each.inbox.transfers.values()]])
            due_s = min([due_s, *[t.deadline_s for t in each.outbox.transfers.values()]])
        return due_s

    def enter(self, swarm: bytes) -> None:
        for shard_state in self.shard_states:
            shard_state.log.swarm = swarm
        self.table.advance(anchored=self.is_anchored)
