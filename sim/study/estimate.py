"""How long cells take, before they have run: by those that have, or by a short trial."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

from ...gossip.errors import TransportError
from ..cores import alone
from ..simulation import Simulation
from .backends import WorkerLost, one_by_one
from .cell_key import config_of
from .check import GoodCell
from .run_cell import at_work

__all__ = ["estimate_s", "try_cell", "work_of"]

# Measurements of a run, unless told otherwise: so many steps lie between two.
_MEASUREMENTS = 40

# A trial takes so many times that many steps, and as it begins once that many.
_TRIAL = 3

# Trials of other rules would take longer than they are worth.
_TRIALS_MAX = 6

Known = Mapping[str, float]
"""Seconds that finished cells took, by their names."""

# A task and a rule.
_Kind = tuple[str, str]


def estimate_s(
    cells: Sequence[GoodCell], finished: Sequence[GoodCell], took_s: Known
) -> list[float] | None:
    """Estimate how long cells take, each on one core.

    Args:
        cells: What is to run.
        finished: Cells that have run, and
        took_s: how long each took.

    Returns:
        Seconds of each cell; None where even the trials failed.
    """
    rates = {what: _rate(these, took_s) for what, these in _by_kind(finished).items()}
    alike = {
        group: mean(took_s[cell.key] for cell in these) for group, these in _by_group(finished)
    }
    kinds = list(_by_kind(cells).items())[:_TRIALS_MAX]
    rates |= _tried({what: these for what, these in kinds if what not in rates})
    if not rates:
        return None
    worst = max(rates.values())
    return [
        alike.get(cell.cell.group, work_of(cell) * rates.get((cell.task, cell.rule), worst))
        for cell in cells
    ]


def work_of(cell: GoodCell) -> float:
    """How much there is to compute, optimizer steps of all workers."""
    return cell.steps * float(cell.settings["workers"])


def _by_kind(cells: Iterable[GoodCell]) -> dict[_Kind, list[GoodCell]]:
    found: dict[_Kind, list[GoodCell]] = {}
    for cell in cells:
        found.setdefault((cell.task, cell.rule), []).append(cell)
    return found


def _by_group(cells: Iterable[GoodCell]) -> Iterable[tuple[tuple[str, ...], list[GoodCell]]]:
    found: dict[tuple[str, ...], list[GoodCell]] = {}
    for cell in cells:
        found.setdefault(cell.cell.group, []).append(cell)
    return found.items()


def _rate(cells: Sequence[GoodCell], took_s: Known) -> float:
    """Seconds for each step of each worker."""
    return sum(took_s[cell.key] for cell in cells) / sum(work_of(cell) for cell in cells)


def _tried(kinds: Mapping[_Kind, Sequence[GoodCell]]) -> dict[_Kind, float]:
    """Run a little of the smallest cell of each kind; seconds for each step of each worker."""
    rates: dict[_Kind, float] = {}
    guests: dict[_Kind, GoodCell] = {}
    for what, cells in kinds.items():
        cell = min(cells, key=work_of)
        if ":" in cell.task:
            guests[what] = cell
        elif (whole_s := _whole_s(cell.settings, cell.steps)) is not None:
            rates[what] = whole_s / work_of(cell)
    # What a user wrote may do whatever it likes to a process: not to this one.
    orders = [_order(cell) for cell in guests.values()]
    with suppress(WorkerLost, TransportError), closing(one_by_one(try_cell, orders)) as answers:
        for (what, cell), answer in zip(guests.items(), answers, strict=False):
            if (whole_s := json.loads(answer)) is not None:
                rates[what] = whole_s / work_of(cell)
    return rates


def _order(cell: GoodCell) -> str:
    return json.dumps(
        {
            "settings": cell.settings,
            "steps": cell.steps,
            "folder": str(Path.cwd()),
            "parent": os.getpid(),
        }
    )


def try_cell(order: str) -> str:
    """What a process does that tries a cell.

    Args:
        order: JSON, its ``settings`` and ``steps``, and what `at_work` is told.

    Returns:
        JSON: what the whole cell would take, seconds; null where that cannot be told.
    """
    told = json.loads(order)
    with at_work(told):
        return json.dumps(_whole_s(told["settings"], told["steps"]))


def _whole_s(settings: Mapping[str, Any], steps: float) -> float | None:
    every = max(1, math.ceil(steps / _MEASUREMENTS))
    short_s, long_s = (_run_s(settings, every * times, every) for times in (1, 1 + _TRIAL))
    if short_s is None or long_s is None:
        return None
    per_step_s = max(0.0, long_s - short_s) / (_TRIAL * every)
    # What a run costs at its start is spread over its steps.
    return short_s + per_step_s * max(0.0, steps - every)


def _run_s(settings: Mapping[str, Any], steps: int, every: int) -> float | None:
    try:
        short = replace(
            config_of(settings),
            steps=steps,
            total_steps=None,
            time_s=None,
            eval_every=every,
            threads=1,
        )
        with alone():
            simulation = Simulation(short)
            start_s = perf_counter()
            simulation.prepare()
            simulation.run((), start_s, None)
        return perf_counter() - start_s
    except Exception:  # whatever it is, the cell will tell
        return None
