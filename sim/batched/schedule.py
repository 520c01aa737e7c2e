"""Cuts a fleet's run into windows: what to compute, and what to record at each measurement."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...gossip import Audit
from ...gossip.types import PeerId
from ...gossip.weight import UNIT, in_units
from ..kernel.fast_path.fleet import FastFleet, FastPathUnsupported
from ..kernel.faults.report import FaultReport, Times
from ..kernel.fleet import Fleet
from ..kernel.gc import paused
from ..kernel.plan import FleetPlan, Traffic
from ..kernel.program import Level

__all__ = [
    *("Cost", "Deciding", "Ending", "Progress", "Reading", "Scheduler", "WeightUnits", "Window"),
    *("as_units", "in_proportion"),
]

WeightUnits = NDArray[np.int64] | NDArray[np.float64]
"""In units: int64 if all are whole, as they are unless nearly all weight was lost, and their sums
fit; else float64, each correctly rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """State of a fleet at one moment that is known without a value."""

    time_s: float
    steps: NDArray[np.int64]  # optimizer steps of each worker
    weight_units: WeightUnits  # of each worker for each shard, without escrow
    idle_s: float  # time that all workers together have waited, seconds
    traffic: Traffic
    present: NDArray[np.int64] | None = None  # workers in the swarm, ascending; None for all
    groups: tuple[tuple[int, ...], ...] = ()  # that can reach each other, while a partition lasts
    exchanges: NDArray[np.int64]  # pushes of each worker, plus shares that it has mixed in


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Final state of a fleet."""

    workers: dict[str, NDArray[Any]]
    weight_units: WeightUnits  # of each worker for each shard
    audit: Audit
    decided: str  # name of the scheduler
    halts: dict[PeerId, str] = field(default_factory=dict)  # why workers' rules could not continue
    fault_report: FaultReport | None = None
    times: Times | None = None  # None on the fast path, where workers never wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a run."""

    levels: Sequence[Level]
    steps: int  # optimizer steps that all workers have taken by its end
    time_s: float  # virtual time at its end, seconds
    reading: Reading | None = None  # state of the fleet, if a measurement is due after it
    ending: Ending | None = None


Deciding = Fleet | FastFleet
"""Produces the operations of a fleet, window by window."""


def _read(fleet: Deciding) -> Reading:
    columns, members = _columns(fleet), dict[str, Any]()
    # Members change only where workers come, leave or are Byzantine.
    if isinstance(fleet, Fleet) and not (fleet.faults is None and fleet.attacks is None):
        present = list(fleet.present())
        members["present"] = np.array(present, np.int64)
        if fleet.faults is not None:
            members["groups"] = fleet.faults.network_faults.groups(fleet.now, present)
    return Reading(
        time_s=fleet.now,
        steps=columns["steps"],
        weight_units=columns["weight_units"],
        idle_s=sum(columns["idle_s"].tolist()),
        traffic=replace(fleet.traffic),
        exchanges=columns["pushes"] + columns["mixed"],
        **members,
    )


def _end(fleet: Deciding, decided: str) -> Ending:
    columns = _columns(fleet)
    own: dict[str, Any] = {}
    if isinstance(fleet, Fleet):
        own = {"halts": fleet.halts, "times": fleet.times()}
        if fleet.faults is not None:
            own["fault_report"] = fleet.faults.report()
    return Ending(
        workers=columns | {"weight_units": columns["weight_units"].sum(axis=1)},
        weight_units=columns["weight_units"],
        audit=fleet.audit(),
        decided=decided,
        **own,
    )


def _columns(fleet: Deciding) -> dict[str, NDArray[Any]]:
    # Weights have axes (worker, shard); Byzantine workers have none.
    if isinstance(fleet, FastFleet):
        found = {name: fleet.column(name) for name in ("steps", "pushes", "mixed")}
        weights = fleet.column("weight")[:, None]
        return found | {"weight_units": weights, "idle_s": np.zeros(len(weights))}
    workers = fleet.workers
    liars = frozenset() if fleet.attacks is None else fleet.attacks.liars
    each = [(w.protocol.accounts, w.running and w.index not in liars) for w in workers]
    return {
        "steps": np.array([worker.total_steps for worker in workers]),
        "weight_units": as_units([[a.weight * counts for a in shards] for shards, counts in each]),
        "idle_s": np.array([worker.idle_until(fleet.now) for worker in workers]),
        "pushes": np.array([worker.pushes for worker in workers]),
        "mixed": np.array([worker.mixed for worker in workers]),
    }


