"""One worker of a fleet: a protocol, what it holds for it, and what it has done."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol as Structural

from ...gossip import Account, Audit, Envelope, PeerId, Protocol, audit
from ...gossip.effects.effects import Effect
from ...gossip.effects.events import Event
from ...gossip.membership.static import StaticMembership
from ...gossip.rng import stream
from ...gossip.types import Incarnation, ShareId, SnapshotId, frozen
from ...gossip.wire.formats import parse_wire
from ...gossip.wire.messages import ClockRow
from .links import address_of
from .plan import FleetPlan, Traffic
from .program import Program, Slot

__all__ = ["Checkpoint", "CrashPoint", "FleetControl", "Incarnations", "Processes", "Worker"]


@frozen
class Checkpoint:
    """What a worker's next life knows of this one, beside the values that a program keeps."""

    steps: int
    """Optimizer steps taken: where its data stands."""
    peers: tuple[PeerId, ...]
    """Whom it knew."""
    clock: tuple[ClockRow, ...]


class CrashPoint:
    """A crash that is due at a boundary between two effects of what a worker does next.

    Args:
        after: So many effects of the next event are still carried out; None where the end comes
            as soon as something was accepted.
        ledger: What the worker's ledger says now, an account for each shard; it is kept up to
            date with what is carried out.
    """

    __slots__ = ("after", "ledger")

    def __init__(self, after: int | None, ledger: list[Account]) -> None:
        self.after = after
        self.ledger = ledger


class Worker:
    """One life of a worker between two events.

    Args:
        index: Its row.
        id: Its name.
        protocol: What decides for it.

    Attributes:
        snapshots: Slots that it may still send from.
        shares: Slots that have come and are not decided.
        steps: Optimizer steps taken, those before its last checkpoint included.
        repeated: Steps of earlier lives that are not among these.
        waiting_since_s: Since when a synchronous rule has held it up; None while it trains.
        idle_s: How long it was held up so far, the present wait not counted.
        alarm_s: When it is to be woken at the latest.
        turn_s: When its next turn is due.
        finished: Whether it takes no more steps.
        awake: Whether its process runs and is not paused.
        running: Whether its process runs, paused or not.
        searching: Whether it does not belong to a swarm yet, and so does not train.
        paused_s: Since when it stands still, None while it does not.
        pauses: Numbers of the pauses that hold it.
        held: What has come while it was paused.
        ahead_s: How far its clock is ahead.
        slowness: How many times as long its steps take as its pace says.
        spoilt: Whether its values have stopped being finite.
        crash_point: How it is about to crash, if it is.
        kept: Its last checkpoint, if any.
        checkpoint_s: When it takes the next.
        started_s: When its process started.
    """

    __slots__ = (
        "ahead_s",
        "alarm_s",
        "awake",
        "checkpoint_s",
        "crash_point",
        "finished",
        "held",
        "id",
        "idle_s",
        "index",
        "kept",
        "mixed",
        "paused_s",
        "pauses",
        "protocol",
        "pushes",
        "repeated",
        "running",
        "searching",
        "shares",
        "slowness",
        "snapshots",
        "spoilt",
        "started_s",
        "steps",
        "turn_s",
        "waiting_since_s",
    )

    def __init__(self, index: int, id: PeerId, protocol: Protocol) -> None:
        self.index = index
        self.id = id
        self.protocol = protocol
        self.snapshots: dict[SnapshotId, Slot] = {}
        self.shares: dict[ShareId, Slot] = {}
        self.steps = 0
        self.repeated = 0
        self.pushes = 0
        self.mixed = 0
        self.waiting_since_s: float | None = None
        self.idle_s = 0.0
        self.alarm_s = float("inf")
        self.turn_s = 0.0
        self.finished = False
        self.awake = True
        self.running = True
        self.searching = False
        self.paused_s: float | None = None
        self.pauses: set[int] = set()
        self.held: list[tuple[Envelope, Slot | None]] = []
        self.ahead_s = 0.0
        self.slowness = 1.0
        self.spoilt = False
        self.crash_point: CrashPoint | None = None
        self.kept: Checkpoint | None = None
        self.checkpoint_s = float("inf")
        self.started_s = 0.0

    @property
    def total_steps(self) -> int:
        """Optimizer steps taken since the start of the run, repeated ones too."""
        return self.repeated + self.steps

    def idle_until(self, now: float) -> float:
        """How long it was held up until *now*, seconds."""
        since_s = self.waiting_since_s
        return self.idle_s if since_s is None else self.idle_s + now - since_s


