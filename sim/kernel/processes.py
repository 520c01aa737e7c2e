"""Life cycle of a fleet's processes: how they start, find their swarm, and end.

`STRIKES` says what each kind of planned fault does to processes; `NetworkFaults` applies the rest
to messages.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ...gossip.effects.events import Founded, Joined, PeerDied, PeerLeft, PeerMet, PeerRecovered
from ...gossip.types import PeerId
from ...gossip.wire.messages import Phase
from ...topology.hashing import key, uniform
from ...train.faults.network import NetworkFaults
from ...train.faults.schedule import KINDS, Fault, Slowness
from ..models.links import address_of
from .faults.report import FaultReport
from .plan import Checkpoint, FleetPlan
from .worker import CrashPoint, Handler, Incarnations, Worker

if TYPE_CHECKING:
    from .fleet import Fleet

__all__ = ["LEAVE_S", "STRIKES", "Processes"]

# Addresses that a process is given at its start, and that it keeps in a checkpoint; some may not
# answer.
_SEEDS_MAX: Final = 3
_SEEDS_KEPT_MAX: Final = 16

# As for live peers.
_LEAVING_S: Final = 0.05
LEAVE_S: Final = 10.0
"""How long a leaving worker waits for a peer to take its weight, seconds."""


class Processes:
    """Starts, pauses, crashes and restarts workers."""

    def __init__(self, fleet: "Fleet", plan: FleetPlan, incarnations: Incarnations) -> None:
        assert plan.fault_plan is not None
        self.over = False
        """True if every running worker has taken all its steps and no worker is still to come."""
        calm_s = plan.fault_plan.calm_s
        self.network_faults = NetworkFaults(plan.fault_plan.faults, plan.ids, plan.seed, calm_s)
        self.fault_report = FaultReport()
        self.slowness = Slowness()
        self.fleet = fleet
        self._plan = plan
        self.plan = plan.fault_plan
        self._incarnations = incarnations
        self.kept_ids = _kept_ids(plan)
        """Workers whose later incarnations look for a checkpoint."""
        self.next_newcomer = plan.fault_plan.founders + len(plan.fault_plan.latecomers_s)
        """Row of the next newcomer."""
        self._coming = 0  # faults ahead that start or resume a process
        self._absent = set(range(plan.fault_plan.founders, len(plan.ids)))  # newcomers to come
        self._open: set[int] = set()  # workers that run and take further steps

    def handlers(self) -> Mapping[type, Handler]:
        """Return handlers of the effects that a fleet without faults does not need."""
        return {
            **dict.fromkeys(
                (Founded, Joined), lambda w, *_: self.fault_report.admitted(w.index, self.fleet.now)
            ),
            PeerDied: lambda w, e, _: self._note(self.fault_report.died, w, e.peer),
            **dict.fromkeys(
                (PeerMet, PeerRecovered, PeerLeft),
                lambda w, e, _: self._note(self.fault_report.heard, w, e.peer),
            ),
        }

    def begin(self) -> None:
        fleet, founders = self.fleet, self.plan.founders
        for fault in self.plan.faults:
            strike = STRIKES.get(fault.kind)
            if strike is not None:
                wait = self.expect if KINDS[fault.kind].starts else fleet.at
                wait(fault.at_s, partial(strike, self, fault))
        for index in self._absent:
            fleet.workers[index].running = fleet.workers[index].awake = False
        for index, time_s in enumerate(self.plan.latecomers_s, founders):
            fleet.at(time_s, partial(self._come, index))
        for healed_s in self.network_faults.healed_s():
            fleet.at(healed_s, lambda: self.fault_report.ended(fleet.now))
        for worker in fleet.workers[:founders]:
            self._enter(worker)
        first = 0
        for size in self.plan.rolls or (founders,):
            roll = fleet.workers[first : first + size]
            first += size
            for worker in roll:
                share = uniform(key(self._plan.seed, "start", worker.id), 0)
                worker.awake = False
                begin = partial(self._found, worker, self._seeds(worker, roll), size)
                within_s = self.plan.begins_within_s
                if within_s is None:
                    within_s = self._plan.protocol.gossip_s
                fleet.at(share * within_s, begin)

    def start(
        self, workers: Sequence[Worker], *, kept: bool = False, seeds: Sequence[str] | None = None
    ) -> None:
        """Start newcomers, or restart ended workers; *kept* lets them find their checkpoints."""
        # All exist before the first of them looks for others.
        begun = [self._begin(worker, kept=kept) for worker in workers]
        for worker in begun:
            found = worker.kept if kept else None
            told = self._seeds(worker) if seeds is None else seeds
            if found is not None:
                ranked = self._ranked(worker, found.peers)[:_SEEDS_KEPT_MAX]
                told = [address_of(peer) for peer in ranked] or told
            self._join(worker, told, founders=1, returning=found is not None)

    def _come(self, index: int) -> None:
        if index in self._absent:
            self.start([self.fleet.workers[index]])

    def _begin(self, worker: Worker, *, kept: bool) -> Worker:
        fleet, index = self.fleet, worker.index
        again = index not in self._absent
        if again:
            found = worker.kept if kept else None
            worker = fleet.workers[index] = self._incarnations.next(worker, found)
            fleet.values.start(index, kept=found is not None)
        self._absent.discard(index)
        self._enter(worker)
        self.fault_report.came(index, fleet.now, again=again)
        return worker

    def crash(self, worker: Worker) -> None:
        """End a process without notice."""
        running = [w.index for w in self.fleet.workers if w.running and w is not worker]
        ledger = None if worker.crash_point is None else worker.crash_point.ledger
        self.fault_report.crashed(worker.index, self.fleet.now, running)
        self._end(worker, died=True)
        self._incarnations.end(worker, self.fleet.now, died=True, ledger=ledger)

    def keep(self, worker: Worker) -> None:
        if worker.running and not worker.searching:
            peers = tuple([member.id for member in worker.protocol.known()])
            clock = tuple(worker.protocol.table.clock.rows().items())
            worker.kept = Checkpoint(worker.steps, peers, clock)
            worker.checkpoint_s = self.fleet.now + self.plan.checkpoint_every_s
            self.fleet.values.keep(worker.index)

    def finished(self, worker: Worker) -> None:
        if self.plan.ends or not worker.running:
            self._open.discard(worker.index)
        self.look()

    def look(self) -> None:
        """Check whether everything is over, or cannot end by itself."""
        coming = self._coming
        # Finished workers do not wait for a worker that may restart: they would have closed.
        closes = not coming or any(w.running and w.finished for w in self.fleet.workers)
        self.over = not self._open and closes
        if self.over:
            self.fleet.clock.stop()
        if self._open and not coming and self._is_stuck():
            give_up = partial(self._give_up, set(self._open))
            self.fleet.at(self.fleet.now + self._plan.stuck_s, give_up)

    def leaving(self, worker: Worker) -> None:
        """End a leaving process once it has left, or has taken too long."""
        if worker.running:
            self._await_end(worker, self.fleet.now + LEAVE_S)

    def closes(self, worker: Worker) -> bool:
        """Return True if a finished worker stops taking turns, since no peer needs it."""
        if self.plan.ends or not worker.protocol.done:
            return False
        self.fleet.at(self.fleet.now + self.plan.linger_s, partial(self._close_if_done, worker))
        return True

    def _close_if_done(self, worker: Worker) -> None:
        if worker.running and worker.protocol.done:
            self._close(worker, died=False)
        elif worker.running:
            # A peer has returned to which something is outstanding.
            self.fleet.begin_step(worker)

    def calm(self) -> None:
        """Undo every fault of processes that lasts."""
        self.slowness = Slowness()
        for worker in self.fleet.workers:
            worker.slowness, worker.crash_point = 1.0, None
            worker.pauses.clear()
            self.go_on(worker)

    def find(self, peer: str | int | None) -> Worker:
        assert isinstance(peer, str)
        return self.fleet.workers[self.fleet.index[peer]]

    def has_come(self, worker: Worker) -> bool:
        return worker.index not in self._absent

    def expect(self, time_s: float, action: Callable[[], object]) -> None:
        """Schedule an action that starts or resumes processes; until then the run is not over."""
        self._coming += 1

        def do() -> None:
            self._coming -= 1
            action()
            self.look()

        self.fleet.at(time_s, do)

    def go_on(self, worker: Worker) -> None:
        """Resume a paused worker if no pause holds it."""
        fleet, paused_s = self.fleet, worker.paused_s
        if not worker.running or paused_s is None or worker.pauses:
            return
        worker.away_s = worker.away_until(fleet.now)
        worker.awake, worker.paused_s = True, None
        held, worker.held = worker.held, []
        for envelope, payload in held:
            if worker.running:
                fleet.take_in(worker, envelope, payload)
            elif payload is not None:
                fleet.values.let_go(payload)
        trains = worker.waiting_since_s is None and not worker.searching
        if worker.running and trains and worker.turn_s >= paused_s:
            # The rest of its step is still to be done.
            fleet.turn_at(worker, worker.turn_s + fleet.now - paused_s)
        worker.alarm_s = math.inf
        fleet.set_alarm(worker)
        deferred, worker.deferred = worker.deferred, []
        for action in deferred:
            action()

    def present(self) -> Iterator[int]:
        """Iterate over workers in the swarm; while it is empty, over those that look for it."""
        running = [worker for worker in self.fleet.workers if worker.running]
        members = [w for w in running if Phase.TRAINING <= w.protocol.phase <= Phase.QUIET]
        return iter([worker.index for worker in members or running])

    def search(self, worker: Worker) -> None:
        """Let a worker that looks for a swarm handle its messages, and train once it has joined."""
        fleet = self.fleet
        if worker.protocol.phase is Phase.JOINING:
            fleet.step(worker, trained=False)
        if worker.searching and worker.protocol.phase >= Phase.TRAINING:
            worker.away_s = worker.away_until(fleet.now)
            worker.searching = False
            if not worker.finished:
                if worker.finishing and worker.steps >= worker.last_step:
                    fleet.finish(worker)
                fleet.begin_step(worker)
            if worker.id in self.kept_ids:
                worker.checkpoint_s = fleet.now + self.plan.checkpoint_every_s

    def followed(self, worker: Worker) -> None:
        if worker.searching and worker.running:
            self.search(worker)
            self.fleet.set_alarm(worker)

    def lived_s(self) -> float:
        """Return how long all processes together have run, seconds."""
        running = [self.fleet.now - w.started_s for w in self.fleet.workers if w.running]
        return self._incarnations.ended_s + sum(running)

    def report(self) -> FaultReport:
        found, lived_s = self.fault_report, self.lived_s()
        if lived_s:
            found.membership_bytes_s = self.fleet.traffic.membership_bytes / lived_s
        return found

    def _enter(self, worker: Worker) -> None:
        worker.running = worker.awake = worker.searching = True
        worker.started_s = self.fleet.now
        if self.fleet.observer is not None:
            self.fleet.observer.started(worker)
        self._open.add(worker.index)

    def _found(self, worker: Worker, seeds: Sequence[str], founders: int) -> None:
        if not worker.running:
            return
        worker.awake = True
        self._join(worker, seeds, founders=founders)
        held, worker.held = worker.held, []
        for envelope, payload in held:
            self.fleet.take_in(worker, envelope, payload)

    def _join(
        self, worker: Worker, seeds: Sequence[str], *, founders: int, returning: bool = False
    ) -> None:
        fleet = self.fleet
        now = fleet.now + worker.ahead_s
        worker.seeds = seeds
        effects = worker.protocol.join(now, seeds, founders, returning=returning)
        fleet.executor.apply(worker, effects, now, "join")
        self.search(worker)
        fleet.set_alarm(worker)

    def _seeds(self, worker: Worker, among: Sequence[Worker] | None = None) -> list[str]:
        # As a launcher would give them.
        among = self.fleet.workers if among is None else among
        others = [other for other in among if other.index != worker.index]
        running = [other.id for other in others if other.running]
        if not running:
            # No process answers there now; but addresses are given all the same.
            running = [other.id for other in others if other.index < self.plan.founders]
        return [address_of(id) for id in self._ranked(worker, running)[:_SEEDS_MAX]]

    def _ranked(self, worker: Worker, ids: Sequence[str]) -> list[str]:
        # The rank does not depend on which workers run, so that one fault shifts no other.
        rank, harness = partial(key, self._plan.seed, "seeds", worker.id), self.fleet.harness
        return sorted([id for id in ids if harness is None or harness.listens(id)], key=rank)

    def _end(self, worker: Worker, *, died: bool, gave_up: bool = False) -> None:
        values, now = self.fleet.values, self.fleet.now
        worker.away_s, worker.waited_s_most = worker.away_until(now), worker.waited_until(now)
        worker.idle_s, worker.waiting_since_s = worker.idle_until(now), None
        worker.running = worker.awake = worker.searching = False
        worker.crash_point = None
        held = [payload for _, payload in worker.held if payload is not None]
        for slot in (*worker.snapshots.values(), *worker.shares.values(), *held):
            values.let_go(slot)
        worker.snapshots, worker.shares, worker.held, worker.deferred = {}, {}, [], []
        if self.fleet.observer is not None:
            self.fleet.observer.ended(worker, died=died, gave_up=gave_up)
        self.finished(worker)

    def _await_end(self, worker: Worker, give_up_s: float) -> None:
        fleet = self.fleet
        if not worker.running:
            return
        if worker.protocol.phase is Phase.LEFT:
            # It still answers for a while: over lossy links, peers may ask more than once.
            fleet.at(fleet.now + self.plan.linger_s, partial(self._close, worker, died=False))
        elif fleet.now >= give_up_s and worker.awake:
            self._close(worker, died=True)
        else:
            if worker.awake:
                now = fleet.now + worker.ahead_s
                fleet.executor.apply(worker, worker.protocol.leave(now), now, "leave")
            fleet.at(fleet.now + _LEAVING_S, partial(self._await_end, worker, give_up_s))

    def _close(self, worker: Worker, *, died: bool) -> None:
        if worker.paused_s is not None:
            # Messages that arrive meanwhile are kept for it.
            worker.deferred.append(partial(self._close, worker, died=died))
        elif worker.running:
            self.fault_report.gone(worker.index)
            self._end(worker, died=died, gave_up=died)
            self._incarnations.end(worker, self.fleet.now, died=died)

    def _is_stuck(self) -> bool:
        workers = self.fleet.workers
        return all(workers[index].searching or not workers[index].awake for index in self._open)

    def _give_up(self, waiting: set[int]) -> None:
        if self._open and self._open <= waiting and self._is_stuck() and not self._coming:
            self.fault_report.stranded = tuple(sorted(self._open))
            self._open.clear()
            self.over = True
            self.fleet.clock.stop()

    def _note(self, note: Callable[[int, int, float], None], worker: Worker, peer: PeerId) -> None:
        index = self.fleet.index.get(peer)
        if index is not None:
            note(worker.index, index, self.fleet.now)


def _kept_ids(plan: FleetPlan) -> frozenset[PeerId]:
    assert plan.fault_plan is not None
    kept: set[PeerId] = set()
    for fault in plan.fault_plan.faults:
        if fault.kind in ("restart", "mass-restart") and fault.state != "lost":
            named = (fault.peer, *(fault.peers or ()))
            is_all = fault.kind == "mass-restart" and not fault.peers
            kept.update(plan.ids if is_all else (str(peer) for peer in named if peer))
    return frozenset(kept)


def _crash(processes: Processes, worker: Worker, fault: Fault) -> None:
    if fault.after is None and not fault.accepting:
        processes.crash(worker)
    else:
        after = None if fault.accepting else fault.after
        worker.crash_point = CrashPoint(after, deepcopy(list(worker.protocol.accounts)))


def _restart(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    if not worker.running and processes.has_come(worker):
        processes.start([worker], kept=fault.state != "lost")


def _mass_restart(processes: Processes, fault: Fault) -> None:
    workers = processes.fleet.workers
    named = [processes.find(peer) for peer in fault.peers] if fault.peers else list(workers)
    crashed = [worker for worker in named if worker.running]
    for worker in crashed:
        processes.crash(worker)

    def come_back() -> None:
        # Another fault may have restarted one in between.
        down = [worker for worker in crashed if workers[worker.index] is worker]
        processes.start(down, kept=fault.state != "lost")

    processes.expect(fault.at_s + (fault.for_s or 0.0), come_back)


def _pause(processes: Processes, worker: Worker, fault: Fault) -> None:
    if not (worker.awake or worker.pauses):
        return  # it has not begun yet
    pause = object()
    worker.pauses.add(pause)
    if worker.awake:
        worker.awake, worker.paused_s = False, processes.fleet.now

    def resume() -> None:
        if pause in worker.pauses:
            worker.pauses.remove(pause)
            processes.go_on(worker)

    if fault.for_s is not None:
        processes.expect(fault.at_s + fault.for_s, resume)
    processes.look()


def _continue(processes: Processes, worker: Worker, fault: Fault) -> None:
    worker.pauses.clear()
    processes.go_on(worker)


def _slow(processes: Processes, worker: Worker, fault: Fault) -> None:
    index = worker.index
    cause = processes.slowness.begin(index, fault.factor or 1.0)
    worker.slowness = processes.slowness.of(index)

    def hurry() -> None:
        processes.slowness.end(index, cause)
        # Whichever incarnation it is by then.
        processes.fleet.workers[index].slowness = processes.slowness.of(index)

    if fault.for_s is not None:
        processes.fleet.at(fault.at_s + fault.for_s, hurry)


def _jump(processes: Processes, worker: Worker, fault: Fault) -> None:
    worker.ahead_s += fault.by_s or 0.0
    if worker.awake:
        worker.alarm_s = math.inf
        processes.fleet.set_alarm(worker)


def _join(processes: Processes, fault: Fault) -> None:
    first, many = processes.next_newcomer, fault.count or 1
    processes.next_newcomer += many
    processes.start(processes.fleet.workers[first : first + many])


def _leave(processes: Processes, worker: Worker, fault: Fault) -> None:
    fleet = processes.fleet
    if worker.awake and worker.protocol.phase < Phase.LEAVING:
        if worker.id in processes.kept_ids:
            processes.keep(worker)
        fleet.leave(worker)
    elif worker.paused_s is not None:
        # SIGTERM waits for SIGCONT too.
        fleet.at(fleet.now + 1.0, partial(STRIKES["leave"], processes, fault))


def _finish(processes: Processes, worker: Worker, fault: Fault) -> None:
    if not (worker.finished or worker.searching):
        processes.fleet.finish(worker)


def _diverge(processes: Processes, worker: Worker, fault: Fault) -> None:
    worker.spoilt = True


def _if_running(
    strike: Callable[[Processes, Worker, Fault], None],
) -> Callable[[Processes, Fault], None]:
    def struck(processes: Processes, fault: Fault) -> None:
        worker = processes.find(fault.peer)
        if worker.running:
            strike(processes, worker, fault)

    return struck


STRIKES: Mapping[str, Callable[[Processes, Fault], None]] = MappingProxyType(
    {
        "crash": _if_running(_crash),
        "restart": _restart,
        "mass-restart": _mass_restart,
        "pause": _if_running(_pause),
        "continue": _if_running(_continue),
        "slow": _if_running(_slow),
        "clock-jump": _if_running(_jump),
        "join": _join,
        "leave": _if_running(_leave),
        "finish": _if_running(_finish),
        "diverge": _if_running(_diverge),
    }
)
"""Effect of each kind of fault on processes."""
