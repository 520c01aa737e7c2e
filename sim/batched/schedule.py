"""A fleet's run cut into windows: what to compute, and what to note at each measurement."""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...gossip import Audit, PeerId
from ..kernel.fast_path.compiler import Decider
from ..kernel.fast_path.fleet import FastFleet, TakeOver
from ..kernel.fast_path.levels import levels_of
from ..kernel.fleet import Fleet
from ..kernel.observers import FaultReport, Times
from ..kernel.plan import FleetPlan, Stop, Traffic
from ..kernel.program import Level
from .weights import WeightUnits, as_units

__all__ = [
    "ByFastPath",
    "ByProtocols",
    "Deciding",
    "Ending",
    "Progress",
    "Reading",
    "Window",
    "paused",
    "schedule",
    "settled",
]


@contextmanager
def paused() -> Iterator[None]:
    """Collect no cycles inside.

    A fleet makes none, and keeps some hundred objects for each worker: walking over all of them
    again and again would take most of the time at 10,000 workers.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def settled() -> Iterator[None]:
    """Exclude everything that exists by now from garbage collection, inside.

    Objects that were frozen before stay so.
    """
    mine = gc.get_freeze_count() == 0
    if mine:
        gc.freeze()
    try:
        yield
    finally:
        if mine:
            gc.unfreeze()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What can be said of a fleet at one moment without looking at a value."""

    time_s: float
    steps: NDArray[np.int64]
    """Optimizer steps of each worker."""
    weight_units: WeightUnits
    """What each worker holds of each shard, escrow not counted: axes ``(worker, shard)``."""
    idle_s: float
    """How long all workers together have waited."""
    traffic: Traffic
    present: NDArray[np.int64] | None = None
    """Workers that belong to the swarm, ascending; None for all."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Which of them can reach one another, while a partition lasts."""
    exchanges: NDArray[np.int64]
    """Pushes of each worker, and shares that it has mixed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a fleet came to."""

    workers: dict[str, NDArray[Any]]
    weight_units: WeightUnits
    """What each worker holds of each shard: axes ``(worker, shard)``."""
    audit: Audit
    """Where all weight is."""
    halts: dict[PeerId, str]
    """Workers whose rule could not go on, and why."""
    decided: str
    """What has decided."""
    fault_report: FaultReport | None = None
    """What became of faults, where there were any."""
    seen: Mapping[str, Any] | None = None
    """How evenly samples were seen, where they are dealt by who is there."""
    times: Times | None = None
    """What became of the workers' time; None where the fast path decides: nobody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a run."""

    levels: Sequence[Level]
    steps: int
    """Optimizer steps that all workers have taken by its end."""
    time_s: float
    """Virtual time at its end."""
    reading: Reading | None = None
    """Where a measurement is due after it."""
    ending: Ending | None = None
    """With the last one."""


class ByProtocols:
    """One protocol for each worker decides, as live.

    Args:
        stops: Which workers stop when, because their values are not finite.
        handed_over: Whether the fast path had begun.
    """

    def __init__(self, plan: FleetPlan, stops: Sequence[Stop], *, handed_over: str = "") -> None:
        self._fleet = Fleet(plan, stops)
        self._decided = f"{handed_over}, then the protocols" if handed_over else "the protocols"

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._fleet.now

    @property
    def over(self) -> bool:
        """Whether every worker has taken all its steps."""
        return self._fleet.over

    @property
    def steps(self) -> int:
        """Optimizer steps of all workers so far."""
        return self._fleet.program.steps

    def run(self, until_s: float, steps_max: int) -> bool:
        """Let happen what happens until then, or until so many further steps are taken.

        Returns:
            Whether that time has come, or everything is over.
        """
        return self._fleet.run(until_s, steps_max)

    def settle(self, until_s: float) -> None:
        """Go on to where nobody waits for others, but no further than that time."""
        self._fleet.settle(until_s)

    def take(self) -> Sequence[Level]:
        """Hand over what was decided since this was last called."""
        return self._fleet.program.take()

    def read(self) -> Reading:
        """Say what can be said now."""
        fleet, workers = self._fleet, self._fleet.workers
        return Reading(
            time_s=fleet.now,
            steps=np.array([worker.total_steps for worker in workers]),
            weight_units=self._weight_units(),
            idle_s=sum(worker.idle_until(fleet.now) for worker in workers),
            traffic=replace(fleet.traffic),
            exchanges=np.array([worker.pushes + worker.mixed for worker in workers]),
            **self._of_members(),
        )

    def end(self) -> Ending:
        """Say what all came to."""
        fleet, workers, now = self._fleet, self._fleet.workers, self._fleet.now
        weight_units = self._weight_units()
        faults = fleet.faults
        return Ending(
            workers={
                "steps": np.array([worker.total_steps for worker in workers]),
                "weight_units": weight_units.sum(axis=1),
                "idle_s": np.array([worker.idle_until(now) for worker in workers]),
                "pushes": np.array([worker.pushes for worker in workers]),
                "mixed": np.array([worker.mixed for worker in workers]),
            },
            weight_units=weight_units,
            audit=fleet.audit(),
            halts=fleet.halts,
            decided=self._decided,
            fault_report=None if faults is None else faults.report(),
            seen=None if fleet.dealing is None else fleet.dealing.figures(),
            times=fleet.times(),
        )

    def _of_members(self) -> dict[str, Any]:
        """Who is there, where workers come and go or lie."""
        fleet = self._fleet
        groups: tuple[tuple[int, ...], ...] = ()
        if fleet.faults is None and fleet.attacks is None:
            return {}
        present = list(fleet.present())
        if fleet.faults is not None:
            groups = fleet.faults.network_faults.groups(fleet.now, present)
        return {"present": np.array(present, np.int64), "groups": groups}

    def _weight_units(self) -> WeightUnits:
        """What is held by those whose models count: who lies weighs nothing."""
        attacks, workers = self._fleet.attacks, self._fleet.workers
        liars = frozenset() if attacks is None else attacks.liars
        each = [(w.protocol.accounts, w.running and w.index not in liars) for w in workers]
        return as_units([[a.weight * counted for a in shards] for shards, counted in each])