class Scheduler:
    """Schedules a fleet's run from its start to its end, window by window.

    Args:
        decide: Makes the fleet, when the first window is asked for.
        every_s: Virtual seconds between two measurements.
        time_s: When to end; None for when all have taken their steps.
        window: Maximum number of optimizer steps in a window.
        shift_s: How much each measurement is later than a multiple of *every_s*, so that it does
            not fall on the very moment at which steps end.
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
        # Arguments of each run of the fast path so far, so that protocols can catch up.
        self._ran: list[tuple[float, int]] = []
        self._has_ended = False
        self._coming: Future[Window | None] | None = None

    def next_window(self) -> Window | None:
        """Schedule the next window, with measurements at the start, at the end and in between."""
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
                    # Within a round some have taken the next step: curves would show teeth.
                    fleet.settle(self._end_s)
                passed = math.floor((fleet.now - self._shift_s) / self._every_s)
                self._mark = max(self._mark, passed)
        self._fleet = fleet
        self._mark += came
        if self._marks_max is not None and self._mark > self._marks_max:
            self._every_s, self._mark = 2 * self._every_s, self._mark // 2 + 1
        return self._take(fleet, reading=_read(fleet) if came else None)

    @property
    def is_ahead(self) -> bool:
        """True while the next window is being scheduled."""
        return self._coming is not None and not self._coming.done()

    def windows(self, *, ahead: bool = False) -> Iterator[Window]:
        """Schedule all windows: *ahead* in a thread, each while the one before it is computed."""
        # A thread pays if machine code decides, which does not hold the GIL.
        if not ahead:
            yield from iter(self.next_window, None)
            return
        with ThreadPoolExecutor(1, "rumor-deciding") as thread:
            self._coming = thread.submit(self.next_window)
            while (window := self._coming.result()) is not None:
                self._coming = thread.submit(self.next_window)
                yield window

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
        """Bring protocols to the start of the current window, by deciding everything anew."""
        fleet, self._decided = Fleet(plan), "the fast path, then the protocols"
        fleet.program.take()
        for ran in self._ran:
            fleet.run(*ran)
            fleet.program.take()
        return fleet

    def _take(self, fleet: Deciding, **more: Any) -> Window:
        decided = fleet if isinstance(fleet, FastFleet) else fleet.program
        return Window(levels=decided.take(), steps=decided.steps, time_s=fleet.now, **more)


_SUM_MAX = 2**63


def as_units(weights: Sequence[Sequence[int]]) -> WeightUnits:
    """Convert weights, axes ``(worker, shard)``, to units."""
    told = [[in_units(weight) for weight in row] for row in weights]
    whole = [[units for units in row if isinstance(units, int)] for row in told]
    if whole == told and all(sum(row) < _SUM_MAX for row in whole):
        return np.array(whole)
    return np.array([[weight / UNIT for weight in row] for row in weights])


def in_proportion(units: WeightUnits) -> WeightUnits:
    """Return weights that averages can be computed with."""
    if units.dtype == np.int64:
        return units
    # A power of two changes no mean; a product with a number that is nearly 0 would lose bits.
    scaled: NDArray[np.float64] = np.ldexp(units, -int(np.frexp(units.max())[1]))
    return scaled


@dataclass(frozen=True, slots=True)
class Progress:
    """Current progress of a simulation."""

    steps: int
    """Optimizer steps taken by all workers together."""
    steps_total: int | None
    """Optimizer steps at the end; None if virtual time ends the run."""
    time_s: float
    """Virtual time, seconds."""
    wall_s: float
    """Wall-clock time since the start, seconds."""
    loss: float | None
    """Loss of the merged model at the last measurement; None before it, or without one."""
    accuracy: float | None
    """Accuracy of the merged model, as for `loss`."""
    compiles: bool = False
    """True if machine code has to be compiled first, which takes some ten seconds, once."""
    cost: "Cost | None" = None
    """Estimated time and memory, in the last report before the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Time and memory of a run, estimated by a trial of some steps."""

    steps: int
    """Optimizer steps of all workers together, about."""
    steps_per_s: float
    """Rate of all workers together, without measurements."""
    measuring_s: float
    """Wall-clock time of all measurements, seconds."""
    memory_gib: float
    engine: str
    engine_why: str

    @property
    def wall_s(self) -> float:
        """Wall-clock time of the run, seconds."""
        return self.steps / self.steps_per_s + self.measuring_s
