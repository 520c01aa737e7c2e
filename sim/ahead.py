"""A schedule that is drawn up in a process of its own, while this one computes.

Deciding does not wait for values, so the two need not take turns. What crosses the pipe is the
program of each window in columns of numbers, and the readings.
"""

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gossip import TrainingError
from .program import Cut, Freeing, Level, Mixing, Operation, Snapping
from .schedule import Window

__all__ = ["ahead", "can_run_ahead"]

_SNAP, _MIX, _FREE, _OTHER = range(4)
_KINDS = {Snapping: _SNAP, Mixing: _MIX, Freeing: _FREE}

Columns = tuple[NDArray[Any], ...]
Packed = tuple[Columns, list[Cut], list[Operation]]


def can_run_ahead() -> bool:
    """Whether this platform can start a process that shares what was prepared."""
    # A worker of a multiprocessing.Pool may have no children.
    is_daemon = multiprocessing.current_process().daemon
    return "fork" in multiprocessing.get_all_start_methods() and not is_daemon


def ahead(windows: Callable[[], Iterator[Window]]) -> Iterator[Window]:
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
            case Mixing():
                worker, slot, fraction = operation
            case Snapping():
                worker, slot, cut, id = operation
                number = seen.setdefault(cut, len(seen))
            case Freeing():
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
            operations.append(Mixing(workers[at], slots[at], fractions[at]))
        elif kind == _SNAP:
            operations.append(Snapping(workers[at], slots[at], seen[cuts[at]], ids[at]))
        elif kind == _FREE:
            operations.append(Freeing(slots[at]))
        else:
            operations.append(next(rest))
    return level
