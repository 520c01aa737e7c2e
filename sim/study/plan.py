"""What is to be done for a study, before it is: cells finished and to do, time and memory."""

import math
from dataclasses import dataclass
from pathlib import Path

from ...gossip.errors import ConfigError
from ..cores import usable_cores
from ..memory import free_gib
from .backends import Backend, read_backend
from .check import BadCell, BadCells, GoodCell, check_cells
from .estimate import estimate_s, work_of
from .store import Store
from .study import Study

__all__ = ["StudyPlan", "plan_study"]

# Processes load torch and the data before they compute.
_START_S = 5.0

# A name like lr, p or dim has no plural.
_SHORT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What is to be done for a study."""

    study: Study

    cells: tuple[GoodCell, ...]
    """All that can run, in the order of `Study.cells`."""

    to_do: tuple[GoodCell, ...]
    """Those of them that are not finished, the longest first: so no core is idle for long."""

    bad: tuple[BadCell, ...]
    """Cells that cannot run, and why."""

    backend: Backend
    """Where they are computed."""

    jobs: int | None
    """Processes; None for as many as a cluster has cores."""

    seconds: tuple[float, ...] | None
    """What each of `to_do` takes on one core, an estimate; None where there is none."""

    memory_gib: float
    """What a process takes at most, an estimate."""

    torn: tuple[Path, ...]
    """Files in the store that are no whole cells; these cells are computed again."""

    others: int
    """Finished cells in the store of other arguments, files or code."""

    @property
    def shape(self) -> str:
        """How the number of cells comes about, in words."""
        return _shape(self.study, len(self.cells) + len(self.bad))

    @property
    def finished(self) -> int:
        """How many cells were finished before."""
        keys = {cell.key for cell in self.to_do}
        return sum(cell.key not in keys for cell in self.cells)

    @property
    def wall_s(self) -> float | None:
        """How long it takes from here, an estimate, seconds; None where that is a guess."""
        if self.seconds is None or self.jobs is None:
            return None
        start_s = _START_S if self.jobs > 1 and self.seconds else 0.0
        return start_s + max([sum(self.seconds) / self.jobs, *self.seconds], default=0.0)

    def require_runnable(self) -> None:
        """See that every cell can run.

        Raises:
            BadCells: Some cannot; all are listed.
        """
        if self.bad:
            raise BadCells(self.bad, list(self.study.cells()))


def plan_study(
    study: Study,
    folder: Path,
    *,
    backend: str = "loky",
    jobs: int | None = None,
    estimates: bool = True,
) -> StudyPlan:
    """Look a study through, and see what is finished of it. Nothing is written.

    Args:
        study: What is asked for.
        folder: Where its finished cells are, if there are any.
        backend: Where cells are computed: ``loky``, ``dask:tcp://HOST:PORT``, ``ray`` or
            ``ray:ADDRESS``.
        jobs: Processes; as many as cores and memory allow unless given.
        estimates: Whether to find out how long it takes; a trial may take some seconds.

    Raises:
        ConfigError: The study has no cells, or the backend is not to be had.
    """
    where = read_backend(backend)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}: it must be at least 1")
    cells = list(study.cells())
    if not cells:
        raise ConfigError(f"study {study.name} has no cells: its [[skip]] leaves out all of them")
    good, bad = check_cells(cells)
    store = Store(folder)
    took_s = {c.key: r["wall_s"] for c in good if (r := store.get(c.key)) is not None}
    # Two points may come to the same arguments: that is computed once.
    to_do = list({cell.key: cell for cell in good if cell.key not in took_s}.values())
    finished = [cell for cell in good if cell.key in took_s]
    seconds = estimate_s(to_do, finished, took_s) if estimates and not bad and to_do else None
    work = [work_of(cell) for cell in to_do] if seconds is None else seconds
    order = sorted(range(len(to_do)), key=lambda index: -work[index])
    memory_gib = max((cell.memory_gib for cell in to_do), default=0.0)
    return StudyPlan(
        study=study,
        cells=tuple(good),
        to_do=tuple(to_do[index] for index in order),
        bad=tuple(bad),
        backend=where,
        jobs=jobs or (_jobs(len(to_do), memory_gib) if where.is_local else None),
        seconds=None if seconds is None else tuple(seconds[index] for index in order),
        memory_gib=memory_gib,
        torn=tuple(store.torn),
        others=store.others([cell.key for cell in good]),
    )


def _jobs(cells: int, memory_gib: float) -> int:
    """Processes side by side: one for each core, as far as memory suffices."""
    fit = math.floor(free_gib() / memory_gib) if memory_gib else cells
    return max(1, min(usable_cores(), fit, cells))


def _shape(study: Study, cells: int) -> str:
    """How many points and seeds there are, and how many cells were left out.

    >>> _plural("topology", 28), _plural("workers", 2), _plural("rule", 1)
    ('28 topologies', '2 workers', '1 rule')
    """
    axes = [(axis.name, len(axis.points)) for axis in study.axes] + [("seed", len(study.seeds))]
    whole = math.prod(count for _, count in axes)
    left_out = f", {whole - cells} left out" if cells < whole else ""
    return " x ".join(_plural(name, count) for name, count in axes) + left_out


def _plural(name: str, count: int) -> str:
    if count == 1 or name.endswith(("s", "data")) or len(name) <= _SHORT:
        return f"{count} {name}"
    return f"{count} {name.removesuffix('y')}ies" if name.endswith("y") else f"{count} {name}s"
