"""Everything that one peer's protocol remembers, in one place that its parts share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

import numpy as np

from ..config import ProtocolConfig
from ..effects.effect_log import EffectLog
from ..effects.effects import Snapshot
from ..effects.ledger import Account
from ..errors import LocalProtocolError
from ..exchange.flow_control import LinkEstimators, RateLimiter
from ..exchange.incoming import Inbox
from ..exchange.outgoing import Outbox
from ..exchange.transfer import EscrowEvent, SnapshotRefs
from ..membership.static import StaticMemberTable
from ..membership.table import MemberTable
from ..types import PeerId, ShareId, SnapshotId
from ..wire.formats import Form
from ..wire.messages import Offer
from ..wire.schema import Schema
from .rule import Requirements

__all__ = [
    "Neighbors",
    "ShardState",
    "State",
    "weights_of",
]

Neighbors = Callable[[Sequence[PeerId], PeerId, int], Sequence[PeerId]]
"""A topology on a live view: ``(sorted live ids, peer, round) -> whom it may push to``."""


def weights_of(neighbors: Neighbors) -> Callable[..., Mapping[PeerId, float]] | None:
    """Rows of the mixing matrix, asked for as `Neighbors` are; None where they know none."""
    return getattr(neighbors, "weights", None)


@dataclass(slots=True)
class ShardState:
    """All that a peer keeps for one shard: weight and shares of the others never touch it."""

    shard: int
    log: EffectLog
    inbox: Inbox
    outbox: Outbox
    copied: bool = False
    """Whether a newcomer has got its copy of this shard."""
    anchored: bool = False
    """Whether that brought this part of the anchor."""
    is_listed: bool = True
    """Whether it is among `State.busy_shards`."""

    @property
    def is_busy(self) -> bool:
        outbox = self.outbox
        return bool(self.inbox.transfers or outbox.transfers or outbox.returned)

    @property
    def weight(self) -> int:
        return self.log.account.weight


@dataclass(slots=True, kw_only=True)
class State:
    """The parts of a protocol; `Protocol` makes them, rules and membership act on them."""

    config: ProtocolConfig
    schema: Schema
    neighbors: Neighbors
    table: MemberTable | StaticMemberTable
    rng: np.random.Generator
    """The rule's own stream."""
    requirements: Requirements
    """The rule's."""
    outstanding_max: int
    """Shares that may be outstanding at once, as the rule says."""
    anchor: bytes
    """Hash of the anchor that the vector keeps; empty where it keeps none."""
    validate: InitVar[Callable[[ShareId, Offer], str]]
    """Says why an offer is refused, or nothing where it is let in."""
    is_open: InitVar[Callable[[], bool]]
    """Says whether the next share of a sender would be let in."""
    log: EffectLog = field(init=False)
    shard_states: tuple[ShardState, ...] = field(init=False)
    busy_shards: tuple[ShardState, ...] = field(init=False)
    """Those of which a share may be under way, in order: of thousands of shards a step or a message
    concerns a few, and the others must cost it nothing."""
    links: LinkEstimators = field(init=False)
    rate_limiter: RateLimiter = field(init=False)
    snapshot_refs: SnapshotRefs = field(init=False)
    kept: set[SnapshotId] = field(default_factory=set)
    """Snapshots that the rule keeps, whether a share reads them or not."""
    measuring: list[ShareId] = field(default_factory=list)
    """Shares whose distance from ``x`` the rule has asked for in this call."""
    distances: dict[ShareId, float] | None = None
    """How far shares are from the model, of those measured at this step boundary since it last
    changed; None before the rule has asked."""
    cursor: int = 0
    """The shard to be pushed next."""
    rooted: bool = False
    """Whether a share of this swarm was ever accepted, by this peer or from it."""
    swarm_is_rooted: bool = False
    """Whether a member of this swarm has said that it accepted a share."""
    returning: set[PeerId] = field(default_factory=set)
    """Newcomers that have been of this swarm before."""
    is_stale: bool = False
    """Whether a later incarnation of this peer has begun, so that others ignore this one."""
    round: int = 0
    swarm_steps: int = 0
    """Steps of the whole swarm, as they were known when the rule was last called."""
    passed: int = 0
    """Rounds of the topology that were passed over, for want of anybody to push to."""
    snapshots: SnapshotId = 0
    samples: int | None = None
    """How many the last optimizer step took, where somebody says."""
    steps_going_on: int = 0
    """1 while shards are pushed that a step is through with which is not counted yet."""
    lr: float | None = None
    """Learning rate of the last optimizer step, where somebody says."""
    called_s: float | None = None
    """When the rule was last called, seconds."""
    founders: int = 1
    """How many peers found together, this one included."""
    may_close: bool | None = None
    """True if the rule has nothing to push in this round of merging, False if it must end something
    first; None if the count of its pushes decides."""
    rests: bool = False
    """True once the peer has pushed enough in this round of merging, and begins nothing more."""
    is_full: bool = False
    """Whether memory has no room for another share, as this peer was told last."""
    is_bounded: bool = False
    """Whether it ever was told, so that what there is room for may be one share alone."""
    copies: bool = False
    """Whether a large copy is on its way to a newcomer. It has the link to itself: beside pushes it
    would take several times as long, and nobody waits for those."""
    gave: bool = False
    """Whether the step at hand has copied the model out for a newcomer, or a reader."""
    closing: bool = False
    """Whether shares are refused from now on."""
    halted: str = ""
    """Why the rule cannot go on; empty while it can."""

    def __post_init__(
        self, validate: Callable[[ShareId, Offer], str], is_open: Callable[[], bool]
    ) -> None:
        config, schema, me = self.config, self.schema, self.table.me
        self.log = EffectLog(Account(me.id, me.incarnation), schema.hash, b"")
        self.links = LinkEstimators(config)
        self.rate_limiter = RateLimiter(config.bandwidth_bytes_s)
        self.snapshot_refs = SnapshotRefs(self.log)
        self.swarm_steps = self.table.clock.total

        def of_shard(shard: int) -> ShardState:
            log = self.log
            if shard:
                log = log.beside(Account(me.id, me.incarnation, shard))
            links, limiter, refs = self.links, self.rate_limiter, self.snapshot_refs
            return ShardState(
                shard,
                log,
                Inbox(config, schema, log, validate, is_open),
                Outbox(config, log, links, limiter, refs, schema.shards),
                is_listed=schema.shards == 1,
            )

        self.shard_states = tuple([of_shard(shard) for shard in range(schema.shards)])
        self.busy_shards = self.shard_states if schema.shards == 1 else ()

    @property
    def weight(self) -> int:
        return sum([each.weight for each in self.shard_states])

    def shares_memory(self, peer: PeerId) -> bool:
        """Whether *peer* may be able to read this peer's memory."""
        host = self.table.host
        return bool(host) and self.table.machine(peer) == host

    @property
    def is_anchored(self) -> bool:
        return bool(self.anchor) and self.anchor == self.log.swarm

    def list_busy(self, shard_state: ShardState) -> None:
        """Note that a share of one more shard is under way."""
        shard_state.is_listed = True
        listed = (*self.busy_shards, shard_state)
        self.busy_shards = tuple(sorted(listed, key=lambda each: each.shard))

    def list_idle(self) -> None:
        """Note of which shards nothing is under way any more."""
        for shard_state in self.busy_shards:
            shard_state.is_listed = shard_state.is_busy
        self.busy_shards = tuple([each for each in self.busy_shards if each.is_listed])

    def in_flight(self) -> int:
        return sum([each.outbox.in_flight for each in self.busy_shards])

    def credit_used(self) -> int:
        """How many shares use up credit; those toward peers that do not answer, or only read,
        do not."""
        used = 0
        for shard_state in self.busy_shards:
            outbox = shard_state.outbox
            free = outbox.unanswering | outbox.showing if outbox.showing else outbox.unanswering
            used += outbox.in_flight - len(free)
        return used

    def choose_shards(self, *, every: bool) -> tuple[int, ...]:
        """The shards that the next push carries; all of them where *every* is set."""
        n_shards = len(self.shard_states)
        count = min(self.config.shards_per_push, n_shards)
        if count == n_shards or every:
            return tuple(range(n_shards))
        if self.config.shard_order == "random":
            drawn = self.rng.choice(n_shards, count, replace=False, shuffle=False)
            return tuple(sorted(int(shard) for shard in drawn))
        return tuple((self.cursor + k) % n_shards for k in range(count))

    def keep(self, register: str, form: Form, *, shown: bool) -> SnapshotId:
        """Take a snapshot that lasts until it is let go."""
        snapshot = self.snapshots = self.snapshots + 1
        self.log.ask(Snapshot(snapshot, register, form, shown=shown))
        self.snapshot_refs.add(snapshot)
        self.kept.add(snapshot)
        return snapshot

    def let_go(self, snapshot: SnapshotId) -> None:
        """Keep a snapshot no longer than shares read it."""
        if snapshot not in self.kept:
            raise LocalProtocolError(f"snapshot {snapshot} is not kept")
        self.kept.remove(snapshot)
        self.snapshot_refs.remove(snapshot)

    def close(self, reason: str) -> None:
        """Push and take in nothing more: the rule is not called again."""
        self.closing = True
        for snapshot in [*self.kept]:
            self.let_go(snapshot)
        self.refuse_all(reason)

    def refuse_all(self, reason: str) -> None:
        for shard_state in self.busy_shards:
            shard_state.inbox.refuse_all(reason)

    def expire(self, now: float) -> None:
        """Give up what has stopped arriving, and ask about what is not answered."""
        for shard_state in self.busy_shards:
            shard_state.inbox.expire(now)
            shard_state.outbox.query_due(now)

    def go_on(self, now: float) -> None:
        """Send what bandwidth has held back, as far as it allows now."""
        while (front := self.rate_limiter.front(now)) is not None:
            shard, peer = front
            self.shard_states[shard].outbox.on(peer, EscrowEvent.GO_ON, now)

    def reclaim(self, now: float) -> None:
        """Mix back what came back, where that is asked for; values may be changed now."""
        for shard_state in self.busy_shards:
            shard_state.outbox.reclaim(shard_state.weight, now)

    @property
    def lacks_memory(self) -> bool:
        """Whether nothing more may be copied out, to be pushed, in the step at hand."""
        return self.is_full or (self.is_bounded and self.gave)

    def deadline(self) -> float:
        """When a share on its way in or out has something due at the latest, seconds."""
        due_s = self.rate_limiter.due_s if self.rate_limiter.is_limited else float("inf")
        for shard_state in self.busy_shards:
            if shard_state.inbox.transfers:
                due_s = min(due_s, shard_state.inbox.deadline())
            if shard_state.outbox.transfers:
                due_s = min(due_s, shard_state.outbox.deadline())
        return due_s

    def enter(self, swarm: bytes) -> None:
        for shard_state in self.shard_states:
            shard_state.log.swarm = swarm
        self.table.advance(anchored=self.is_anchored)
