"""All workers of a simulation under virtual time: what happens when, without a single value.

Every worker runs the protocol that a live peer runs. A heap holds what is due, by time, then
priority, then order of arrival. What the protocols ask of values becomes a `Program`; what they
ask of the network becomes deliveries.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Any

from ..gossip import Envelope, PeerId, Protocol, ProtocolConfig, RemoteProtocolError
from ..gossip.codec import encoded_bytes
from ..gossip.crew import Crew
from ..gossip.effects import (
    Attach,
    Combine,
    Drop,
    Effect,
    Halt,
    Inspect,
    Mix,
    PushSkipped,
    Reclaim,
    Record,
    Release,
    Send,
    ShareMixed,
    Snapshot,
    Stage,
    Wait,
)
from ..gossip.ledger import Kind
from ..gossip.streams import stream
from ..gossip.wire import parse_wire
from .plan import FleetPlan, Traffic
from .program import Cut, Program, Slot
from .worker import Worker

__all__ = ["Fleet"]

# A message that comes at the very instant of a turn is there for it; nobody waits on an alarm.
_DELIVER, _ALARM, _TURN = 0, 1, 2

# All members are known and nobody falls silent: there is nothing to gossip about.
_FOREVER_S = float("inf")

# Ten times the longest wait between two questions about a share.
_STUCK_S = 300.0


class Fleet:
    """Workers, the links between them, and what is due when.

    Args:
        plan: What they are made of.
        stops: Workers whose values stop being finite, and at which step, counted from 0: what
            an earlier run over the same plan has found.
    """

    def __init__(self, plan: FleetPlan, stops: dict[int, int] | None = None) -> None:
        self.now = 0.0
        self.program = Program(len(plan.ids))
        self.traffic = Traffic()
        self._is_anchored = parse_wire(plan.protocol.wire).needs_anchor
        self.crew = Crew(plan.ids, anchored=self._is_anchored)
        self.halts: dict[PeerId, str] = {}
        """Workers whose rule could not go on, and why."""
        self._plan = plan
        self._stops = stops or {}
        self._links = plan.links()
        self._index = {id: index for index, id in enumerate(plan.ids)}
        self._queue: list[tuple[float, int, int, Worker, Envelope | None, Slot | None]] = []
        self._arrivals = 0
        self._payload: Slot | None = None
        self._waits = False
        self._halted: str | None = None
        self._carriers = self._by_type()
        config = replace(plan.protocol, gossip_s=_FOREVER_S, dead_s=_FOREVER_S)
        # No new deadline is nearer than this, so that most need not be asked for; but for frames
        # that wait for their turn under a limit.
        is_limited = config.bandwidth_bytes_s is not None
        self._soonest_s = 0.0 if is_limited else min(config.query_s_min, config.stall_s)
        self.workers = [
            Worker(index, id, self._protocol(id, config)) for index, id in enumerate(plan.ids)
        ]
        for worker in self.workers:
            self._carry_out(worker, worker.protocol.join(0.0, founders=len(self.workers)))
        for worker in self.workers:
            self._later(plan.pace.step_s(worker.index, 0), _TURN, worker)

    @property
    def over(self) -> bool:
        """Whether every worker has taken all its steps."""
        return self.crew.over

    def run(self, until_s: float, steps_max: int) -> bool:
        """Let happen what happens until then.

        Args:
            until_s: Virtual seconds; what happens at that very time happens.
            steps_max: Optimizer steps after which it stops earlier.

        Returns:
            Whether that time has come, or everything is over.
        """
        queue, last = self._queue, self.program.steps + steps_max
        while not self.crew.over:
            if not queue or queue[0][0] > until_s:
                break
            if self.program.steps >= last:
                return False
            self.now, priority, _, worker, envelope, payload = heappop(queue)
            self.traffic.events += 1
            if priority == _DELIVER:
                assert envelope is not None
                self._deliver(worker, envelope, payload)
            elif priority == _TURN:
                self._turn(worker)
            else:
                self._wake(worker)
        if not self.crew.over:
            self.now = until_s
        return True

    def _protocol(self, id: PeerId, config: ProtocolConfig) -> Protocol:
        plan = self._plan
        return Protocol(
            id=id,
            incarnation=1,
            schema=plan.schema,
            anchor=plan.anchor,
            rule=plan.rule(),
            neighbors=plan.neighbors,
            rng=partial(stream, plan.seed, id),
            config=config,
            crew=self.crew,
            keeps_anchor=self._is_anchored,
        )

    def _later(
        self,
        time_s: float,
        priority: int,
        worker: Worker,
        envelope: Envelope | None = None,
        payload: Slot | None = None,
    ) -> None:
        # Ties break by order of arrival. Workers cannot be compared.
        self._arrivals += 1
        heappush(self._queue, (time_s, priority, self._arrivals, worker, envelope, payload))

    def _turn(self, worker: Worker) -> None:
        """A worker comes to the end of a step; one that has finished only takes its turn."""
        if not worker.finished:
            if self._stops.get(worker.index) == worker.steps:
                self._stop(worker)
                return
            self.program.step(worker.index, worker.steps)
            worker.steps += 1
        self._step(worker, trained=not worker.finished)

    def _step(self, worker: Worker, *, trained: bool) -> None:
        self._waits = False
        self._carry_out(worker, worker.protocol.step(self.now, trained=trained))
        if self._halted is not None:
            self._halt(worker)
        elif self._waits:
            if worker.waiting_since_s is None:
                worker.waiting_since_s = self.now
        else:
            if worker.waiting_since_s is not None:
                worker.idle_s = worker.idle_until(self.now)
                worker.waiting_since_s = None
            self._go_on(worker)
        self._set_alarm(worker)

    def _go_on(self, worker: Worker) -> None:
        """Begin the next step, or finish; one that has finished keeps its pace of turns."""
        if not worker.finished and worker.steps == self._plan.steps:
            worker.finished = True
            self._carry_out(worker, worker.protocol.finish(self.now))
        pace = self._plan.pace
        # One that has finished takes no step whose duration could be drawn.
        finished, index = worker.finished, worker.index
        step_s = pace.mean_s(index) if finished else pace.step_s(index, worker.steps)
        self._later(self.now + step_s, _TURN, worker)

    def _halt(self, worker: Worker) -> None:
        """A rule cannot go on: its worker leaves, as a live peer does."""
        self.halts[worker.id], self._halted = self._halted or "", None
        worker.finished = True
        self._carry_out(worker, worker.protocol.leave(self.now))

    def _stop(self, worker: Worker) -> None:
        """A worker finds that its values are not finite: its weight is burned, as live."""
        worker.finished = True
        self._carry_out(worker, worker.protocol.leave(self.now, burn=True))

    def _deliver(self, worker: Worker, envelope: Envelope, payload: Slot | None) -> None:
        self._payload = payload
        try:
            self._carry_out(worker, worker.protocol.receive(envelope, self.now))
        except RemoteProtocolError:
            self.traffic.errors += 1
        self._payload = None
        if payload is not None:
            self.program.let_go(payload)
        if worker.waiting_since_s is not None:
            self._step(worker, trained=False)

    def _wake(self, worker: Worker) -> None:
        if worker.alarm_s != self.now:
            return  # an earlier one was set since
        worker.alarm_s = _FOREVER_S
        if worker.protocol.deadline() <= self.now:
            self._carry_out(worker, worker.protocol.wake(self.now))
            if worker.waiting_since_s is not None:
                # A share that time has brought back must be pushed again.
                self._step(worker, trained=False)
        self._set_alarm(worker)
        since_s = worker.waiting_since_s
        if since_s is not None and self.now - since_s > _STUCK_S:
            self._give_up_if_stuck()

    def _give_up_if_stuck(self) -> None:
        """End a run in which all wait for one another and nobody has stepped for long."""
        waiting = [worker for worker in self.workers if worker.waiting_since_s is not None]
        unfinished = sum(not worker.finished for worker in self.workers)
        if not waiting or len(waiting) < unfinished:
            return
        since_s = max(worker.waiting_since_s or 0.0 for worker in waiting)
        if self.now - since_s > _STUCK_S:
            for worker in waiting:
                self.halts[worker.id] = (
                    f"all {len(waiting)} workers have waited for one another for {_STUCK_S:.0f} "
                    f"virtual seconds, since {since_s:.6g} s: a synchronous rule cannot go on "
                    "where a link carries nothing"
                )
                worker.finished = True
                worker.waiting_since_s = None
                self._carry_out(worker, worker.protocol.leave(self.now))

    def _set_alarm(self, worker: Worker) -> None:
        """See that a worker is woken in time; a deadline that has moved on is seen then."""
        if worker.alarm_s <= self.now + self._soonest_s:
            return
        due_s = worker.protocol.deadline()
        if due_s < worker.alarm_s:
            worker.alarm_s = due_s
            self._later(due_s, _ALARM, worker)

    def _carry_out(self, worker: Worker, effects: list[Effect]) -> None:
        carriers = self._carriers
        for effect in effects:
            carry_out = carriers.get(type(effect))
            if carry_out is not None:
                carry_out(worker, effect)

    def _by_type(self) -> dict[type, Callable[[Worker, Any], None]]:
        """What each effect leads to; the others are for people to read."""
        return {
            Record: self._count,
            Send: self._send,
            Snapshot: self._snapshot,
            Release: self._release,
            Reclaim: self._reclaim,
            Stage: self._stage,
            Attach: self._attach,
            Inspect: self._inspect,
            Mix: self._mix,
            Combine: self._combine,
            Drop: self._drop,
            ShareMixed: self._note_mixed,
            PushSkipped: self._note_skipped,
            Wait: self._wait,
            Halt: self._note_halt,
        }

    def _count(self, worker: Worker, effect: Record) -> None:
        entry = effect.entry
        if entry.kind is Kind.PUSHED:
            worker.pushes += 1
            self.traffic.pushes += 1
        elif entry.kind is Kind.SETTLED and entry.units == 0:
            self.traffic.refusals += 1

    def _send(self, worker: Worker, effect: Send) -> None:
        envelope, payload = effect.envelope, None
        size_bytes = encoded_bytes(envelope)
        self.traffic.messages += 1
        self.traffic.bytes_sent += size_bytes
        if effect.snapshot is not None and envelope.frame_bytes:
            payload = worker.snapshots[effect.snapshot]
        to = self._index[envelope.destination]
        for time_s in self._links.deliveries(self.now, worker.index, to, size_bytes):
            if payload is not None:
                payload.readers += 1
            self._later(time_s, _DELIVER, self.workers[to], envelope, payload)

    def _snapshot(self, worker: Worker, effect: Snapshot) -> None:
        cut = Cut(effect.register, effect.form, effect.shard)
        slot = self.program.snapshot(worker.index, cut, effect.id)
        worker.snapshots[effect.id] = slot

    def _release(self, worker: Worker, effect: Release) -> None:
        self.program.let_go(worker.snapshots.pop(effect.snapshot))

    def _reclaim(self, worker: Worker, effect: Reclaim) -> None:
        self.program.mix(worker.index, worker.snapshots[effect.snapshot], effect.fraction)

    def _stage(self, worker: Worker, effect: Stage) -> None:
        if effect.share not in worker.shares:
            assert self._payload is not None
            self._payload.readers += 1
            worker.shares[effect.share] = self._payload

    def _attach(self, worker: Worker, effect: Attach) -> None:
        # Each worker is a host of its own: no memory is shared.
        effects = worker.protocol.attached(effect.share, self.now, usable=False)
        self._carry_out(worker, effects)

    def _inspect(self, worker: Worker, effect: Inspect) -> None:
        # Whether values are finite is looked at afterwards, in bulk: one that is not becomes a
        # stop of its worker, and the run starts over with it.
        effects = worker.protocol.inspected(effect.share, self.now, finite=True)
        if effects:
            self._carry_out(worker, effects)

    def _mix(self, worker: Worker, effect: Mix) -> None:
        slot = worker.shares.pop(effect.share)
        self.program.mix(worker.index, slot, effect.fraction)
        self.program.let_go(slot)

    def _combine(self, worker: Worker, effect: Combine) -> None:
        terms = tuple(
            (coefficient, term if isinstance(term, str) else worker.shares[term])
            for coefficient, term in effect.terms
        )
        self.program.combine(worker.index, effect.register, terms)

    def _drop(self, worker: Worker, effect: Drop) -> None:
        slot = worker.shares.pop(effect.share, None)
        if slot is not None:
            self.program.let_go(slot)

    def _note_mixed(self, worker: Worker, effect: ShareMixed) -> None:
        worker.mixed += 1
        self.traffic.mixed += 1
        self.traffic.staleness_steps += effect.staleness_steps

    def _note_skipped(self, worker: Worker, effect: PushSkipped) -> None:
        self.traffic.skipped += 1

    def _wait(self, worker: Worker, effect: Wait) -> None:
        self._waits = True

    def _note_halt(self, worker: Worker, effect: Halt) -> None:
        self._halted = effect.reason
