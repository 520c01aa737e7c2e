"""One worker of a fleet: a protocol, what it holds for it, and what it has done."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from typing import Protocol as Structural

from ...gossip import Audit, audit
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
"""What travels beside a message: a `Slot`, or what else `Values` make of it; None for nothing."""


class CrashPoint(NamedTuple):
    """A crash that is due at a boundary between two effects of what a worker does next."""

    after: int | None
    """So many effects of the next event are still carried out; None where the end comes as soon as
    something was accepted."""
    ledger: list[Account]
    """What the worker's ledger says now, an account for each shard; it is kept up to date with what
    is carried out."""


@dataclass(slots=True, eq=False)
class Worker:
    """One life of a worker between two events."""

    index: int
    """Its row."""
    id: PeerId
    protocol: Protocol
    """What decides for it."""
    snapshots: dict[SnapshotId, Slot] = field(default_factory=dict)
    """Slots that it may still send from."""
    shares: dict[ShareId, Slot] = field(default_factory=dict)
    """Slots that have come and are not decided."""
    steps: int = 0
    """Optimizer steps taken, those before its last checkpoint included."""
    repeated: int = 0
    """Steps of earlier lives that are not among these."""
    pushes: int = 0
    mixed: int = 0
    exchanges: int = 0
    """Pushes and mixes that steps so far were longer for."""
    waiting_since_s: float | None = None
    """Since when a synchronous rule has held it up; None while it trains."""
    idle_s: float = 0.0
    """How long it was held up so far, the present wait not counted."""
    waited_s_most: float = 0.0
    """The longest of its waits that are over, in any of its lives."""
    away_s: float = 0.0
    """How long its process has looked for a swarm or stood still, what goes on not counted."""
    step_s: float = 0.0
    """What the step that it takes lasts, seconds."""
    computed_s: float = 0.0
    """What the steps behind it lasted, without those that it has to repeat."""
    alarm_s: float = math.inf
    """When it is to be woken at the latest."""
    turn_s: float = 0.0
    """When its next turn is due."""
    is_within_step: bool = False
    """Whether the optimizer step that goes on is computed already, and shards of it pushed."""
    finishing: bool = False
    """Whether it is to take no more steps after the one that it takes, once it has taken
    `last_step` of them."""
    last_step: int = 0
    finished: bool = False
    """Whether it takes no more steps."""
    awake: bool = True
    """Whether its process runs and is not paused."""
    running: bool = True
    """Whether its process runs, paused or not."""
    searching: bool = False
    """Whether it does not belong to a swarm yet, and so does not train."""
    seeds: Sequence[str] = ()
    """Addresses that it was told at its start."""
    paused_s: float | None = None
    """Since when it stands still, None while it does not."""
    pauses: set[int] = field(default_factory=set)
    """Numbers of the pauses that hold it."""
    held: list[tuple[Envelope, Payload]] = field(default_factory=list)
    """What has come while it was paused."""
    deferred: list[Callable[[], object]] = field(default_factory=list)
    """What is to be done at it once it goes on."""
    ahead_s: float = 0.0
    """How far its clock is ahead."""
    slowness: float = 1.0
    """How many times as long its steps take as its pace says."""
    lr_factor: float = 1.0
    """Which part of the learning rate its last step used."""
    spoilt: bool = False
    """Whether its values have stopped being finite."""
    crash_point: CrashPoint | None = None
    """How it is about to crash, if it is."""
    kept: Checkpoint | None = None
    """Its last checkpoint, if any."""
    checkpoint_s: float = math.inf
    """When it takes the next."""
    started_s: float = 0.0
    """When its process started."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps taken since the start of the run, repeated ones too."""
        return self.repeated + self.steps

    @property
    def waits(self) -> bool:
        """Whether it is held up by others."""
        return self.waiting_since_s is not None and self.running

    def idle_until(self, now: float) -> float:
        """How long it was held up until *now*, seconds."""
        since_s = self.waiting_since_s
        return self.idle_s if since_s is None else self.idle_s + now - since_s

    def waited_until(self, now: float) -> float:
        """How long it was held up at a stretch by *now*, at most, seconds."""
        since_s = self.waiting_since_s
        return self.waited_s_most if since_s is None else max(self.waited_s_most, now - since_s)

    def computed_until(self, now: float) -> float:
        """What the steps lasted that count, with what the one that goes on has taken, seconds."""
        trains = self.awake and not (self.finished or self.searching or self.is_within_step)
        if not trains or self.waiting_since_s is not None:
            return self.computed_s
        return self.computed_s + max(0.0, self.step_s - (self.turn_s - now))

    def away_until(self, now: float) -> float:
        """How long it has looked for a swarm or stood still by *now*, seconds.

        A wait in which it stands still is a wait.
        """
        since_s = self.started_s if self.searching else self.paused_s
        is_away = self.running and since_s is not None and self.waiting_since_s is None
        return self.away_s + now - since_s if is_away and since_s is not None else self.away_s


