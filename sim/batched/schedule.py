"""A fleet's run cut into windows: what to compute, and what to note at each measurement."""

import gc
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...gossip import Audit, PeerId, TrainingError
from ..kernel.fleet import Fleet
from ..kernel.observers import FaultReport
from ..kernel.plan import FleetPlan, Stop, Traffic
from ..kernel.program import Cut, Level, Mix, Operation, Release, Snapshot
from .weights import WeightUnits, as_units

__all__ = [
    "Ending",
    "Progress",
    "Reading",
    "Window",
    "can_prefetch",
    "paused",
    "prefetched",
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
    fault_report: FaultReport | None = None
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
        steps=np.array([worker.total_steps for worker in workers]),
        weight_units=_weight_units(fleet),
        idle_s=sum(worker.idle_until(fleet.now) for worker in workers),
        traffic=replace(fleet.traffic),
        **_of_members(fleet),
    )


def _of_members(fleet: Fleet) -> dict[str, Any]:
    """Who is there, where workers come and go."""
    if fleet.faults is None:
        return {}
    present = list(fleet.present())
    groups = fleet.faults.network_faults.groups(fleet.now, present)
    return {"present": np.array(present, np.int64), "groups": groups}


def _end(fleet: Fleet) -> Ending:
    workers, now = fleet.workers, fleet.now
    weight_units = _weight_units(fleet)
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
        fault_report=None if fleet.faults is None else fleet.faults.report(),
    )


def _weight_units(fleet: Fleet) -> WeightUnits:
    return as_units(
        [
            [account.weight * worker.running for account in worker.protocol.accounts]
            for worker in fleet.workers
        ]
    )


_SNAP, _MIX, _FREE, _OTHER = range(4)
_KINDS = {Snapshot: _SNAP, Mix: _MIX, Release: _FREE}

Columns = tuple[NDArray[Any], ...]
Packed = tuple[Columns, list[Cut], list[Operation]]


def can_prefetch() -> bool:
    """Whether this platform can start a process that shares what was prepared."""
    # A worker of a multiprocessing.Pool may have no children.
    is_daemon = multiprocessing.current_process().daemon
    return "fork" in multiprocessing.get_all_start_methods() and not is_daemon


def prefetched(windows: Callable[[], Iterator[Window]]) -> Iterator[Window]:
    """Draw up windows in another process, some way ahead of whoever takes them.

    Args:
        windows: Makes them, one after another; called over there.

    Yields:
        The same windows, in order.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_draw_up, args=(windows, theirs, ours), daemon=True)
    with warnings.catch_warnings():
        # Threads of torch are asleep when this is called, and the child never uses it.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    try:
        while (packed := ours.recv()) is not None:
            if isinstance(packed, BaseException):
                raise packed
            yield _unpack(*packed)
    except EOFError:
        process.join()
        raise TrainingError(
            f"the process that decides ahead has ended with status {process.exitcode}: out of "
            "memory, perhaps; threads=1 does without it"
        ) from None
    finally:
        ours.close()
        process.join()


def _draw_up(windows: Callable[[], Iterator[Window]], pipe: Connection, other: Connection) -> None:
    """Send windows until there are no more, or nobody takes them."""
    # Ctrl-C is for the one who computes; this end hears of it by its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    other.close()
    try:
        for window in windows():
            pipe.send((replace(window, levels=[]), [_pack(level) for level in window.levels]))
        pipe.send(None)
    except BrokenPipeError:
        pass
    except Exception as error:  # whatever it is, it is raised where the run was asked for
        pipe.send(error)


def _pack(level: Level) -> Packed:
    """A level in columns; combinations, which have terms, and what is rare stay as they are."""
    kinds, workers, slots, fractions, cuts, ids = [], [], [], [], [], []
    others: list[Operation] = []
    seen: dict[Cut, int] = {}
    for operation in level.operations:
        kind = _KINDS.get(type(operation), _OTHER)
        worker = slot = number = id = 0
        fraction = 0.0
        match operation:
            case Mix():
                worker, slot, fraction = operation
            case Snapshot():
                worker, slot, cut, id = operation
                number = seen.setdefault(cut, len(seen))
            case Release():
                slot = operation.slot
            case _:
                others.append(operation)
        kinds.append(kind)
        workers.append(worker)
        slots.append(slot)
        fractions.append(fraction)
        cuts.append(number)
        ids.append(id)
    columns = (
        np.array([level.workers, level.steps, level.orders], np.int64),
        np.array(kinds, np.int8),
        np.array(workers, np.int32),
        np.array(slots, np.int64),
        np.array(fractions, np.float64),
        np.array(cuts, np.int32),
        np.array(ids, np.int64),
    )
    return columns, list(seen), others


def _unpack(window: Window, levels: list[Packed]) -> Window:
    return replace(window, levels=[_level(*packed) for packed in levels])


def _level(columns: Columns, seen: list[Cut], others: list[Operation]) -> Level:
    level = Level()
    steps, kinds, workers, slots, fractions, cuts, ids = (column.tolist() for column in columns)
    level.workers, level.steps, level.orders = steps
    rest = iter(others)
    operations = level.operations
    for at, kind in enumerate(kinds):
        if kind == _MIX:
            operations.append(Mix(workers[at], slots[at], fractions[at]))
        elif kind == _SNAP:
            operations.append(Snapshot(workers[at], slots[at], seen[cuts[at]], ids[at]))
        elif kind == _FREE:
            operations.append(Release(slots[at]))
        else:
            operations.append(next(rest))
    return level


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
