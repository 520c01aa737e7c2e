"""A fleet whose processes come and go: how they start, look for their swarm, and end.

Here every worker has a view of its own of who lives, and looks for its swarm before it trains, as
live peers do. What goes wrong is a plan: `FaultInjector` does it to processes, `NetworkFaults` to
messages.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Final

from ...gossip import Envelope, PeerId, Phase
from ...gossip.effects.effects import Greet, Record
from ...gossip.effects.events import Founded, Joined, PeerDied, PeerLeft, PeerMet, PeerRecovered
from ...gossip.effects.ledger import Kind
from ...topology.hashing import key
from .execution import Handler
from .links import Links, address_of, uniform
from .network_faults import Mailbox, NetworkFaults
from .plan import FleetPlan, Traffic
from .process_faults import FaultInjector
from .program import Slot
from .worker import Checkpoint, FleetControl, Incarnations, Worker

__all__ = [
    "Arrival",
    "Crash",
    "DetectionTimes",
    "FaultReport",
    "FleetFaults",
    "Healing",
    "fault_report",
]


@dataclass(slots=True)
class Crash:
    """A worker that crashed, and when others held it for dead."""

    worker: int
    at_s: float
    survivors: set[int]
    """Those who ran then and do still."""
    seen_s: dict[int, float] = field(default_factory=dict)
    """By survivor."""
    over: bool = False
    """Whether a later life of it has begun since."""

    @property
    def first_s(self) -> float | None:
        """How long it took the first survivor, seconds; None while none has seen it."""
        return min(self.seen_s.values()) - self.at_s if self.seen_s else None

    @property
    def last_s(self) -> float | None:
        """How long it took the last survivor; None while one has not seen it."""
        if not self.seen_s or not self.survivors <= self.seen_s.keys():
            return None
        return max(self.seen_s.values()) - self.at_s


@dataclass(slots=True)
class Arrival:
    """A worker that came, for the first time or again."""

    worker: int
    at_s: float
    again: bool
    admitted_s: float | None = None
    """How long it took until it belonged to a swarm, seconds."""
    strangers: set[int] = field(default_factory=set)
    """Those who ran then, do still, and do not know it yet."""
    known_s: float | None = None
    """How long it took until all of them knew it."""


@dataclass(slots=True)
class Healing:
    """A cut or a partition that ended."""

    at_s: float
    took_s: float | None = None
    """How long until no running worker was considered dead, seconds."""


class DetectionTimes:
    """Looks on at the events of all workers' protocols."""

    def __init__(self) -> None:
        self.crashes: list[Crash] = []
        self.arrivals: list[Arrival] = []
        self.healings: list[Healing] = []
        self._missed: dict[int, Crash] = {}
        self._new: dict[int, Arrival] = {}
        self._wrong: dict[int, set[int]] = {}
        """By worker that runs, those who hold it for dead and run themselves."""

    def crashed(self, worker: int, now: float, survivors: Iterable[int]) -> None:
        """Note that a worker is gone without a word."""
        self.gone(worker)
        crash = self._missed[worker] = Crash(worker, now, set(survivors))
        self.crashes.append(crash)

    def gone(self, worker: int) -> None:
        """Note that a process has ended: what it saw does not count any more."""
        self._new.pop(worker, None)
        for crash in self._missed.values():
            crash.survivors.discard(worker)
            crash.seen_s.pop(worker, None)
        for arrival in self._new.values():
            arrival.strangers.discard(worker)
        self._wrong.pop(worker, None)
        for observers in self._wrong.values():
            observers.discard(worker)

    def came(self, worker: int, now: float, others: Iterable[int], *, again: bool) -> None:
        """Note that a worker has started: a newcomer, or the next life of one."""
        missed = self._missed.pop(worker, None)
        if missed is not None:
            missed.over = True
        arrival = self._new[worker] = Arrival(worker, now, again, strangers=set(others))
        self.arrivals.append(arrival)

    def admitted(self, worker: int, now: float) -> None:
        """Note that a worker belongs to a swarm."""
        arrival = self._new.get(worker)
        if arrival is not None and arrival.admitted_s is None:
            arrival.admitted_s = now - arrival.at_s

    def met(self, observer: int, worker: int, now: float) -> None:
        """Note that somebody knows a life of a worker."""
        arrival = self._new.get(worker)
        if arrival is not None and observer in arrival.strangers:
            arrival.strangers.discard(observer)
            if not arrival.strangers:
                arrival.known_s = now - arrival.at_s
        self.heard(observer, worker, now)

    def died(self, observer: int, worker: int, now: float) -> None:
        """Note that somebody holds a worker for dead."""
        crash = self._missed.get(worker)
        if crash is None:
            self._wrong.setdefault(worker, set()).add(observer)
        elif observer in crash.survivors:
            crash.seen_s.setdefault(observer, now)

    def heard(self, observer: int, worker: int, now: float) -> None:
        """Note that somebody holds a worker for alive again."""
        observers = self._wrong.get(worker)
        if observers is not None and observer in observers:
            observers.discard(observer)
            if not observers:
                del self._wrong[worker]
            self._look(now)

    def ended(self, now: float) -> None:
        """Note that a cut has ended."""
        self.healings.append(Healing(now))
        self._look(now)

    def _look(self, now: float) -> None:
        if any(self._wrong.values()):
            return
        for healing in self.healings:
            if healing.took_s is None:
                healing.took_s = now - healing.at_s


