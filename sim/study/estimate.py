"""How long cells take, before they have run: by those that have, or by a short trial."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from time import perf_counter

from ...gossip.errors import RumorError
from ...topology import TopologyError
from ..cores import alone
from ..simulation import Simulation
from .cell_key import config_of
from .check import GoodCell

__all__ = ["estimate_s", "work_of"]

# Measurements of a run, unless told otherwise: so many steps lie between two.
_MEASUREMENTS = 40

# A trial takes so many times that many steps, and as it begins once that many.
_TRIAL = 3

# Trials of other rules would take longer than they are worth.
_TRIALS_MAX = 6

Known = Mapping[str, float]
"""Seconds that finished cells took, by their names."""


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
    for what, these in list(_by_kind(cells).items())[:_TRIALS_MAX]:
        if what not in rates and (tried := _try(these)) is not None:
            rates[what] = tried
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


def _by_kind(cells: Iterable[GoodCell]) -> dict[tuple[str, str], list[GoodCell]]:
    found: dict[tuple[str, str], list[GoodCell]] = {}
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


def _try(cells: Sequence[GoodCell]) -> float | None:
    """Run a little of the smallest cell; seconds for each step of each worker."""
    cell = min(cells, key=work_of)
    every = max(1, math.ceil(cell.steps / _MEASUREMENTS))
    short_s, long_s = (_run_s(cell, every * times, every) for times in (1, 1 + _TRIAL))
    if short_s is None or long_s is None:
        return None
    per_step_s = max(0.0, long_s - short_s) / (_TRIAL * every)
    # What a run costs at its start is spread over its steps.
    whole_s = short_s + per_step_s * max(0.0, cell.steps - every)
    return whole_s / work_of(cell)


def _run_s(cell: GoodCell, steps: int, every: int) -> float | None:
    try:
        config = config_of(cell.settings)
        short = replace(
            config, steps=steps, total_steps=None, time_s=None, eval_every=every, threads=1
        )
        with alone():
            simulation = Simulation(short)
            start_s = perf_counter()
            simulation.prepare()
            simulation.run((), start_s, None)
        return perf_counter() - start_s
    except (RumorError, TopologyError, OSError):
        return None
