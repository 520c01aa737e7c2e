"""The kinds of fault: what each takes, what it does to the processes of a fleet, how it is drawn.

A new kind is one entry of `KINDS`; those of the network are carried out by `NetworkFaults`.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from ....gossip import PeerId, Phase
from ..plan import Fault
from ..processes import Processes
from ..worker import CrashPoint
from . import forgeries
from .forgeries import Forge

__all__ = ["KINDS", "FaultKind", "rounded_s"]

Draw = Callable[[np.random.Generator, Sequence[PeerId], float], list[Fault]]
"""Draws faults that begin at a time, with peers of those that are there at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault."""

    help: str
    """What happens, in one sentence."""

    needs: tuple[str, ...] = ()
    """Fields that must be given, beside ``at_s`` and ``kind``."""

    may: tuple[str, ...] = ()
    """Fields that may be given."""

    live: bool = True
    """Whether it can be done to real processes."""

    starts: bool = False
    """Whether a process starts or goes on by it, so that before it nothing is over."""

    strike: Callable[[Processes, Fault], None] | None = None
    """What it does to processes; None where it is of the network."""

    draw: Draw | None = None
    """Draws it at random, with what belongs to it; None where it comes with another."""

    is_attack: bool = False
    """Whether peers lie by it: see `rumor.sim.kernel.faults.attacks`."""

    forge: Forge | None = None
    """What they send in place of their models, where they do."""

    strength: float | None = 1.0
    """That of an attack, unless given; None where it follows from how many lie."""

    @property
    def takes(self) -> tuple[str, ...]:
        """All its fields, those that it needs first."""
        return self.needs + self.may


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


def _one(rng: np.random.Generator, peers: Sequence[PeerId]) -> PeerId:
    return peers[int(rng.random() * len(peers))]


def _lasting(rng: np.random.Generator, mean_s: float) -> float:
    return rounded_s(0.1 + rng.exponential(mean_s))


def rounded_s(time_s: float) -> float:
    """Round a time: three digits read well in a file, and say the same there."""
    return round(float(time_s), 3)


def _draw_crash(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    """One dies at once, in the middle of what it does next, or on accepting; it may come back."""
    peer, how = _one(rng, peers), rng.random()
    crash = Fault(
        at_s=at_s,
        kind="crash",
        peer=peer,
        after=int(rng.integers(7)) if how < 0.4 else None,
        accepting=True if how > 0.6 else None,
    )
    back_s, returns, kept = rng.exponential(2.0), rng.random() < 0.7, rng.random() < 0.6
    if not returns:
        return [crash]
    state = "kept" if kept else "lost"
    later_s = rounded_s(at_s + 0.3 + back_s)
    return [crash, Fault(at_s=later_s, kind="restart", peer=peer, state=state)]


def _draw_mass_restart(
    rng: np.random.Generator, peers: Sequence[PeerId], at_s: float
) -> list[Fault]:
    some = tuple(peer for peer in peers if rng.random() < 0.6)
    return [
        Fault(
            at_s=at_s,
            kind="mass-restart",
            for_s=_lasting(rng, 2.0),
            peers=some if some and rng.random() < 0.4 else None,
            state="kept" if rng.random() < 0.7 else "lost",
        )
    ]


def _draw_pause(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer, for_s = _one(rng, peers), _lasting(rng, 3.0)
    if rng.random() < 0.7:
        return [Fault(at_s=at_s, kind="pause", peer=peer, for_s=for_s)]
    pause = Fault(at_s=at_s, kind="pause", peer=peer)
    return [pause, Fault(at_s=rounded_s(at_s + for_s), kind="continue", peer=peer)]


def _draw_slow(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    factor = float(rng.choice([2.0, 5.0, 20.0]))
    return [
        Fault(
            at_s=at_s, kind="slow", peer=_one(rng, peers), factor=factor, for_s=_lasting(rng, 5.0)
        )
    ]


def _draw_clock_jump(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    by_s = float(rng.choice([0.5, 5.0, 60.0, 3600.0]))
    return [Fault(at_s=at_s, kind="clock-jump", peer=_one(rng, peers), by_s=by_s)]


def _draw_cut(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer, to = _one(rng, peers), _one(rng, peers)
    some = to != peer and rng.random() < 0.4
    return [
        Fault(
            at_s=at_s,
            kind="cut",
            peer=peer,
            to=to if some else None,
            one_way=True if rng.random() < 0.5 else None,
            for_s=_lasting(rng, 3.0),
        )
    ]


def _draw_partition(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    some = tuple(peer for peer in peers if rng.random() < 0.5) or (peers[0],)
    partition = Fault(at_s=at_s, kind="partition", groups=(some,), for_s=_lasting(rng, 5.0))
    heals = rng.random() < 0.2
    later_s = rounded_s(at_s + rng.exponential(3.0))
    return [partition, Fault(at_s=later_s, kind="heal")] if heals else [partition]


def _draw_reset(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer = _one(rng, peers) if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        return [Fault(at_s=at_s, kind="reset", peer=peer)]
    return [Fault(at_s=at_s, kind="reset", peer=peer, every_s=0.2, for_s=_lasting(rng, 3.0))]


def _draw_join(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    return [Fault(at_s=at_s, kind="join", count=int(rng.choice([1, 1, 2, 5])))]


def _of_one(kind: str) -> Draw:
    return lambda rng, peers, at_s: [Fault(at_s=at_s, kind=kind, peer=_one(rng, peers))]


def _burst(kind: str, rates: Sequence[float]) -> Draw:
    """Messages of one peer or of all, for a while or from the first to the last."""

    def draw(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
        peer = _one(rng, peers) if rng.random() < 0.2 else None
        always, for_s, rate = rng.random() < 0.6, _lasting(rng, 4.0), float(rng.choice(rates))
        return [
            Fault(
                at_s=0.0 if always else at_s,
                kind=kind,
                peer=peer,
                for_s=None if always else for_s,
                by_s=rate if kind == "delay" else None,
                rate=None if kind == "delay" else rate,
            )
        ]

    return draw


def _attack(
    help: str,
    strength: float | None = 1.0,
    forge: Forge | None = None,
    may: tuple[str, ...] = ("strength", "for_s"),
) -> FaultKind:
    return FaultKind(
        help="These peers attack: " + help,
        needs=("peers",),
        may=may,
        live=False,
        is_attack=True,
        forge=forge,
        strength=strength,
    )


_KINDS = {
    "crash": FaultKind(
        help="The process ends without a word, as by SIGKILL: at once, after so many effects of "
        "what it does next, or when it has next accepted something before it can say so.",
        needs=("peer",),
        may=("after", "accepting"),
        strike=_crash,
        draw=_draw_crash,
    ),
    "restart": FaultKind(
        help="A peer that is down starts its next life, from its last checkpoint (kept) or with "
        "nothing (lost); one that runs is left alone.",
        needs=("peer",),
        may=("state",),
        strike=_restart,
        starts=True,
    ),
    "mass-restart": FaultKind(
        help="All these peers crash at once, and come back together after a while.",
        needs=("for_s",),
        may=("peers", "state"),
        strike=_mass_restart,
        starts=True,
        draw=_draw_mass_restart,
    ),
    "pause": FaultKind(
        help="The process stands still, as by SIGSTOP; what comes meanwhile waits for it.",
        needs=("peer",),
        may=("for_s",),
        strike=_pause,
        draw=_draw_pause,
    ),
    "continue": FaultKind(
        help="A paused process goes on, as by SIGCONT.",
        needs=("peer",),
        strike=_continue,
        starts=True,
    ),
    "slow": FaultKind(
        help="Steps of a peer take so many times as long.",
        needs=("peer", "factor"),
        may=("for_s",),
        strike=_slow,
        draw=_draw_slow,
    ),
    "clock-jump": FaultKind(
        help="A peer's clock jumps ahead.",
        needs=("peer", "by_s"),
        strike=_jump,
        draw=_draw_clock_jump,
        live=False,
    ),
    "cut": FaultKind(
        help="Nothing passes between a peer and another (all others), or nothing from it to them.",
        needs=("peer",),
        may=("to", "for_s", "one_way"),
        draw=_draw_cut,
    ),
    "partition": FaultKind(
        help="Nothing passes between groups of peers; those that are not named form one more.",
        needs=("groups",),
        may=("for_s",),
        draw=_draw_partition,
    ),
    "heal": FaultKind(help="All cuts and partitions end."),
    "loss": FaultKind(
        help="So many of the messages are lost: of all peers, or those to and from one.",
        needs=("rate",),
        may=("peer", "for_s"),
        draw=_burst("loss", [0.02, 0.1, 0.4]),
    ),
    "duplicate": FaultKind(
        help="So many of the messages come twice, one soon after the other.",
        needs=("rate",),
        may=("peer", "for_s"),
        draw=_burst("duplicate", [0.05, 0.3]),
    ),
    "replay": FaultKind(
        help="So many of the messages come again when they are up to minutes old.",
        needs=("rate",),
        may=("peer", "for_s"),
        draw=_burst("replay", [0.03]),
    ),
    "delay": FaultKind(
        help="Messages come so much later, some of them far later than that.",
        needs=("by_s",),
        may=("peer", "for_s"),
        draw=_burst("delay", [0.02, 0.2]),
    ),
    "reset": FaultKind(
        help="Connections are reset, and what is on its way is lost, in the middle of a transfer "
        "too: of one peer or of all, once or again and again.",
        may=("peer", "every_s", "for_s"),
        draw=_draw_reset,
    ),
    "join": FaultKind(
        help="So many newcomers start, called join-1, join-2 and so on.",
        may=("count",),
        strike=_join,
        starts=True,
        draw=_draw_join,
    ),
    "leave": FaultKind(
        help="A peer leaves in good order, as by SIGTERM.",
        needs=("peer",),
        strike=_leave,
        draw=_of_one("leave"),
    ),
    "finish": FaultKind(
        help="A peer takes no more optimizer steps, and goes on mixing until all have finished.",
        needs=("peer",),
        strike=_finish,
        draw=_of_one("finish"),
        live=False,
    ),
    "diverge": FaultKind(
        help="A peer's parameters stop being finite.",
        needs=("peer",),
        strike=_diverge,
        draw=_of_one("diverge"),
        live=False,
    ),
    "nan": _attack("what they send are no numbers.", forge=forgeries.nan, may=("for_s",)),
    "far": _attack(
        "what they send is strength (1,000) away from their models.", 1000.0, forgeries.far
    ),
    "inflate": _attack("what they send is said to weigh strength (1,000) times as much.", 1000.0),
    "flood": _attack("they take strength (20) turns to push for each step.", 20.0),
    "sign-flip": _attack(
        "they send their models times minus strength (1).", forge=forgeries.sign_flip
    ),
    "ipm": _attack(
        "they send the mean of honest models times minus strength (0.1).", 0.1, forgeries.ipm
    ),
    "alie": _attack(
        "they send the mean of honest models less strength standard deviations (as many as the "
        "paper's formula says).",
        None,
        forgeries.alie,
    ),
    "dissensus": _attack(
        "they undo strength (1.5) times what honest neighbors pull at whom they send to.",
        1.5,
        forgeries.dissensus,
    ),
    "drift": _attack(
        "they send the receiver's model, moved strength (1) times as far as its neighbors are, "
        "always to the same side.",
        forge=forgeries.drift,
    ),
    "label-flip": _attack("they train on labels that are turned around, all the time.", may=()),
}

KINDS: Mapping[str, FaultKind] = MappingProxyType(_KINDS)
"""All kinds of fault."""
