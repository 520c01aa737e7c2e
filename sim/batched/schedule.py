"""A fleet's run cut into windows: what to compute, and what to note at each measurement."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...gossip import Audit
from ...gossip.types import PeerId
from ..kernel.fast_path.fleet import FastFleet, FastPathUnsupported
from ..kernel.faults.report import FaultReport, Times
from ..kernel.fleet import Fleet
from ..kernel.gc import paused
from ..kernel.plan import FleetPlan, Traffic
from ..kernel.program import Level
from .weights import WeightUnits, as_units

__all__ = [
    "Deciding",
    "Ending",
    "Progress",
    "Reading",
    "Scheduler",
    "Window",
]


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
    """Final state of a fleet."""

    workers: dict[str, NDArray[Any]]
    weight_units: WeightUnits
    """What each worker holds of each shard: axes ``(worker, shard)``."""
    audit: Audit
    """Where all weight is."""
    halts: dict[PeerId, str]
    """Workers whose rule could not go on, and why."""
    decided: str
    """Name of the scheduler."""
    fault_report: FaultReport | None = None
    """What became of faults, where there were any."""
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


Deciding = Fleet | FastFleet
"""Produces the operations of a fleet, window by window."""


def _read(fleet: Deciding) -> Reading:
    """Say what can be said of a fleet now."""
    if isinstance(fleet, FastFleet):
        return Reading(
            time_s=fleet.now,
            steps=fleet.column("steps"),
            weight_units=fleet.column("weight")[:, None],
            idle_s=0.0,
            traffic=fleet.traffic,
            exchanges=fleet.column("pushes") + fleet.column("mixed"),
        )
    workers = fleet.workers
    return Reading(
        time_s=fleet.now,
        steps=np.array([worker.total_steps for worker in workers]),
        weight_units=_weight_units(fleet),
        idle_s=sum(worker.idle_until(fleet.now) for worker in workers),
        traffic=replace(fleet.traffic),
        exchanges=np.array([worker.pushes + worker.mixed for worker in workers]),
        **_members(fleet),
    )


def _members(fleet: Fleet) -> dict[str, Any]:
    """Who is there, where workers come and go or lie."""
    if fleet.faults is None and fleet.attacks is None:
        return {}
    present = list(fleet.present())
    found: dict[str, Any] = {"present": np.array(present, np.int64)}
    if fleet.faults is not None:
        found["groups"] = fleet.faults.network_faults.groups(fleet.now, present)
    return found


def _weight_units(fleet: Fleet) -> WeightUnits:
    """What is held by those whose models count: who lies weighs nothing."""
    liars = frozenset() if fleet.attacks is None else fleet.attacks.liars
    each = [(w.protocol.accounts, w.running and w.index not in liars) for w in fleet.workers]
    return as_units([[a.weight * counted for a in shards] for shards, counted in each])


def _end(fleet: Deciding, decided: str) -> Ending:
    """The final state of a fleet."""
    if isinstance(fleet, FastFleet):
        columns = {name: fleet.column(name) for name in ("steps", "weight", "pushes", "mixed")}
        weight_units = columns.pop("weight")
        own = {"weight_units": weight_units, "idle_s": np.zeros(len(weight_units))}
        return Ending(
            workers=columns | own,
            weight_units=weight_units[:, None],
            audit=fleet.audit(),
            halts={},
            decided=decided,
        )
    held, workers, faults = _weight_units(fleet), fleet.workers, fleet.faults
    return Ending(
        workers={
            "steps": np.array([worker.total_steps for worker in workers]),
            "weight_units": held.sum(axis=1),
            "idle_s": np.array([worker.idle_until(fleet.now) for worker in workers]),
            "pushes": np.array([worker.pushes for worker in workers]),
            "mixed": np.array([worker.mixed for worker in workers]),
        },
        weight_units=held,
        audit=fleet.audit(),
        halts=fleet.halts,
        decided=decided,
        fault_report=None if faults is None else faults.report(),
        times=fleet.times(),
    )


class Scheduler:
    """Schedules a fleet's run from its start to its end, window by window.

    Under a rule that waits, a measurement is put off until nobody does, when models are as the last
    round left them. Within a round some have taken the next step: curves would show teeth.

    Args:
        decide: Makes who decides, when the first window is asked for.
        every_s: Virtual seconds between two measurements.
        time_s: When to end; None for when all have taken their steps.
        window: Optimizer steps of a window, at most.
        shift_s: By how much each measurement is later than a multiple of *every_s*, so that it
            does not fall on the very moment at which steps end.
        marks_max: Number of measurements after which they become half as frequent; None for never.
    """

    def __init__(
        self,
        decide: Callable[[], Deciding],
        *,
        every_s: float,
        time_s: float | None,
        window: int,
        shift_s: float = 0.0,
        marks_max: int | None = None,
    ) -> None:
        self._decide = decide
        self._every_s = every_s
        self._end_s = math.inf if time_s is None else time_s
        self._window = window
        self._shift_s = shift_s
        self._marks_max = marks_max
        self._mark = 1
        self._fleet: Deciding | None = None
        self._decided = "the protocols"
        self._ran: list[tuple[float, int]] = []
        """What has led to each window of the fast path, so that protocols can come as far."""
        self._has_ended = False

    def next_window(self) -> Window | None:
        """Schedule the next window: with a measurement at the start, at the end, and regularly in
        between.
        """
        if self._fleet is None:
            with paused():
                self._fleet = self._decide()
            if isinstance(self._fleet, FastFleet):
                self._decided = "the fast path"
            return self._take(self._fleet, reading=_read(self._fleet))
        if self._has_ended:
            return None
        if self._fleet.over or self._fleet.now >= self._end_s:
            self._has_ended = True
            return self._take(self._fleet, ending=_end(self._fleet, self._decided))
        until_s = min(self._mark * self._every_s + self._shift_s, self._end_s)
        with paused():
            came, fleet = self._run(self._fleet, until_s)
            if came and not fleet.over:
                if isinstance(fleet, Fleet):
                    fleet.settle(self._end_s)
                passed = math.floor((fleet.now - self._shift_s) / self._every_s)
                self._mark = max(self._mark, passed)
        self._fleet = fleet
        self._mark += came
        if self._marks_max is not None and self._mark > self._marks_max:
            self._every_s, self._mark = 2 * self._every_s, self._mark // 2 + 1
        return self._take(fleet, reading=_read(fleet) if came else None)

    def _run(self, fleet: Deciding, until_s: float) -> tuple[bool, Deciding]:
        if isinstance(fleet, FastFleet):
            try:
                came = fleet.run(until_s, self._window)
                self._ran.append((until_s, self._window))
                return came, fleet
            except FastPathUnsupported:
                fleet = self._taken_over(fleet.plan)
        return fleet.run(until_s, self._window), fleet

    def _taken_over(self, plan: FleetPlan) -> Fleet:
        """Bring protocols to where the window at hand began, by deciding everything anew."""
        fleet, self._decided = Fleet(plan), "the fast path, then the protocols"
        fleet.program.take()
        for ran in self._ran:
            fleet.run(*ran)
            fleet.program.take()
        return fleet

    def _take(self, fleet: Deciding, **more: Any) -> Window:
        decided = fleet if isinstance(fleet, FastFleet) else fleet.program
        return Window(levels=decided.take(), steps=decided.steps, time_s=fleet.now, **more)


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
    compiles: bool = False
    """Whether machine code has to be compiled first, which takes some ten seconds, once."""
