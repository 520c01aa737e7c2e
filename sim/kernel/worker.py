"""One worker of a fleet: its protocol, the shares it holds, and what it has done."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from typing import Protocol as Structural

from ...gossip.effects.effects import Effect, Measure, Stage
from ...gossip.effects.events import Event
from ...gossip.effects.ledger import Account
from ...gossip.membership.static import StaticMembership
from ...gossip.protocol.protocol import Protocol
from ...gossip.types import Incarnation, PeerId, ShareId, SnapshotId, stream
from ...gossip.wire.formats import parse_wire
from ...gossip.wire.messages import Envelope
from ..models.links import address_of
from .plan import Checkpoint, FleetPlan
from .program import Slot

__all__ = [
    *("CrashPoint", "Handler", "Harness", "Incarnations", "Observer"),
    *("Payload", "Values", "Worker"),
]

Payload = Any
"""Content of a message: a `Slot`, or another object of `Values`; None for nothing."""


class CrashPoint(NamedTuple):
    """A crash that is due between two effects of a worker's next event."""

    after: int | None  # effects that are still applied; None to crash once something was accepted
    ledger: list[Account]  # the worker's, an account per shard, updated as effects are applied


@dataclass(slots=True, eq=False)
class Worker:
    """One incarnation of a worker between two events."""

    index: int
    id: PeerId
    protocol: Protocol
    snapshots: dict[SnapshotId, Slot] = field(default_factory=dict)  # it may still send from them
    shares: dict[ShareId, Slot] = field(default_factory=dict)  # arrived, and undecided
    steps: int = 0  # optimizer steps taken, those before its last checkpoint included
    repeated: int = 0  # steps of earlier incarnations that are not among these
    pushes: int = 0
    mixed: int = 0
    exchanges: int = 0  # pushes and mixes that have already extended a step
    waiting_since_s: float | None = None  # for a synchronous rule; None while it trains
    idle_s: float = 0.0  # time spent waiting so far, s, without the current wait
    waited_s_most: float = 0.0  # longest wait of all its incarnations, s, without the current one
    away_s: float = 0.0  # time spent joining or paused, s, without the current interval
    step_s: float = 0.0
    computed_s: float = 0.0  # duration of its finished steps, s, without those to be repeated
    alarm_s: float = math.inf  # latest time at which it is to be woken
    turn_s: float = 0.0
    is_within_step: bool = False  # the current step is computed already, and shards of it pushed
    finishing: bool = False  # it stops after the current step, once it has taken `last_step` steps
    last_step: int = 0
    finished: bool = False  # true if it takes no more steps
    awake: bool = True  # true if its process runs and is not paused
    running: bool = True  # true if its process runs, paused or not
    searching: bool = False  # true if it has not joined a swarm yet, and so does not train
    seeds: Sequence[str] = ()  # addresses that it was given at its start
    paused_s: float | None = None  # start of its pause; None if it is not paused
    pauses: set[object] = field(default_factory=set)
    held: list[tuple[Envelope, Payload]] = field(default_factory=list)  # arrived in its pause
    deferred: list[Callable[[], object]] = field(default_factory=list)  # to run once it resumes
    ahead_s: float = 0.0  # how far its clock is ahead, s
    slowness: float = 1.0  # factor of its step times
    lr_factor: float = 1.0  # factor of the learning rate in its last step
    spoilt: bool = False  # true once its values are not all finite
    crash_point: CrashPoint | None = None
    kept: Checkpoint | None = None
    checkpoint_s: float = math.inf  # time of its next checkpoint
    started_s: float = 0.0

    @property
    def total_steps(self) -> int:
        """Optimizer steps taken since the start of the run, repeated ones included."""
        return self.repeated + self.steps

    @property
    def waits(self) -> bool:
        return self.waiting_since_s is not None and self.running

    def idle_until(self, now: float) -> float:
        """Return the time it has spent waiting by *now*, seconds."""
        since_s = self.waiting_since_s
        return self.idle_s if since_s is None else self.idle_s + now - since_s

    def waited_until(self, now: float) -> float:
        """Return its longest single wait by *now*, seconds."""
        since_s = self.waiting_since_s
        return self.waited_s_most if since_s is None else max(self.waited_s_most, now - since_s)

    def computed_until(self, now: float) -> float:
        """Return seconds computed by *now* on steps that count, the current one included."""
        trains = self.awake and not (self.finished or self.searching or self.is_within_step)
        if not trains or self.waiting_since_s is not None:
            return self.computed_s
        return self.computed_s + max(0.0, self.step_s - (self.turn_s - now))

    def away_until(self, now: float) -> float:
        """Return the time it has spent joining or paused by *now*, seconds."""
        # A pause during a wait counts as waiting.
        since_s = self.started_s if self.searching else self.paused_s
        is_away = self.running and since_s is not None and self.waiting_since_s is None
        return self.away_s + now - since_s if is_away and since_s is not None else self.away_s