class ByFastPath:
    """The fast path decides while nothing else is due.

    Args:
        plan: What the fleet is made of; `why_not` finds nothing.
        decider: What runs the fast path.
    """

    def __init__(self, plan: FleetPlan, decider: Decider) -> None:
        self._plan = plan
        self._decided = f"the fast path, {decider.name}"
        self._fast = FastFleet(plan, decider)
        self._windows: list[tuple[float, int] | None] = []
        """What has led to each window, so that the protocols can come to where the last began."""

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._fast.now

    @property
    def over(self) -> bool:
        """Whether every worker has taken all its steps."""
        return self._fast.over

    @property
    def steps(self) -> int:
        """Optimizer steps of all workers so far."""
        return self._fast.steps

    def run(self, until_s: float, steps_max: int) -> bool:
        """See `ByProtocols.run`.

        Raises:
            TakeOver: Only the protocols can go on, from where this window began.
        """
        came = self._fast.run(until_s, steps_max)
        self._windows.append((until_s, steps_max))
        return came

    def settle(self, until_s: float) -> None:
        """Do nothing: nobody waits."""

    def take(self) -> Sequence[Level]:
        """Hand over what was decided since this was last called."""
        self._windows.append(None)
        return levels_of(self._fast.take())

    def read(self) -> Reading:
        """Say what can be said now."""
        fast = self._fast
        return Reading(
            time_s=fast.now,
            steps=fast.column("steps"),
            weight_units=fast.column("weight")[:, None],
            idle_s=0.0,
            traffic=fast.traffic,
            exchanges=fast.column("pushes") + fast.column("mixed"),
        )

    def end(self) -> Ending:
        """Say what all came to."""
        weight_units = self._fast.column("weight")
        return Ending(
            workers={
                "steps": self._fast.column("steps"),
                "weight_units": weight_units,
                "idle_s": np.zeros(len(weight_units)),
                "pushes": self._fast.column("pushes"),
                "mixed": self._fast.column("mixed"),
            },
            weight_units=weight_units[:, None],
            audit=self._fast.audit(),
            halts={},
            decided=self._decided,
        )

    def hand_over(self) -> ByProtocols:
        """Bring protocols to where the window at hand began, by deciding everything anew."""
        slow = ByProtocols(self._plan, (), handed_over=self._decided)
        for ran in self._windows:
            if ran is None:
                slow.take()
            else:
                slow.run(*ran)
        return slow


Deciding = ByProtocols | ByFastPath
"""Whoever decides for a fleet, window by window."""


def schedule(
    deciding: Callable[[], Deciding],
    *,
    every_s: float,
    time_s: float | None,
    window: int,
    shift_s: float = 0.0,
    marks_max: int | None = None,
) -> Iterator[Window]:
    """Run a fleet from its start to its end.

    Under a rule that waits, a measurement is put off until nobody does, when models are as the last
    round left them. Within a round some have taken the next step: curves would show teeth.

    Args:
        deciding: Makes who decides.
        every_s: Virtual seconds between two measurements.
        time_s: When to end; None for when all have taken their steps.
        window: Optimizer steps of a window, at most.
        shift_s: By how much each measurement is later than a multiple of *every_s*, so that it
            does not fall on the very moment at which steps end.
        marks_max: So many measurements after which they become half as frequent; None for never.

    Yields:
        Windows in order; a measurement at the start, at the end, and regularly in between.
    """
    with paused():
        fleet = deciding()
    mark, end_s = 1, math.inf if time_s is None else time_s
    with settled():
        yield _window(fleet, reading=fleet.read())
        while not fleet.over and fleet.now < end_s:
            until_s = min(mark * every_s + shift_s, end_s)
            with paused():
                try:
                    came = fleet.run(until_s, window)
                except TakeOver:
                    assert isinstance(fleet, ByFastPath)
                    fleet = fleet.hand_over()
                    came = fleet.run(until_s, window)
                if came and not fleet.over:
                    fleet.settle(end_s)
                    mark = max(mark, math.floor((fleet.now - shift_s) / every_s))
            mark += came
            if marks_max is not None and mark > marks_max:
                every_s, mark = 2 * every_s, mark // 2 + 1
            yield _window(fleet, reading=fleet.read() if came else None)
    yield _window(fleet, ending=fleet.end())


def _window(fleet: Deciding, **more: Any) -> Window:
    return Window(levels=fleet.take(), steps=fleet.steps, time_s=fleet.now, **more)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a simulation is now."""

    steps: int
    """Optimizer steps that all workers together have taken."""
    steps_total: int | None
    """How many it will be; None where virtual time ends the run."""
    time_s: float
    """Virtual time, seconds."""
    wall_s: float
    """Time since the start on a clock on the wall, seconds."""
    loss: float | None
    """Of the merged model at the last measurement; None before it, or where there is none."""
    accuracy: float | None
    """Likewise."""
