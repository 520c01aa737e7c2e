"""What a study takes, before it runs: trials that cannot run, those finished, time and memory."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TypeVar

from ....gossip.errors import ConfigError
from ...batched.cores import usable_cores
from ...batched.values import free_gib
from ..study import Study
from .backends import Backend, read_backend
from .check import InvalidTrial, InvalidTrials, ReadyTrial, check_trials
from .store import Store

__all__ = ["StudyPlan", "estimate_s", "plan_study", "work_of"]

# Processes load torch and the data before they compute.
_START_S = 5.0

# A name like lr, p or dim has no plural.
_SHORT = 3

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What is to be done for a study."""

    study: Study

    trials: tuple[ReadyTrial, ...]
    """All that can run, in the order of `Study.trials`."""

    to_do: tuple[ReadyTrial, ...]
    """Those of them that are not finished, the longest first: so no core is idle for long."""

    bad: tuple[InvalidTrial, ...]
    """Trials that cannot run, and why."""

    backend: Backend
    """Where they are computed."""

    jobs: int | None
    """Processes; None for as many as a cluster has cores."""

    seconds: tuple[float, ...] | None
    """What each of `to_do` takes on one core, an estimate; None where there is none."""

    memory_gib: float
    """What a process takes at most, an estimate."""

    torn: tuple[Path, ...]
    """Files in the store that are no whole trials; these trials are computed again."""

    others: int
    """Finished trials in the store of other arguments, files or code."""

    @property
    def shape(self) -> str:
        """How many points and seeds there are, and how many trials were left out, in words."""
        study, trials = self.study, len(self.trials) + len(self.bad)
        axes = [*((axis.name, len(axis.points)) for axis in study.axes), ("seed", len(study.seeds))]
        whole = math.prod(count for _, count in axes)
        left_out = f", {whole - trials} left out" if trials < whole else ""
        return " x ".join(_plural(name, count) for name, count in axes) + left_out

    @property
    def finished(self) -> int:
        """How many trials were finished before."""
        keys = {trial.key for trial in self.to_do}
        return sum(trial.key not in keys for trial in self.trials)

    @property
    def wall_s(self) -> float | None:
        """How long it takes from here, an estimate, seconds; None where that is a guess."""
        if self.seconds is None or self.jobs is None:
            return None
        start_s = _START_S if self.jobs > 1 and self.seconds else 0.0
        return start_s + max([sum(self.seconds) / self.jobs, *self.seconds], default=0.0)

    def require_runnable(self) -> None:
        """See that every trial can run.

        Raises:
            InvalidTrials: Some cannot; all are listed.
        """
        if self.bad:
            raise InvalidTrials(self.bad, list(self.study.trials()))


def plan_study(
    study: Study,
    folder: Path,
    *,
    backend: str = "loky",
    jobs: int | None = None,
) -> StudyPlan:
    """Look a study through, and see what is finished of it. Nothing is written.

    Args:
        study: What is asked for.
        folder: Where its finished trials are, if there are any.
        backend: Where trials are computed: ``loky``, ``dask:tcp://HOST:PORT``, ``ray`` or
            ``ray:ADDRESS``.
        jobs: Processes; as many as cores and memory allow unless given.

    Raises:
        ConfigError: The study has no trials, or the backend is not to be had.
    """
    where = read_backend(backend)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}: it must be at least 1")
    trials = list(study.trials())
    if not trials:
        raise ConfigError(f"study {study.name} has no trials: its [[skip]] leaves out all of them")
    good, bad = check_trials(trials)
    store = Store(folder)
    took_s = {c.key: r["wall_s"] for c in good if (r := store.get(c.key)) is not None}
    # Two points may come to the same arguments: that is computed once.
    to_do = list({trial.key: trial for trial in good if trial.key not in took_s}.values())
    finished = [trial for trial in good if trial.key in took_s]
    seconds = estimate_s(to_do, finished, took_s) if to_do else None
    work = [work_of(trial) for trial in to_do] if seconds is None else seconds
    order = sorted(range(len(to_do)), key=lambda index: -work[index])
    memory_gib = max((trial.memory_gib for trial in to_do), default=0.0)
    return StudyPlan(
        study=study,
        trials=tuple(good),
        to_do=tuple(to_do[index] for index in order),
        bad=tuple(bad),
        backend=where,
        jobs=jobs or (_jobs(len(to_do), memory_gib) if where.is_local else None),
        seconds=None if seconds is None else tuple(seconds[index] for index in order),
        memory_gib=memory_gib,
        torn=tuple(store.torn),
        others=store.others([trial.key for trial in good]),
    )


def _jobs(trials: int, memory_gib: float) -> int:
    """Processes side by side: one for each core, as far as memory suffices."""
    fit = math.floor(free_gib() / memory_gib) if memory_gib else trials
    return max(1, min(usable_cores(), fit, trials))


def _plural(name: str, count: int) -> str:
    """So many points of an axis.

    >>> _plural("topology", 28), _plural("workers", 2), _plural("rule", 1)
    ('28 topologies', '2 workers', '1 rule')
    """
    if count == 1 or name.endswith(("s", "data")) or len(name) <= _SHORT:
        return f"{count} {name}"
    return f"{count} {name.removesuffix('y')}ies" if name.endswith("y") else f"{count} {name}s"


def estimate_s(
    trials: Sequence[ReadyTrial], finished: Sequence[ReadyTrial], took_s: Mapping[str, float]
) -> list[float] | None:
    """Estimate how long trials take, each on one core, by what finished ones took.

    Returns:
        Seconds of each trial; None where none is finished.
    """
    by_kind, by_group = _grouped(finished, _kind), _grouped(finished, lambda one: one.trial.group)
    rates = {
        kind: sum(took_s[one.key] for one in these) / sum(map(work_of, these))
        for kind, these in by_kind.items()
    }
    alike = {group: mean(took_s[one.key] for one in these) for group, these in by_group.items()}
    if not rates:
        return None
    worst = max(rates.values())
    return [
        alike.get(trial.trial.group, work_of(trial) * rates.get(_kind(trial), worst))
        for trial in trials
    ]


def work_of(trial: ReadyTrial) -> float:
    """How much there is to compute, optimizer steps of all workers."""
    return trial.steps * float(trial.settings["workers"])


def _kind(trial: ReadyTrial) -> tuple[str, str]:
    return trial.task, trial.rule


def _grouped(
    trials: Iterable[ReadyTrial], key: Callable[[ReadyTrial], _Key]
) -> dict[_Key, list[ReadyTrial]]:
    found: dict[_Key, list[ReadyTrial]] = {}
    for trial in trials:
        found.setdefault(key(trial), []).append(trial)
    return found
