"""All workers of a simulation under virtual time: what happens when, without a single value.

Every worker runs the protocol that a live peer runs. A heap holds what is due, by time, then
priority, then order of arrival. What the protocols ask of values becomes a `Program`; what they ask
of the network becomes deliveries. Without faults, all workers share one view of the members; with
planned faults, each has its own, and `Processes` starts and ends them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import filterfalse

from ...gossip import Audit, audit
from ...gossip.effects.effects import Greet
from ...gossip.errors import RemoteProtocolError
from ...gossip.membership.static import StaticMembership
from ...gossip.types import PeerId
from ...gossip.wire.formats import parse_wire
from ...gossip.wire.messages import Envelope
from .clock import ALARM, FAULT, TURN, Clock
from .deliveries import Mailbox
from .execution import EffectExecutor
from .faults.attacks import Attacks
from .faults.report import Times
from .plan import FleetPlan, Traffic
from .processes import Processes
from .program import Program
from .worker import Handler, Harness, Incarnations, Observer, Payload, Values, Worker

__all__ = ["Fleet"]

_ROUNDS_TO_SETTLE = 2

# Part of a step's time: the backward pass computes gradients of inputs and of parameters, the
# forward pass only one product.
_BACKWARD = 2 / 3


class Fleet:
    """Workers, the links between them, and what is due when.

    Args:
        harness: Computes values at once, in place of the program; for fleets with faults.
        observer: Observes a fleet with faults whose values are in the program.
        compute: Executes all that is scheduled right after a worker's step, and returns True if its
            values are finite; None if values are computed later.
    """

    def __init__(
        self,
        plan: FleetPlan,
        harness: Harness | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        compute: Callable[[Worker], bool] | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.program = Program(len(plan.ids))
        self.values: Values = self.program if harness is None else harness
        self.harness = harness
        self.observer = observer if harness is None else harness
        self._compute = compute
        self.traffic = Traffic()
        self._ended_s = 0.0
        self.halts: dict[PeerId, str] = {}
        """Reason of each worker whose rule could not continue."""
        self._plan = plan
        self.index = {id: index for index, id in enumerate(plan.ids)}
        """Rows of workers, by name."""
        self._steps_most = math.inf
        self._times: Times | None = None
        # No new deadline is nearer than this, so most need not be looked up.
        exchange = min(plan.protocol.query_s_min, plan.protocol.stall_s)
        self._soonest_s = 0.0 if plan.fault_plan else exchange
        self.faults: Processes | None = None
        """Faults of the fleet's processes, if any are planned."""
        self.attacks = Attacks(self, plan, self.program) if plan.attacks else None
        """Byzantine workers, if any are planned."""
        self._ends: StaticMembership | Processes
        handlers: Mapping[type, Handler] = {}
        if plan.fault_plan is None:
            anchored = parse_wire(plan.protocol.wire).needs_anchor
            known = StaticMembership(plan.ids, anchored=anchored, machines=plan.machines)
            # All members are known and none fails, so there is nothing to gossip about.
            config = replace(plan.protocol, gossip_s=math.inf, dead_s=math.inf)
            self.incarnations = Incarnations(replace(plan, protocol=config), known, None)
            self.mail, self._ends = Mailbox(self, plan.links(), None), known
        else:
            self.incarnations = Incarnations(plan, None, harness)
            self.faults = self._ends = Processes(self, plan, self.incarnations)
            self.mail = Mailbox(self, plan.links(), self.faults.network_faults)
            handlers = {Greet: self.mail.greet, **self.faults.handlers()}
        self.executor = EffectExecutor(
            self,
            plan.measure,
            self.mail.send if self.attacks is None else self.attacks.through(self.mail.send),
            handlers if harness is None else {**handlers, **harness.handlers},
        )
        self.workers = [self.incarnations.first(*named) for named in enumerate(plan.ids)]
        if self.faults is None:
            for worker in self.workers:
                effects = worker.protocol.join(0.0, founders=len(self.workers))
                self.executor.apply(worker, effects, 0.0, "join")
            for worker in self.workers:
                self.begin_step(worker)
        else:
            self.faults.begin()
        if self.attacks is not None:
            self.attacks.begin()

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self.clock.now

    @property
    def over(self) -> bool:
        """True if every worker has taken all its steps."""
        return self._ends.over

    def run(self, until_s: float, steps_max: int) -> bool:
        """Run until a virtual time, seconds, or until *steps_max* optimizer steps."""
        self._steps_most = float(self.values.steps + steps_max)
        stopped = not self.over and self.clock.run(until_s)
        self.traffic.events = self.clock.events
        if stopped and not self.over:
            if self.clock.is_due(until_s):
                return False
            self.clock.now = until_s
        return True

    def settle(self, until_s: float) -> None:
        """Run until no worker waits for others, as right after a round, or until *until_s*."""
        # Workers that are out of step may never reach that.
        self._steps_most = float(self.values.steps + _ROUNDS_TO_SETTLE * len(self.workers))
        held_up = self.workers[0]

        def nobody_waits() -> bool:
            nonlocal held_up
            if not held_up.waits:
                held_up = next((worker for worker in self.workers if worker.waits), held_up)
            return not held_up.waits

        if not self.over:
            self.clock.run(until_s, nobody_waits)
            self.traffic.events = self.clock.events

    def times(self) -> Times:
        if self._times is not None:
            return self._times
        now, workers = self.clock.now, self.workers
        lived_s = now * len(workers) if self.faults is None else self.faults.lived_s()
        return Times(
            until_s=now,
            lived_s=lived_s,
            unused_s=sum(worker.idle_until(now) + worker.away_until(now) for worker in workers),
            computed_s=sum(worker.computed_until(now) for worker in workers),
            waited_s_most=max(worker.waited_until(now) for worker in workers),
        )

    def audit(self) -> Audit:
        """Account for all weight, by the ledgers of all incarnations."""
        running = [a for w in self.workers if w.running for a in w.protocol.accounts]
        return audit([*self.incarnations.ended, *running], self.incarnations.dead)

    def present(self) -> Iterator[int]:
        """Iterate over honest workers in the swarm, or searching for it while it is empty."""
        there = range(len(self.workers)) if self.faults is None else self.faults.present()
        if self.attacks is None:
            return iter(there)
        return filterfalse(self.attacks.liars.__contains__, there)

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Run an action at a time, before everything else that is due then."""
        self.clock.at(time_s, FAULT, action)

    def _turn(self, worker: Worker) -> None:
        """End a worker's step; a worker that has finished only takes its turn."""
        if not worker.awake or worker.turn_s != self.clock.now:
            return  # it ended, is paused, or was paused since
        if worker.is_within_step:
            worker.is_within_step = False
        elif not worker.finished and not self._take_step(worker):
            return
        self.step(worker, trained=not worker.finished)
        if self.clock.now >= worker.checkpoint_s and self.faults is not None:
            self.faults.keep(worker)

    def _take_step(self, worker: Worker) -> bool:
        """Schedule an optimizer step; return True if its worker continues."""
        if worker.spoilt:
            # Its weight is burned, as in a live peer.
            self.leave(worker, burn=True)
            return False
        rate = None
        if self._plan.lr_factor is not None:
            known = worker.protocol.state.swarm_steps
            rate = worker.lr_factor = self._plan.lr_factor(worker.steps, known, self.clock.now)
        self.values.step(worker.index, worker.steps, rate)
        if self._compute is not None and not self._compute(worker):
            self.leave(worker, burn=True)
        if worker.finished:
            return False  # computed at once, and not finite
        worker.steps += 1
        worker.computed_s += worker.step_s
        if self.values.steps >= self._steps_most:
            self.clock.stop()
        return True

    def _train_shard(self, worker: Worker, shard: int, turn_s: float) -> None:
        """Finish a shard in a worker's backward pass; the last shards come first."""
        if not worker.awake or worker.turn_s != turn_s or worker.finished:
            return
        if not worker.is_within_step:
            # A step computes on the values it began with, and nothing is mixed before it ends, so
            # all of it can be computed at once.
            if not self._take_step(worker):
                return
            worker.is_within_step = True
        now = self.clock.now + worker.ahead_s
        effects = worker.protocol.trained_shard(shard, now)
        if effects:
            self.executor.apply(worker, effects, now, "trained shard")

    def step(self, worker: Worker, *, trained: bool) -> None:
        """Let a worker's protocol take a turn."""
        now = self.clock.now + worker.ahead_s
        self.executor.waits = False
        samples = self._plan.samples[worker.index] if trained and self._plan.samples else None
        lr = None
        if trained and self._plan.lr is not None:
            lr = worker.lr_factor * self._plan.lr(worker.steps - 1)
        effects = worker.protocol.step(now, trained=trained, samples=samples, lr=lr)
        self.executor.apply(worker, effects, now, "step")
        if not worker.running:
            return  # it crashed during its turn
        if self.executor.halted is not None:
            # As a live peer whose rule cannot continue.
            self.halts[worker.id], self.executor.halted = self.executor.halted, None
            self.leave(worker)
        elif self.executor.waits:
            if worker.waiting_since_s is None:
                worker.waiting_since_s = self.clock.now
        elif not worker.searching:
            if worker.waiting_since_s is not None:
                worker.waited_s_most = worker.waited_until(self.clock.now)
                worker.idle_s = worker.idle_until(self.clock.now)
                worker.waiting_since_s = None
            plan = self._plan
            if not worker.finished and (
                (worker.finishing and worker.steps >= worker.last_step)
                or (plan.steps is not None and worker.steps >= plan.steps)
                or (plan.steps_total is not None and self._are_all_taken(worker))
            ):
                self.finish(worker)
            # A worker that has finished keeps its pace of turns.
            if not (worker.finished and self.faults is not None and self.faults.closes(worker)):
                self.begin_step(worker)
        if worker.alarm_s > self.clock.now + self._soonest_s:
            self.set_alarm(worker)

    def _are_all_taken(self, worker: Worker) -> bool:
        total = self._plan.steps_total
        return total is not None and worker.protocol.state.swarm_steps >= total

    def begin_step(self, worker: Worker) -> None:
        pace = self._plan.pace
        if worker.finished and self._plan.turn_s is not None:
            self.turn_at(worker, self.clock.now + self._plan.turn_s(worker.index))
            return
        # A worker that has finished takes no step, so no duration is drawn.
        finished, index = worker.finished, worker.index
        step_s = pace.mean_s(index) if finished else pace.step_s(index, worker.steps)
        if self._plan.exchange_s:
            exchanges = worker.pushes + worker.mixed
            step_s += self._plan.exchange_s * (exchanges - worker.exchanges)
            worker.exchanges = exchanges
        worker.step_s = worker.slowness * step_s
        worker.turn_s = self.clock.now + worker.step_s
        if self._plan.overlaps and not finished:
            begun_s, n_shards = self.clock.now, self._plan.schema.shards
            for nth in range(n_shards):
                part = 1 - _BACKWARD * (1 - (nth + 1) / n_shards)
                time_s = begun_s + part * (worker.turn_s - begun_s)
                given = worker, n_shards - 1 - nth, worker.turn_s
                self.clock.at(time_s, TURN, self._train_shard, *given)
        self.clock.at(worker.turn_s, TURN, self._turn, worker)

    def turn_at(self, worker: Worker, time_s: float) -> None:
        worker.turn_s = time_s
        self.clock.at(time_s, TURN, self._turn, worker)

    def finish(self, worker: Worker) -> None:
        """Let a worker take no more steps, but keep mixing."""
        self._end_training(worker)
        now = self.clock.now + worker.ahead_s
        self.executor.apply(worker, worker.protocol.finish(now), now, "finish")
        self._stop_if_over()

    def leave(self, worker: Worker, *, burn: bool = False) -> None:
        """Let a worker take no more steps, and leave."""
        self._end_training(worker)
        now = self.clock.now + worker.ahead_s
        self.executor.apply(worker, worker.protocol.leave(now, burn=burn), now, "leave")
        self._stop_if_over()
        if self.faults is not None:
            self.faults.leaving(worker)

    def _stop_if_over(self) -> None:
        if self._ends.over:
            self.clock.stop()

    def _end_training(self, worker: Worker) -> None:
        worker.finished, self._ended_s = True, self.clock.now
        if self.faults is not None:
            if self._are_all_taken(worker):
                # The delay of the last share, and the last wait, say nothing about a longer run.
                self._times = self.times()
            self.faults.finished(worker)

    def deliver(self, worker: Worker, envelope: Envelope, payload: Payload) -> None:
        """Deliver a message to the worker's current incarnation."""
        if not worker.awake:
            worker = self.workers[worker.index]
        if worker.awake:
            self.take_in(worker, envelope, payload)
        elif worker.running:
            worker.held.append((envelope, payload))
        elif payload is not None:
            self.values.let_go(payload)

    def take_in(self, worker: Worker, envelope: Envelope, payload: Payload) -> None:
        """Pass a message to a worker's protocol."""
        now = self.clock.now + worker.ahead_s
        try:
            effects = worker.protocol.receive(envelope, now)
            self.executor.apply(worker, effects, now, envelope, payload)
        except RemoteProtocolError:
            self.traffic.errors += 1
            if self.harness is not None:
                self.harness.refused(worker)
        if payload is not None:
            self.values.let_go(payload)
        if worker.waiting_since_s is not None:
            self.step(worker, trained=False)
        elif self.faults is not None:
            self.faults.followed(worker)

    def _wake(self, worker: Worker) -> None:
        if not worker.awake or worker.alarm_s != self.clock.now:
            return  # it ended, or an earlier alarm was set since
        worker.alarm_s = math.inf
        now = self.clock.now + worker.ahead_s
        if worker.protocol.deadline() <= now:
            self.executor.apply(worker, worker.protocol.wake(now), now, "wake")
            if worker.waiting_since_s is not None:
                # A share that was reclaimed after a timeout must be pushed again.
                self.step(worker, trained=False)
            elif worker.searching and self.faults is not None:
                self.faults.search(worker)
        self.set_alarm(worker)
        since_s = worker.waiting_since_s
        if since_s is not None and self.clock.now - since_s > self._plan.stuck_s:
            self._give_up_if_stuck()

    def _give_up_if_stuck(self) -> None:
        """End a run in which all workers wait for each other and none has stepped for long."""
        waiting = [w for w in self.workers if w.running and w.waiting_since_s is not None]
        unfinished = sum(w.running and not w.finished for w in self.workers)
        if not waiting or len(waiting) < unfinished:
            return
        # A worker that has just finished may be about to send what they wait for.
        since_s = max(self._ended_s, *[worker.waiting_since_s or 0.0 for worker in waiting])
        if self.clock.now - since_s > self._plan.stuck_s:
            for worker in waiting:
                self.halts[worker.id] = (
                    f"all {len(waiting)} workers have waited for one another for "
                    f"{self._plan.stuck_s:.0f} virtual seconds, since {since_s:.6g} s: a "
                    "synchronous rule cannot continue if a link carries nothing"
                )
                worker.waiting_since_s = None
                self.leave(worker)

    def set_alarm(self, worker: Worker) -> None:
        """Schedule a worker's wake-up; a deadline that has since moved is noticed then."""
        if worker.alarm_s <= self.clock.now + self._soonest_s:
            return
        due_s = deadline_s = worker.protocol.deadline()
        if worker.ahead_s:
            due_s -= worker.ahead_s
            while due_s + worker.ahead_s < deadline_s:
                # Woken a rounding error too early, it would find nothing to do, forever.
                due_s = math.nextafter(due_s, math.inf)
        # Overdue work, as after a jump of a clock, is done now.
        due_s = max(due_s, self.clock.now)
        if due_s < worker.alarm_s:
            worker.alarm_s = due_s
            self.clock.at(due_s, ALARM, self._wake, worker)
