"""What faults do to the processes of a fleet; those of the network are done by `NetworkFaults`."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from types import MappingProxyType

from ....gossip import Phase
from ....train.faults.schedule import Fault
from ..processes import Processes
from ..worker import CrashPoint

__all__ = ["STRIKES"]


def _crash(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    if not worker.running:
        return
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
        # Somebody may have started one in between.
        down = [worker for worker in crashed if workers[worker.index] is worker]
        processes.start(down, kept=fault.state != "lost")

    processes.expect(fault.at_s + (fault.for_s or 0.0), come_back)


def _pause(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    number = processes.pause(worker)
    if number is None:
        return
    if fault.for_s is not None:
        resume = partial(processes.end_pause, worker, number)
        processes.expect(fault.at_s + fault.for_s, resume)
    processes.look()


def _continue(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    worker.pauses.clear()
    processes.go_on(worker)


def _slow(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    if not worker.running:
        return
    index, slowness = worker.index, processes.slowness
    cause = slowness.begin(index, fault.factor or 1.0)
    worker.slowness = slowness.of(index)

    def hurry() -> None:
        slowness.end(index, cause)
        # Whichever of its lives it is by now.
        processes.fleet.workers[index].slowness = slowness.of(index)

    if fault.for_s is not None:
        processes.fleet.at(fault.at_s + fault.for_s, hurry)


def _jump(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    if not worker.running:
        return
    worker.ahead_s += fault.by_s or 0.0
    if worker.awake:
        worker.alarm_s = float("inf")
        processes.fleet.set_alarm(worker)


def _join(processes: Processes, fault: Fault) -> None:
    processes.start(processes.newcomers(fault.count or 1))


def _leave(processes: Processes, fault: Fault) -> None:
    worker, fleet = processes.find(fault.peer), processes.fleet
    if worker.awake and worker.protocol.phase < Phase.LEAVING:
        if processes.is_kept(worker.id):
            processes.keep(worker)
        fleet.leave(worker)
    elif worker.running and worker.paused_s is not None:
        # SIGTERM waits for SIGCONT, too.
        fleet.at(fleet.now + 1.0, partial(_leave, processes, fault))


def _finish(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    if worker.running and not worker.finished and not worker.searching:
        processes.fleet.finish(worker)


def _diverge(processes: Processes, fault: Fault) -> None:
    worker = processes.find(fault.peer)
    if worker.running:
        worker.spoilt = True


STRIKES: Mapping[str, Callable[[Processes, Fault], None]] = MappingProxyType(
    {
        "crash": _crash,
        "restart": _restart,
        "mass-restart": _mass_restart,
        "pause": _pause,
        "continue": _continue,
        "slow": _slow,
        "clock-jump": _jump,
        "join": _join,
        "leave": _leave,
        "finish": _finish,
        "diverge": _diverge,
    }
)
"""By kind of fault."""