class Incarnations:
    """Makes the protocols of a fleet, and keeps the ledgers of those whose process has ended.

    Args:
        plan: What the fleet is made of.
        membership: The view that all workers share; None where each has its own.
    """

    def __init__(self, plan: FleetPlan, membership: StaticMembership | None) -> None:
        self.ended_s = 0.0
        """How long all lives that have ended lasted together, seconds."""
        self._plan = plan
        self._membership = membership
        self._keeps_anchor = parse_wire(plan.protocol.wire).needs_anchor
        self._ended: list[Account] = []
        self._dead: set[tuple[PeerId, Incarnation]] = set()

    def first(self, index: int) -> Worker:
        """Make the first life of a worker."""
        id = self._plan.ids[index]
        return Worker(index, id, self._protocol(id, 1, None))

    def next(self, before: Worker, kept: Checkpoint | None) -> Worker:
        """Make the life after one that has ended.

        Args:
            before: The one before.
            kept: What it knows of that one, if anything.
        """
        incarnation = before.protocol.account.incarnation + 1
        protocol = self._protocol(before.id, incarnation, kept)
        worker = Worker(before.index, before.id, protocol)
        worker.steps = kept.steps if kept is not None else 0
        worker.repeated = before.total_steps - worker.steps
        worker.pushes, worker.mixed, worker.idle_s = before.pushes, before.mixed, before.idle_s
        worker.slowness = before.slowness
        # A later restart may still find it, even where this one was told to do without.
        worker.kept = before.kept
        return worker

    def end(
        self, worker: Worker, now: float, *, died: bool, ledger: Sequence[Account] | None = None
    ) -> None:
        """Note that a life has ended.

        Args:
            worker: Whose.
            now: Virtual time, seconds.
            died: Whether it handed nothing on.
            ledger: What stands in its ledger, where that is less than it had decided.
        """
        self._ended += worker.protocol.accounts if ledger is None else ledger
        if died:
            self._dead.add(worker.protocol.account.life)
        self.ended_s += now - worker.started_s

    def audit(self, workers: Sequence[Worker]) -> Audit:
        """Count all weight, by the ledgers of all lives.

        Args:
            workers: The latest life of each.
        """
        running = [a for worker in workers if worker.running for a in worker.protocol.accounts]
        return audit([*self._ended, *running], self._dead)

    def _protocol(self, id: PeerId, incarnation: Incarnation, kept: Checkpoint | None) -> Protocol:
        plan = self._plan
        return Protocol(
            id=id,
            incarnation=incarnation,
            schema=plan.schema,
            anchor=plan.anchor,
            rule=plan.rule(),
            neighbors=plan.neighbors,
            rng=partial(stream, plan.seed, id if incarnation == 1 else f"{id}:{incarnation}"),
            config=plan.protocol,
            addresses=() if self._membership is not None else (address_of(id),),
            membership=self._membership,
            keeps_anchor=self._keeps_anchor,
            clock=dict(kept.clock) if kept is not None else {},
        )


class FleetControl(Structural):
    """A fleet: its workers, and what is due when."""

    now: float
    program: Program
    traffic: Traffic
    workers: list[Worker]
    """The latest life of each."""

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Do something at a time, before whatever else is due then."""

    def deliver_at(self, time_s: float, to: int, envelope: Envelope, payload: Slot | None) -> None:
        """Let a message arrive at a time, with what travels beside it."""

    def take_in(self, worker: Worker, envelope: Envelope, payload: Slot | None) -> None:
        """Let a worker's protocol have a message."""

    def carry_out(self, worker: Worker, effects: Sequence[Effect | Event], now: float) -> None:
        """Carry out what a worker's protocol has asked for."""

    def step(self, worker: Worker, *, trained: bool) -> None:
        """Let a worker's protocol take a turn."""

    def begin_step(self, worker: Worker) -> None:
        """Let a worker's next turn be due when its step is done."""

    def turn_at(self, worker: Worker, time_s: float) -> None:
        """Let a worker's next turn be due at a time."""

    def finish(self, worker: Worker) -> None:
        """Let a worker take no more steps, and go on mixing."""

    def leave(self, worker: Worker, *, burn: bool = False) -> None:
        """Let a worker take no more steps, and leave."""

    def set_alarm(self, worker: Worker) -> None:
        """See that a worker is woken in time."""


class Processes(Structural):
    """Those who start and end a fleet's processes."""

    def start(self, workers: Sequence[Worker], *, kept: bool = False) -> None:
        """Start newcomers, or the next lives of those whose process has ended, all at once."""

    def crash(self, worker: Worker) -> None:
        """End a process without a word."""

    def keep(self, worker: Worker) -> None:
        """Let a worker write a checkpoint."""

    def look(self) -> None:
        """See whether everything is over."""