class Incarnations:
    """Makes the protocols of a fleet, and keeps the ledgers of those whose process has ended."""

    def __init__(
        self, plan: FleetPlan, membership: StaticMembership | None, harness: "Harness | None"
    ) -> None:
        self.ended_s = 0.0
        """How long all lives that have ended lasted together, seconds."""
        self._plan = plan
        self._membership = membership
        self._harness = harness
        self._keeps_anchor = parse_wire(plan.protocol.wire).needs_anchor
        self._ended: list[Account] = []
        self._dead: set[tuple[PeerId, Incarnation]] = set()

    def first(self, index: int, id: PeerId) -> Worker:
        """Make the first life of a worker."""
        return Worker(index, id, self._protocol(id, None, None))

    def next(self, before: Worker, kept: Checkpoint | None) -> Worker:
        """Make the life after one that has ended, which knows of that one what was kept."""
        worker = Worker(before.index, before.id, self._protocol(before.id, before, kept))
        worker.steps = kept.steps if kept is not None else 0
        worker.repeated = before.total_steps - worker.steps
        worker.pushes, worker.mixed, worker.idle_s = before.pushes, before.mixed, before.idle_s
        worker.waited_s_most, worker.away_s = before.waited_s_most, before.away_s
        # What came after the checkpoint is lost. All steps of a life last about the same.
        worker.computed_s = before.computed_s * worker.steps / max(1, before.steps)
        worker.slowness = before.slowness
        # A later restart may still find it, even where this one was told to do without.
        worker.kept = before.kept
        return worker

    def end(
        self, worker: Worker, now: float, *, died: bool, ledger: Sequence[Account] | None = None
    ) -> None:
        """Note that a life has ended.

        Args:
            died: Whether it handed nothing on.
            ledger: What stands in its ledger, where that is less than it had decided.
        """
        self._ended += worker.protocol.accounts if ledger is None else ledger
        if died:
            self._dead.add(worker.protocol.account.life)
        self.ended_s += now - worker.started_s

    def audit(self, workers: Sequence[Worker]) -> Audit:
        """Count all weight, by the ledgers of all lives; *workers* are the latest."""
        running = [a for worker in workers if worker.running for a in worker.protocol.accounts]
        return audit([*self._ended, *running], self._dead)

    def _protocol(self, id: PeerId, before: Worker | None, kept: Checkpoint | None) -> Protocol:
        if self._harness is not None:
            return self._harness.protocol(id, before, kept)
        plan, rule = self._plan, self._plan.rule()
        row = plan.ids.index(id) if plan.attacks else -1
        if any([row in attack.liars for attack in plan.attacks if attack.kind == "flood"]):
            # Who floods keeps to no bound but one share toward each other.
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
    """What becomes of values: scheduled as a `Program`, or computed at once."""

    steps: int
    """Optimizer steps of all workers since the start."""

    def step(self, worker: int, step: int) -> None:
        """A worker takes an optimizer step."""

    def keep(self, worker: int) -> None:
        """Keep a worker's values, as a checkpoint does."""

    def start(self, worker: int, *, kept: bool) -> None:
        """Let a worker begin anew, with what was last kept of it or as at the very start."""

    def let_go(self, slot: Any) -> None:
        """What travelled beside a message has one reader less."""


class Observer(Structural):
    """Observes the processes of a fleet."""

    def started(self, worker: Worker) -> None:
        """Take note that a life begins."""

    def ended(self, worker: Worker, *, died: bool, gave_up: bool) -> None:
        """Take note that a life has ended, perhaps since nobody has taken a leaver's weight."""

    def carried(self, worker: Worker, effect: Effect | Event) -> None:
        """Take note of an effect that was just applied."""

    def refused(self, worker: Worker, payload: Payload) -> None:
        """Take note that a message was refused since it breaks the protocol."""


class Harness(Values, Observer, Structural):
    """Applies effects to values at once, observes every event, and injects failures that a
    `FaultPlan` cannot express."""

    handlers: Mapping[type, Handler]
    """Of effects, in place of those that schedule them."""

    def protocol(self, id: PeerId, before: Worker | None, kept: Checkpoint | None) -> Protocol:
        """Make the protocol of a first life, or of the one after another."""

    def ahead_s(self, id: PeerId) -> float:
        """How far the clock of a peer's machine is ahead."""

    def listens(self, id: PeerId) -> bool:
        """Whether a peer has an address, where others can reach it."""

    def reaches(self, source: Worker, to: Worker) -> bool:
        """Whether there is a way from one process to another."""

    def unsent(self, worker: Worker, envelope: Envelope) -> None:
        """Take note that a message found nobody who listens."""

    def stage(self, worker: Worker, effect: Stage, payload: Payload) -> None:
        """Keep the part of a share that came beside the message that is being received."""

    def decided(
        self,
        worker: Worker,
        cause: object,
        effects: Sequence[Effect | Event],
        now: float,
        payload: Payload,
    ) -> None:
        """Take note of an event, a message or a word for it, before its effects are applied."""

    def done(self, worker: Worker) -> None:
        """Take note that all effects of the event were applied."""

    def measure(self, worker: Worker, effect: Measure) -> Mapping[ShareId, float]:
        """How far shares are from a worker's model, now; of those that are still there."""