class Incarnations:
    """Makes the protocols of a fleet, and keeps the ledgers of ended incarnations."""

    def __init__(
        self, plan: FleetPlan, membership: StaticMembership | None, harness: "Harness | None"
    ) -> None:
        self.ended_s = 0.0
        """Total duration of all ended incarnations, seconds."""
        self._plan = plan
        self._membership = membership
        self._harness = harness
        self._keeps_anchor = parse_wire(plan.protocol.wire).needs_anchor
        self.ended: list[Account] = []
        """Ledgers of ended incarnations."""
        self.dead: set[tuple[PeerId, Incarnation]] = set()
        """Incarnations that handed nothing on."""

    def first(self, index: int, id: PeerId) -> Worker:
        return Worker(index, id, self._protocol(id, None, None))

    def next(self, before: Worker, kept: Checkpoint | None) -> Worker:
        """Make a worker's next incarnation from the last checkpoint of the ended one."""
        worker = Worker(before.index, before.id, self._protocol(before.id, before, kept))
        worker.steps = kept.steps if kept is not None else 0
        worker.repeated = before.total_steps - worker.steps
        worker.pushes, worker.mixed, worker.idle_s = before.pushes, before.mixed, before.idle_s
        worker.waited_s_most, worker.away_s = before.waited_s_most, before.away_s
        # Steps after the checkpoint are lost. All steps of an incarnation last about the same.
        worker.computed_s = before.computed_s * worker.steps / max(1, before.steps)
        worker.slowness = before.slowness
        # A later restart may still find it, even if this one does not use it.
        worker.kept = before.kept
        return worker

    def end(
        self, worker: Worker, now: float, *, died: bool, ledger: Sequence[Account] | None = None
    ) -> None:
        """Record an ended incarnation; *ledger* is its ledger, if less than it had decided."""
        self.ended += worker.protocol.accounts if ledger is None else ledger
        if died:
            self.dead.add(worker.protocol.account.life)
        self.ended_s += now - worker.started_s

    def _protocol(self, id: PeerId, before: Worker | None, kept: Checkpoint | None) -> Protocol:
        if self._harness is not None:
            return self._harness.protocol(id, before, kept)
        plan, rule = self._plan, self._plan.rule()
        row = plan.ids.index(id) if plan.attacks else -1
        if any([row in attack.liars for attack in plan.attacks if attack.kind == "flood"]):
            # A flooding peer keeps to no bound but one share toward each other peer.
            vars(rule)["outstanding_max"] = len(plan.ids)
        incarnation = 1 if before is None else before.protocol.account.incarnation + 1
        return Protocol(
            id=id,
            incarnation=incarnation,
            schema=plan.schema,
            anchor=plan.anchor,
            rule=rule,
            neighbors=plan.neighbors,
            rng=partial(stream, plan.seed, id if incarnation == 1 else f"{id}:{incarnation}"),
            config=plan.protocol,
            addresses=() if self._membership is not None else (address_of(id),),
            membership=self._membership,
            keeps_anchor=self._keeps_anchor,
            host=plan.machines.get(id, b""),
            clock=dict(kept.clock) if kept is not None else {},
        )


Handler = Callable[[Worker, Any, float], None]
"""Applies one effect of a worker, at a time on that worker's clock."""


class Values(Structural):
    """Executes operations on values: scheduled as a `Program`, or computed at once."""

    steps: int

    def step(self, worker: int, step: int, rate: float | None) -> None:
        """Take an optimizer step of a worker; *rate* is a factor of its learning rate."""

    def keep(self, worker: int) -> None:
        """Keep a worker's values, as a checkpoint does."""

    def start(self, worker: int, *, kept: bool) -> None:
        """Let a worker begin anew, with its last kept values or the initial ones."""

    def let_go(self, slot: Any) -> None:
        """Remove one reader of a payload."""


class Observer(Structural):
    """Observes the processes of a fleet."""

    def started(self, worker: Worker) -> None:
        """Called when an incarnation begins."""

    def ended(self, worker: Worker, *, died: bool, gave_up: bool) -> None:
        """Called when an incarnation ends; *gave_up* if no peer took a leaver's weight."""

    def carried(self, worker: Worker, effect: Effect | Event) -> None:
        """Called after an effect was applied."""


class Harness(Values, Observer, Structural):
    """Applies effects at once, observes every event, and injects failures beyond a `FaultPlan`."""

    handlers: Mapping[type, Handler]
    """Handlers of effects, in place of those that schedule them."""

    def protocol(self, id: PeerId, before: Worker | None, kept: Checkpoint | None) -> Protocol:
        """Make the protocol of a first incarnation, or of the one after *before*."""

    def listens(self, id: PeerId) -> bool:
        """Return True if a peer has an address at which others can reach it."""

    def reaches(self, source: Worker, to: Worker) -> bool:
        """Return True if one process can reach another."""

    def unsent(self, worker: Worker, envelope: Envelope) -> None:
        """Called when a message found no listening process."""

    def refused(self, worker: Worker) -> None:
        """Called when a message was refused since it breaks the protocol."""

    def stage(self, worker: Worker, effect: Stage, payload: Payload) -> None:
        """Keep the part of a share that the current message carries."""

    def decided(self, worker: Worker, cause: object) -> None:
        """Called with an event, a message or a word for it, before its effects are applied."""

    def done(self, worker: Worker) -> None:
        """Called after all effects of the event were applied."""

    def measure(self, worker: Worker, effect: Measure) -> Mapping[ShareId, float]:
        """Return how far the shares that still exist are from a worker's model now."""