# Addresses that a process is told at its start: some may not answer.
_SEEDS_MAX: Final = 3
_SEEDS_KEPT_MAX: Final = 16

# As live peers and those of a `Swarm` have it.
_LEAVING_S: Final = 0.05
_LEAVE_S: Final = 10.0
_LINGER_S: Final = 5.0

# Ten times the longest wait between two questions about a share.
_STUCK_S: Final = 300.0


class FleetFaults:
    """Sees to processes that come and go.

    Args:
        fleet: Whose.
        plan: What it is made of; its ``fault_plan`` says what goes wrong.
        incarnations: Makes the next ones.
        links: The network as it is when nothing goes wrong.

    Attributes:
        over: Whether every worker that runs has taken all its steps, and none is still to come.
        network_faults: What becomes of messages.
        mail: Carries them.
        detection_times: Who saw what when.
        stranded: Workers that did not find a swarm to the end, or stood still.
    """

    def __init__(
        self, fleet: FleetControl, plan: FleetPlan, incarnations: Incarnations, links: Links
    ) -> None:
        assert plan.fault_plan is not None
        self.over = False
        self.network_faults = NetworkFaults(plan.fault_plan.faults, plan.ids, plan.seed)
        self.detection_times = DetectionTimes()
        self.mail = Mailbox(fleet, links, self.network_faults, plan.ids)
        self.stranded: tuple[int, ...] = ()
        self._fleet = fleet
        self._plan = plan
        self._fault_plan = plan.fault_plan
        self._incarnations = incarnations
        self._indices = {id: index for index, id in enumerate(plan.ids)}
        self._injector = FaultInjector(self, fleet, plan)
        self._absent = set(range(plan.fault_plan.founders, len(plan.ids)))
        """Newcomers that have not come yet."""
        self._open: set[int] = set()
        """Those that run and take further steps."""

    def handlers(self) -> Mapping[type, Handler]:
        """Handlers of effects that a fleet without faults does not need."""
        return {
            Record: self._record,
            Greet: self.mail.greet,
            Founded: self._admitted,
            Joined: self._admitted,
            PeerDied: lambda w, e, _: self._note(self.detection_times.died, w, e.peer),
            PeerMet: lambda w, e, _: self._note(self.detection_times.met, w, e.peer),
            PeerRecovered: lambda w, e, _: self._note(self.detection_times.heard, w, e.peer),
            PeerLeft: lambda w, e, _: self._note(self.detection_times.heard, w, e.peer),
        }

    def begin(self) -> None:
        """Start the founders, and see that what is to go wrong does."""
        fleet, founders = self._fleet, self._fault_plan.founders
        for index in self._absent:
            fleet.workers[index].running = fleet.workers[index].awake = False
        self._injector.schedule()
        for healed_s in self.network_faults.healed_s():
            fleet.at(healed_s, lambda: self.detection_times.ended(fleet.now))
        for worker in fleet.workers[:founders]:
            self._enter(worker)
        for worker in fleet.workers[:founders]:
            # Nobody's heartbeat keeps time with another's.
            share = uniform(key(self._plan.seed, "start", worker.id), 0)
            worker.awake = False
            begin = partial(self._found, worker, self._seeds(worker))
            fleet.at(share * self._plan.protocol.gossip_s, begin)

    def start(self, workers: Sequence[Worker], *, kept: bool = False) -> None:
        """Start newcomers, or the next lives of those whose process has ended, all at once.

        Args:
            workers: The last life of each.
            kept: Whether they find their last checkpoints, if there are any.
        """
        # All are there before the first of them looks for anybody.
        begun = [self._begin(worker, kept=kept) for worker in workers]
        for worker in begun:
            found = worker.kept if kept else None
            seeds = self._seeds(worker)
            if found is not None:
                ranked = self._ranked(worker, found.peers)[:_SEEDS_KEPT_MAX]
                seeds = [address_of(peer) for peer in ranked] or seeds
            self._join(worker, seeds, founders=1, returning=found is not None)

    def _begin(self, worker: Worker, *, kept: bool) -> Worker:
        fleet, index = self._fleet, worker.index
        others = [other.index for other in fleet.workers if other.running]
        again = index not in self._absent
        if again:
            found = worker.kept if kept else None
            worker = fleet.workers[index] = self._incarnations.next(worker, found)
            fleet.program.start(index, kept=found is not None)
        self._absent.discard(index)
        self._enter(worker)
        self.detection_times.came(index, fleet.now, others, again=again)
        return worker

    def crash(self, worker: Worker) -> None:
        """End a process without a word."""
        running = [w.index for w in self._fleet.workers if w.running and w is not worker]
        ledger = None if worker.crash_point is None else worker.crash_point.ledger
        self.detection_times.crashed(worker.index, self._fleet.now, running)
        self._end(worker)
        self._incarnations.end(worker, self._fleet.now, died=True, ledger=ledger)

    def keep(self, worker: Worker) -> None:
        """Let a worker write a checkpoint."""
        if worker.running and not worker.searching:
            peers = tuple([member.id for member in worker.protocol.known()])
            clock = tuple(worker.protocol.clock.rows().items())
            worker.kept = Checkpoint(worker.steps, peers, clock)
            worker.checkpoint_s = self._fleet.now + self._fault_plan.checkpoint_every_s
            self._fleet.program.keep(worker.index)

    def finished(self, worker: Worker) -> None:
        """Note that a worker takes no more steps."""
        self._open.discard(worker.index)
        self.look()

    def look(self) -> None:
        """See whether everything is over, or can come to no end by itself."""
        coming = self._injector.coming
        # Those that have finished do not wait for one that may come back: they would have closed.
        closes = not coming or any(w.running and w.finished for w in self._fleet.workers)
        self.over = not self._open and closes
        if self._open and not coming and self._is_stuck():
            self._fleet.at(self._fleet.now + _STUCK_S, partial(self._give_up, set(self._open)))

    def leaving(self, worker: Worker) -> None:
        """Let a process that has begun to leave end when it is gone, or has taken too long."""
        if worker.running:
            self._await_end(worker, self._fleet.now + _LEAVE_S)

    def present(self) -> Iterator[int]:
        """Workers that belong to the swarm; before anybody does, those that look for it."""
        running = [worker for worker in self._fleet.workers if worker.running]
        members = [w for w in running if Phase.TRAINING <= w.protocol.phase <= Phase.QUIET]
        return iter([worker.index for worker in members or running])

    def search(self, worker: Worker) -> None:
        """Let a worker that looks for a swarm take what has come, and train once it has joined."""
        fleet = self._fleet
        if worker.protocol.phase is Phase.JOINING:
            fleet.step(worker, trained=False)
        if worker.searching and worker.protocol.phase >= Phase.TRAINING:
            worker.searching = False
            if not worker.finished:
                fleet.begin_step(worker)
            self.keep_from_now(worker)

    def followed(self, worker: Worker) -> None:
        """See what a message has led to."""
        if worker.searching and worker.running:
            self.search(worker)
            self._fleet.set_alarm(worker)

    def keep_from_now(self, worker: Worker) -> None:
        """Let a worker write checkpoints, where a later life will look for one."""
        if self._injector.is_kept(worker.id):
            worker.checkpoint_s = self._fleet.now + self._fault_plan.checkpoint_every_s

    def addressee(self, worker: Worker, envelope: Envelope, payload: Slot | None) -> Worker | None:
        """Find who takes in a message to a life that has ended, or stands still.

        Returns:
            The life that runs there now; None where nobody takes it in now.
        """
        now = self._fleet.workers[worker.index]
        if now.awake:
            return now
        if now.running:
            now.held.append((envelope, payload))
        elif payload is not None:
            self._fleet.program.let_go(payload)
        return None

    def time_of(self, worker: Worker, due_s: float) -> float:
        """When a worker's clock, which is ahead, shows a time."""
        time_s = due_s - worker.ahead_s
        while time_s + worker.ahead_s < due_s:
            # Woken by a rounding too early, it would find nothing to do, for ever.
            time_s = math.nextafter(time_s, math.inf)
        return time_s

    def lived_s(self) -> float:
        """How long all lives have lasted together so far, seconds."""
        now = self._fleet.now
        running = [now - w.started_s for w in self._fleet.workers if w.running]
        return self._incarnations.ended_s + sum(running)

    def _enter(self, worker: Worker) -> None:
        worker.running = worker.awake = worker.searching = True
        worker.started_s = self._fleet.now
        self._open.add(worker.index)

    def _found(self, worker: Worker, seeds: Sequence[str]) -> None:
        """Let a founder call the roll, and take in what has come before it did."""
        if not worker.running:
            return
        worker.awake = True
        self._join(worker, seeds, founders=self._fault_plan.founders)
        held, worker.held = worker.held, []
        for envelope, payload in held:
            self._fleet.take_in(worker, envelope, payload)

    def _join(
        self, worker: Worker, seeds: Sequence[str], *, founders: int, returning: bool = False
    ) -> None:
        fleet = self._fleet
        now = fleet.now + worker.ahead_s
        effects = worker.protocol.join(now, seeds, founders, returning=returning)
        fleet.carry_out(worker, effects, now)
        self.search(worker)
        fleet.set_alarm(worker)

    def _seeds(self, worker: Worker) -> list[str]:
        """Addresses that whoever starts it gives to it: of some that run."""
        others = [other for other in self._fleet.workers if other.index != worker.index]
        running = [other.id for other in others if other.running]
        if not running:
            # Nobody answers there now; but addresses are told all the same.
            running = [other.id for other in others if other.index < self._fault_plan.founders]
        return [address_of(id) for id in self._ranked(worker, running)[:_SEEDS_MAX]]

    def _ranked(self, worker: Worker, ids: Sequence[str]) -> list[str]:
        # By a rank that nobody's coming or going changes, so that a fault shifts no other.
        return sorted(ids, key=lambda id: key(self._plan.seed, "seeds", worker.id, id))

    def _end(self, worker: Worker) -> None:
        program = self._fleet.program
        worker.idle_s, worker.waiting_since_s = worker.idle_until(self._fleet.now), None
        worker.running = worker.awake = worker.searching = False
        worker.crash_point = None
        held = [payload for _, payload in worker.held if payload is not None]
        for slot in (*worker.snapshots.values(), *worker.shares.values(), *held):
            program.let_go(slot)
        worker.snapshots, worker.shares, worker.held = {}, {}, []
        self.finished(worker)

    def _await_end(self, worker: Worker, give_up_s: float) -> None:
        fleet = self._fleet
        if not worker.running:
            return
        if worker.protocol.phase is Phase.LEFT:
            # It still answers for a while: over lossy links, it may be asked more than once.
            fleet.at(fleet.now + _LINGER_S, partial(self._close, worker, died=False))
        elif fleet.now >= give_up_s and worker.awake:
            self._close(worker, died=True)
        else:
            if worker.awake:
                now = fleet.now + worker.ahead_s
                fleet.carry_out(worker, worker.protocol.leave(now), now)
            fleet.at(fleet.now + _LEAVING_S, partial(self._await_end, worker, give_up_s))

    def _close(self, worker: Worker, *, died: bool) -> None:
        if worker.running:
            self.detection_times.gone(worker.index)
            self._end(worker)
            self._incarnations.end(worker, self._fleet.now, died=died)

    def _is_stuck(self) -> bool:
        """Whether none of those that take further steps gets to it."""
        workers = self._fleet.workers
        return all(workers[index].searching or not workers[index].awake for index in self._open)

    def _give_up(self, waiting: set[int]) -> None:
        if self._open and self._open <= waiting and self._is_stuck() and not self._injector.coming:
            self.stranded = tuple(sorted(self._open))
            self._open.clear()
            self.over = True

    def _record(self, worker: Worker, effect: Record, now: float) -> None:
        entry = effect.entry
        if entry.kind is Kind.PUSHED:
            worker.pushes += 1
            self._fleet.traffic.pushes += 1
        elif entry.kind is Kind.SETTLED and entry.weight == 0:
            self._fleet.traffic.refusals += 1
        if worker.crash_point is not None:
            worker.crash_point.ledger[entry.shard].apply(entry)

    def _admitted(self, worker: Worker, effect: Founded | Joined, now: float) -> None:
        self.detection_times.admitted(worker.index, self._fleet.now)

    def _note(self, note: Callable[[int, int, float], None], worker: Worker, peer: PeerId) -> None:
        index = self._indices.get(peer)
        if index is not None:
            note(worker.index, index, self._fleet.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """What a swarm made of its faults. Times are None where that never came."""

    crashes: tuple[Crash, ...]
    arrivals: tuple[Arrival, ...]
    healings: tuple[Healing, ...]
    stranded: tuple[int, ...]
    """Workers that looked for a swarm, or stood still, when the others had ended."""
    membership_bytes_s: float
    """Of messages about who lives, for each worker and second that it ran."""

    def figures(self) -> dict[str, Any]:
        """In numbers, for a summary: counts, and seconds."""
        lasting = [crash for crash in self.crashes if not crash.over]
        newcomers = [arrival for arrival in self.arrivals if not arrival.again]
        returned = [arrival for arrival in self.arrivals if arrival.again]
        return {
            "crashes": len(self.crashes),
            "restarts": len(returned),
            "joins": len(newcomers),
            "detect_s_first": _median([crash.first_s for crash in self.crashes]),
            "detect_s_last": _most([crash.last_s for crash in self.crashes]),
            "undetected": sum(crash.last_s is None for crash in lasting),
            **_of_arrivals("join", newcomers),
            **_of_arrivals("restart", returned),
            "heal_s": _most([healing.took_s for healing in self.healings]),
            "unhealed": sum(healing.took_s is None for healing in self.healings),
            "membership_bytes_s": self.membership_bytes_s,
        }


def fault_report(faults: FleetFaults, traffic: Traffic) -> FaultReport:
    """Draw up what became of the faults of a fleet that has come to its end."""
    detection_times, lived_s = faults.detection_times, faults.lived_s()
    return FaultReport(
        crashes=tuple(detection_times.crashes),
        arrivals=tuple(detection_times.arrivals),
        healings=tuple(detection_times.healings),
        stranded=faults.stranded,
        membership_bytes_s=traffic.membership_bytes / lived_s if lived_s else 0.0,
    )


def _of_arrivals(word: str, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    return {
        f"{word}_s_median": _median([arrival.admitted_s for arrival in arrivals]),
        f"{word}_s_most": _most([arrival.admitted_s for arrival in arrivals]),
        f"{word}_known_s": _most([arrival.known_s for arrival in arrivals]),
        f"{word}s_failed": sum(arrival.admitted_s is None for arrival in arrivals),
    }


def _median(times_s: Sequence[float | None]) -> float | None:
    """Of those that came."""
    found = [time_s for time_s in times_s if time_s is not None]
    return median(found) if found else None


def _most(times_s: Sequence[float | None]) -> float | None:
    """Of those that came."""
    return max((time_s for time_s in times_s if time_s is not None), default=None)
