"""A study looked through before anything runs: which cells cannot, and what the others take."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...gossip.errors import ConfigError, RumorError
from ...topology import TopologyError
from ...train.task import Task
from ..config import SimulationConfig
from ..cores import alone
from ..simulation import Simulation, find_task
from ..vectors import VectorTask
from .cell_key import cell_key, config_of, settings_as_json
from .study import Cell

__all__ = ["BadCell", "BadCells", "GoodCell", "check_cells"]

# What a process takes that has loaded torch and has computed nothing yet, as measured.
_PROCESS_GIB = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodCell:
    """A cell that can run, as far as can be told without running it."""

    cell: Cell
    key: str
    """Its name in the store."""

    settings: dict[str, Any]
    """Every argument, as JSON has it."""

    task: str
    """Name of its task, and"""

    rule: str
    """of its rule."""

    steps: float
    """Optimizer steps of a worker, roughly."""

    memory_gib: float
    """What a process takes that computes it, an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCell:
    """A cell that cannot run."""

    cell: Cell
    why: str


class BadCells(ConfigError):
    """Some cells of a study cannot run; nothing was started.

    Args:
        bad: These.
        cells: All cells of the study.
    """

    def __init__(self, bad: Sequence[BadCell], cells: Sequence[Cell]) -> None:
        super().__init__("\n".join([_headline(len(bad), len(cells)), *_reasons(bad, cells)]))
        self.bad = tuple(bad)


def check_cells(cells: Iterable[Cell]) -> tuple[list[GoodCell], list[BadCell]]:
    """See which cells can run, without training anything.

    Graphs are built, data is split and files are read; rules that need everybody take two steps,
    with the first seed of a group alone.

    Returns:
        Those that can, and those that cannot, both in order.
    """
    good: list[GoodCell] = []
    bad: list[BadCell] = []
    tasks = cache(lambda task, seed: find_task(SimulationConfig(task=task, seed=seed)))
    rehearsed: set[tuple[str, ...]] = set()
    for cell in cells:
        try:
            with alone():
                good.append(_check(cell, tasks, rehearse=cell.group not in rehearsed))
        except (RumorError, TopologyError, OSError) as error:
            bad.append(BadCell(cell=cell, why=str(error) or type(error).__name__))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            why = f"a setting is of the wrong kind: {type(error).__name__}: {error}"
            bad.append(BadCell(cell=cell, why=why))
        rehearsed.add(cell.group)
    return good, bad


def _check(cell: Cell, tasks: Any, *, rehearse: bool) -> GoodCell:
    config = config_of(cell.settings)
    settings = settings_as_json(config)
    key = cell_key(settings)
    task: Task | VectorTask = tasks(config.task, config.seed)
    memory_gib = Simulation(config, task).check(rehearse=rehearse)
    return GoodCell(
        cell=cell,
        key=key,
        settings=settings,
        task=config.task_name,
        rule=config.rule,
        steps=_steps(config, task.steps),
        memory_gib=memory_gib + _PROCESS_GIB,
    )


def _steps(config: SimulationConfig, usual: int) -> float:
    ends = [
        config.steps,
        None if config.total_steps is None else config.total_steps / config.workers,
        None if config.time_s is None else config.time_s / config.step_s,
    ]
    return float(min((end for end in ends if end is not None), default=usual))


def _headline(bad: int, cells: int) -> str:
    some = "the study's only cell" if bad == cells == 1 else f"{bad:,} of {cells:,} cells"
    return (
        f"{some} cannot run, and nothing was started. Change them, or leave them out by [[skip]]:"
    )


def _reasons(bad: Sequence[BadCell], cells: Sequence[Cell]) -> Iterable[str]:
    """Every reason once, and below it the cells that it holds for."""
    reasons: dict[str, list[Cell]] = {}
    for one in bad:
        reasons.setdefault(one.why, []).append(one.cell)
    for why, these in reasons.items():
        yield f"- {why}"
        yield from (f"    {line}" for line in _lines(these, cells))


def _lines(these: Sequence[Cell], cells: Sequence[Cell]) -> Iterable[str]:
    """Name some cells of a study: in one line if they are all that have certain labels."""
    places = [_place(cell) for cell in cells]
    wanted = [dict.fromkeys(labels) for labels in zip(*map(_place, these), strict=True)]
    alike = sum(all(map(dict.__contains__, wanted, place)) for place in places)
    if alike == len(these):
        names = [*these[0].labels, "seed"]
        there = [set(labels) for labels in zip(*places, strict=True)]
        said = [
            f"{name} {' or '.join(labels)}"
            for name, labels, all_labels in zip(names, wanted, there, strict=True)
            if len(labels) < len(all_labels)
        ]
        cells_told = f"{len(these):,} cell{'s' * (len(these) != 1)}"
        yield f"{', '.join(said) or 'all'} ({cells_told})"
        return
    seeds: dict[str, list[int]] = {}
    for cell in these:
        where = ", ".join(f"{axis} {label}" for axis, label in cell.labels.items())
        seeds.setdefault(where, []).append(cell.seed)
    for where, found in seeds.items():
        yield f"{where} ({'seed' if len(found) == 1 else 'seeds'} {', '.join(map(str, found))})"


def _place(cell: Cell) -> tuple[str, ...]:
    return (*cell.group, str(cell.seed))
