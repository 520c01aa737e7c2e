"""A fleet's run cut into windows: what to compute, and what to note at each measurement."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gossip import Audit, PeerId
from .aftermath import Aftermath, aftermath
from .collector import paused, settled
from .fleet import Fleet
from .plan import FleetPlan, Stop, Traffic
from .program import Level
from .weights import WeightUnits, as_units

__all__ = ["Ending", "Reading", "Window", "schedule"]


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
    aftermath: Aftermath | None = None
    """What became of faults, where there were any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a run."""

    levels: list[Level]
    steps: int
    """Optimizer steps that all workers have taken by its end."""
    time_s: float
    """Virtual time at its end."""
    reading: Reading | None = None
    """Where a measurement is due after it."""
    ending: Ending | None = None
    """With the last one."""


def schedule(
    plan: FleetPlan,
    stops: Sequence[Stop],
    *,
    every_s: float,
    time_s: float | None,
    window: int,
    shift_s: float = 0.0,
    marks_max: int | None = None,
) -> Iterator[Window]:
    """Run a fleet from its start to its end.

    Args:
        plan: What it is made of.
        stops: Which workers stop when, because their values are not finite.
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
        fleet = Fleet(plan, stops)
    mark = 1
    with settled():
        yield _window(fleet, reading=_read(fleet))
        while not fleet.over and (time_s is None or fleet.now < time_s):
            until_s = mark * every_s + shift_s
            if time_s is not None:
                until_s = min(until_s, time_s)
            with paused():
                came = fleet.run(until_s, window)
            mark += came
            if marks_max is not None and mark > marks_max:
                every_s, mark = 2 * every_s, mark // 2 + 1
            yield _window(fleet, reading=_read(fleet) if came else None)
    yield _window(fleet, ending=_end(fleet))


def _window(
    fleet: Fleet, *, reading: Reading | None = None, ending: Ending | None = None
) -> Window:
    program = fleet.program
    return Window(
        levels=program.take(),
        steps=program.steps,
        time_s=fleet.now,
        reading=reading,
        ending=ending,
    )


def _read(fleet: Fleet) -> Reading:
    workers = fleet.workers
    return Reading(
        time_s=fleet.now,
        steps=np.array([worker.steps_of_all_lives for worker in workers]),
        weight_units=_weight_units(fleet),
        idle_s=sum(worker.idle_until(fleet.now) for worker in workers),
        traffic=replace(fleet.traffic),
        **_of_members(fleet),
    )


def _of_members(fleet: Fleet) -> dict[str, Any]:
    """Who is there, where workers come and go."""
    if fleet.troubles is None:
        return {}
    present = list(fleet.present())
    groups = fleet.troubles.weather.groups(fleet.now, present)
    return {"present": np.array(present, np.int64), "groups": groups}


def _end(fleet: Fleet) -> Ending:
    workers, now = fleet.workers, fleet.now
    weight_units = _weight_units(fleet)
    return Ending(
        workers={
            "steps": np.array([worker.steps_of_all_lives for worker in workers]),
            "weight_units": weight_units.sum(axis=1),
            "idle_s": np.array([worker.idle_until(now) for worker in workers]),
            "pushes": np.array([worker.pushes for worker in workers]),
            "mixed": np.array([worker.mixed for worker in workers]),
        },
        weight_units=weight_units,
        audit=fleet.audit(),
        halts=fleet.halts,
        aftermath=None if fleet.troubles is None else aftermath(fleet.troubles, fleet.traffic),
    )


def _weight_units(fleet: Fleet) -> WeightUnits:
    return as_units(
        [
            [account.weight * worker.running for account in worker.protocol.accounts]
            for worker in fleet.workers
        ]
    )
