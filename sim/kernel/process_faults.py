"""What each kind of fault does to the processes of a fleet, and when."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from itertools import count

from ...gossip import PeerId, Phase
from .faults import Fault
from .plan import FleetPlan
from .topology import Slowness
from .worker import CrashPoint, FleetControl, Processes, Worker

__all__ = ["FaultInjector"]


class FaultInjector:
    """Does to workers what a plan of faults says.

    Args:
        processes: Starts and ends processes.
        fleet: Whose.
        plan: What the fleet is made of.

    Attributes:
        coming: Faults ahead by which a process starts or goes on.
    """

    def __init__(self, processes: Processes, fleet: FleetControl, plan: FleetPlan) -> None:
        assert plan.fault_plan is not None
        self.coming = 0
        self._processes = processes
        self._fleet = fleet
        self._faults = plan.fault_plan.faults
        self._index = {id: index for index, id in enumerate(plan.ids)}
        self._next_newcomer = plan.fault_plan.founders
        self._slowness = Slowness()
        self._pauses = count()
        self._kinds: dict[str, Callable[[Fault], None]] = {
            "crash": self._crash,
            "restart": self._restart,
            "mass-restart": self._mass_restart,
            "pause": self._pause,
            "continue": self._continue,
            "slow": self._slow,
            "clock-jump": self._jump,
            "join": self._join,
            "leave": self._leave,
            "finish": self._finish,
            "diverge": self._diverge,
        }
        self._keeps_all = any(f.kind == "mass-restart" and not f.peers for f in self._kept())
        self._kept_ids = {name for f in self._kept() for name in (f.peer, *(f.peers or ())) if name}

    def schedule(self) -> None:
        """See that everything happens in its time."""
        for fault in self._faults:
            action = self._kinds.get(fault.kind)
            if action is None:
                continue
            if fault.kind in ("restart", "mass-restart", "join", "continue"):
                self._expect(fault.at_s, partial(action, fault))
            else:
                self._fleet.at(fault.at_s, partial(action, fault))

    def is_kept(self, id: PeerId) -> bool:
        """Whether a later life of a worker looks for a checkpoint."""
        return self._keeps_all or id in self._kept_ids

    def _kept(self) -> Sequence[Fault]:
        again = [f for f in self._faults if f.kind in ("restart", "mass-restart")]
        return [fault for fault in again if fault.state != "lost"]

    def _expect(self, time_s: float, action: Callable[[], object]) -> None:
        """Do something by which processes start; before it, nothing is over."""
        self.coming += 1
        self._fleet.at(time_s, partial(self._come, action))

    def _come(self, action: Callable[[], object]) -> None:
        self.coming -= 1
        action()
        self._processes.look()

    def _worker(self, fault: Fault) -> Worker:
        return self._fleet.workers[self._place(fault.peer)]

    def _place(self, peer: str | int | None) -> int:
        assert isinstance(peer, str)
        return self._index[peer]

    def _crash(self, fault: Fault) -> None:
        worker = self._worker(fault)
        if not worker.running:
            return
        if fault.after is None and not fault.accepting:
            self._processes.crash(worker)
        else:
            after = None if fault.accepting else fault.after
            worker.crash_point = CrashPoint(after, deepcopy(list(worker.protocol.accounts)))

    def _restart(self, fault: Fault) -> None:
        worker = self._worker(fault)
        if not worker.running:
            self._processes.start([worker], kept=fault.state != "lost")

    def _mass_restart(self, fault: Fault) -> None:
        workers = self._fleet.workers
        if fault.peers:
            named = [workers[self._place(peer)] for peer in fault.peers]
        else:
            named = list(workers)
        crashed = [worker for worker in named if worker.running]
        for worker in crashed:
            self._processes.crash(worker)
        back = partial(self._come_back, crashed, kept=fault.state != "lost")
        self._expect(fault.at_s + (fault.for_s or 0.0), back)

    def _come_back(self, crashed: Sequence[Worker], *, kept: bool) -> None:
        # Somebody may have started one in between.
        down = [worker for worker in crashed if self._fleet.workers[worker.index] is worker]
        self._processes.start(down, kept=kept)

    def _pause(self, fault: Fault) -> None:
        worker, now = self._worker(fault), self._fleet.now
        if not worker.running or not (worker.awake or worker.pauses):
            return
        number = next(self._pauses)
        worker.pauses.add(number)
        if worker.awake:
            worker.awake, worker.paused_s = False, now
        if fault.for_s is not None:
            self._expect(now + fault.for_s, partial(self._end_pause, worker, number))
        self._processes.look()

    def _end_pause(self, worker: Worker, number: int) -> None:
        """Let one pause of a worker be over, and it go on if no other holds it."""
        if number in worker.pauses:
            worker.pauses.remove(number)
            self._go_on(worker)

    def _continue(self, fault: Fault) -> None:
        worker = self._worker(fault)
        worker.pauses.clear()
        self._go_on(worker)

    def _go_on(self, worker: Worker) -> None:
        """Let a worker go on that stands still though nothing holds it any more."""
        fleet, paused_s = self._fleet, worker.paused_s
        if not worker.running or paused_s is None or worker.pauses:
            return
        worker.awake, worker.paused_s = True, None
        held, worker.held = worker.held, []
        for envelope, payload in held:
            if worker.running:
                fleet.take_in(worker, envelope, payload)
            elif payload is not None:
                fleet.program.let_go(payload)
        if worker.running and worker.waiting_since_s is None and not worker.searching:
            # What was left of its step is left still.
            fleet.turn_at(worker, worker.turn_s + fleet.now - paused_s)
        worker.alarm_s = float("inf")
        fleet.set_alarm(worker)

    def _slow(self, fault: Fault) -> None:
        worker = self._worker(fault)
        if not worker.running:
            return
        cause = self._slowness.begin(worker.index, fault.factor or 1.0)
        worker.slowness = self._slowness.of(worker.index)
        if fault.for_s is not None:
            hurry = partial(self._hurry, worker.index, cause)
            self._fleet.at(fault.at_s + fault.for_s, hurry)

    def _hurry(self, index: int, cause: int) -> None:
        self._slowness.end(index, cause)
        # Whichever of its lives it is by now.
        self._fleet.workers[index].slowness = self._slowness.of(index)

    def _jump(self, fault: Fault) -> None:
        worker = self._worker(fault)
        if not worker.running:
            return
        worker.ahead_s += fault.by_s or 0.0
        if worker.awake:
            worker.alarm_s = float("inf")
            self._fleet.set_alarm(worker)

    def _join(self, fault: Fault) -> None:
        first, count = self._next_newcomer, fault.count or 1
        self._next_newcomer += count
        self._processes.start(self._fleet.workers[first : first + count])

    def _leave(self, fault: Fault) -> None:
        worker = self._worker(fault)
        if worker.awake and worker.protocol.phase < Phase.LEAVING:
            if self.is_kept(worker.id):
                self._processes.keep(worker)
            self._fleet.leave(worker)
        elif worker.running and worker.paused_s is not None:
            # SIGTERM waits for SIGCONT, too.
            self._fleet.at(self._fleet.now + 1.0, partial(self._leave, fault))

    def _finish(self, fault: Fault) -> None:
        worker = self._worker(fault)
        if worker.running and not worker.finished and not worker.searching:
            self._fleet.finish(worker)

    def _diverge(self, fault: Fault) -> None:
        worker = self._worker(fault)
        if worker.running:
            worker.spoilt = True
