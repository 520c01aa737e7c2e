"""Checks a study before it runs: invalid trials, finished trials, and memory."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ....gossip.errors import ConfigError, RumorError
from ....train.tasks.task import Task
from ...batched.cores import usable_cores
from ...batched.steppers.engines import alone
from ...batched.values import find_task, free_gib
from ...batched.vector_tasks import VectorTask
from ...config import SimulationConfig
from ...simulate import Simulation
from ..study import Study, Trial
from .backends import Backend, read_backend
from .store import Store
from .trial import config_of, settings_as_json, trial_key

__all__ = ["ReadyTrial", "StudyPlan", "check_trials", "plan_study"]

_LISTED_MAX = 3

# Measured memory of a process that has loaded torch and has computed nothing yet.
_PROCESS_GIB = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTrial:
    """A trial that can run, as far as that is known without running it."""

    trial: Trial
    key: str
    """Its name in the store."""
    settings: dict[str, Any]
    """Every argument, as JSON values."""
    work: float
    """Optimizer steps of all workers, roughly."""
    memory_gib: float
    """Estimated memory of a process that computes it."""


def check_trials(trials: Iterable[Trial]) -> tuple[list[ReadyTrial], dict[str, str]]:
    """Return the trials that can run, and why others cannot, by their descriptions: graphs are
    built, data is split, files are read, and nothing is trained."""
    good: list[ReadyTrial] = []
    bad: dict[str, str] = {}
    tasks = cache(lambda task, seed: find_task(SimulationConfig(task=task, seed=seed)))
    rehearsed: set[tuple[str, ...]] = set()
    for trial in trials:
        try:
            with alone():
                # Two steps of rules that need all peers, with the first seed of a group alone.
                good.append(_check(trial, tasks, rehearse=trial.group not in rehearsed))
        except (RumorError, OSError) as error:
            bad[str(trial)] = str(error) or type(error).__name__
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            bad[str(trial)] = f"a setting is of the wrong kind: {type(error).__name__}: {error}"
        rehearsed.add(trial.group)
    return good, bad


def _check(trial: Trial, tasks: Any, *, rehearse: bool) -> ReadyTrial:
    config = config_of(trial.settings)
    settings = settings_as_json(config)
    # First, since its message for a missing task helps more than that of the key.
    task: Task | VectorTask = tasks(config.task, config.seed)
    key = trial_key(settings)
    memory_gib = Simulation(config, task).check(rehearse=rehearse)
    ends = [
        config.steps,
        None if config.total_steps is None else config.total_steps / config.workers,
        None if config.time_s is None else config.time_s / config.step_s,
    ]
    steps = min((end for end in ends if end is not None), default=task.steps)
    return ReadyTrial(
        trial=trial,
        key=key,
        settings=settings,
        work=float(steps * config.workers),
        memory_gib=memory_gib + _PROCESS_GIB,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """The work that a study needs."""

    study: Study
    trials: tuple[ReadyTrial, ...]
    """All trials that can run, in the order of `Study.trials`."""
    to_do: tuple[ReadyTrial, ...]
    """Unfinished trials: seed by seed, the longest first, so that no core is idle for long."""
    bad: Mapping[str, str]
    """Why other trials cannot run, by their descriptions."""
    backend: Backend
    """The processes that compute them."""
    jobs: int | None
    """Number of processes; None for as many as a cluster has cores."""
    memory_gib: float
    """Estimated peak memory of a process."""

    @property
    def finished(self) -> int:
        """Number of trials finished before."""
        keys = {trial.key for trial in self.to_do}
        return sum(trial.key not in keys for trial in self.trials)

    def require_runnable(self) -> None:
        """Raise a ConfigError that lists every reason why a trial cannot run, if any cannot."""
        if not self.bad:
            return
        lines = [
            f"{len(self.bad):,} of {len(self.trials) + len(self.bad):,} trials cannot run, and "
            "nothing was started. Change them, or leave them out by [[skip]]:"
        ]
        for why in dict.fromkeys(self.bad.values()):
            trials = [trial for trial, reason in self.bad.items() if reason == why]
            lines += [f"- {why}", *(f"    {trial}" for trial in trials[:_LISTED_MAX])]
            if len(trials) > _LISTED_MAX:
                lines.append(f"    and {len(trials) - _LISTED_MAX} more")
        raise ConfigError("\n".join(lines))


def plan_study(
    study: Study,
    folder: Path,
    *,
    backend: str = "loky",
    jobs: int | None = None,
) -> StudyPlan:
    """Check a study, and find its finished trials; nothing is written.

    Args:
        backend: ``loky``, ``dask:tcp://HOST:PORT``, ``ray`` or ``ray:ADDRESS``.
        jobs: Number of processes; default: as many as cores and memory allow.

    Raises:
        ConfigError: The study has no trials, or the backend is not available.
    """
    where = read_backend(backend)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}: it must be at least 1")
    trials = list(study.trials())
    if not trials:
        raise ConfigError(f"study {study.name} has no trials: its [[skip]] leaves out all of them")
    good, bad = check_trials(trials)
    store = Store(folder)
    finished = {trial.key for trial in good if store.get(trial.key) is not None}
    # Two points may have the same arguments: their trial is computed once.
    to_do = list({trial.key: trial for trial in good if trial.key not in finished}.values())
    # A stopped study has finished its first seeds.
    to_do.sort(key=lambda trial: (study.seeds.index(trial.trial.seed), -trial.work))
    memory_gib = max((trial.memory_gib for trial in to_do), default=0.0)
    if jobs is None and where.is_local:
        fit = math.floor(free_gib() / memory_gib) if memory_gib else len(to_do)
        jobs = max(1, min(usable_cores(), fit, len(to_do)))
    return StudyPlan(
        study=study,
        trials=tuple(good),
        to_do=tuple(to_do),
        bad=bad,
        backend=where,
        jobs=jobs,
        memory_gib=memory_gib,
    )
