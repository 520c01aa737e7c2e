"""`run_study`: computes a study from its grid to its results.

`plan_study` checks the trials of the grid; those whose `trial_key` is in the `Store` are finished.
The others go as orders, in JSON, to processes of joblib, Dask or Ray, where `run_trial` calls
`simulate`. Each record is on the disk at once; `load_results` reads them back for tables, verdicts
and the report. Trials of a killed process run again, one at a time.
"""

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....gossip.errors import ConfigError
from ....train.storage.files import remove_drafts
from ..results import Result, Results
from ..study import Study, Trial
from .backends import Lost, answers
from .plan import ReadyTrial, StudyPlan, plan_study
from .store import Store, check_folder, locked, read_folder, write_folder
from .trial import order_of, run_trial

__all__ = ["StudyProgress", "load_results", "run_study"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """Progress of a study."""

    trials: int
    """Number of trials in all."""
    finished: int
    """Number finished before this start or resumption."""
    done: int
    """Number finished since."""
    failed: int
    """Number failed since."""
    wall_s: float
    """Time since it was started or resumed, seconds."""
    left_s: float | None
    """Estimated time left, seconds; None before the first trial is finished."""
    trial: Trial | None = None
    """The latest trial that finished or failed."""
    failure: str | None = None
    """Why that trial failed, if it did."""

    @property
    def to_do(self) -> int:
        """Number of trials still to be computed."""
        return self.trials - self.finished - self.done - self.failed


_KILLED = "its process was killed; perhaps it took too much memory"

Show = Callable[[StudyProgress], None]


def run_study(
    study: Study,
    folder: Path,
    *,
    resume: bool = False,
    backend: str = "loky",
    jobs: int | None = None,
    progress: Show | None = None,
    plan: StudyPlan | None = None,
    finish: Callable[[Results], object] | None = None,
    stop_s: float | None = None,
) -> Results:
    """Compute all unfinished trials of a study, side by side. Finished ones are kept however it
    ends, and a resumed study has the same results to the bit.

    Args:
        resume: Allow a folder with a study: finished trials of the same arguments, files and code
            are taken from it.
        backend: The processes to use, as in `plan_study`.
        jobs: Number of processes; default: as many as cores and memory allow.
        plan: The result of `plan_study`, if called before.
        finish: Called with the results at the end, while the folder is still locked.
        stop_s: When to start no further trials, by `time.monotonic`; the most important, by
            `Study.priority`, then run first.

    Raises:
        ConfigError: Some trials cannot run, an argument is not valid, or the folder holds a study
            or is in use; nothing was started.
        TransportError: A cluster cannot be reached, or failed; finished trials are kept.
        OSError: The folder cannot be written; finished trials are kept.
    """
    check_folder(folder, resume=resume)
    if plan is None:
        plan = plan_study(study, folder, backend=backend, jobs=jobs)
    plan.require_runnable()
    with locked(folder):
        store, keys = Store(folder), [trial.key for trial in plan.trials]
        # Left unfinished by a killed process.
        remove_drafts(store.folder)
        write_folder(folder, study, keys)
        run = _Run(plan, store, progress, stop_s)
        try:
            run.go()
        finally:
            if run.failures:
                with suppress(OSError):
                    write_folder(folder, study, keys, run.failures)
        results = load_results(folder)
        if finish is not None:
            finish(results)
    return results


def load_results(folder: Path) -> Results:
    """Read the results of a study, as far as it is computed.

    Raises:
        ConfigError: The folder is not one of a study.
    """
    study, keys, failures = read_folder(folder)
    store, trials = Store(folder), list(study.trials())
    if len(trials) != len(keys):
        raise ConfigError(f"{folder} has {len(keys)} trials for a study of {len(trials)}")
    results, failed = [], {}
    for trial, key in zip(trials, keys, strict=True):
        if (record := store.get(key)) is not None:
            series = {name: tuple(values) for name, values in record["series"].items()}
            results.append(Result(trial=trial, key=key, **{**record, "series": series}))
        elif key in failures:
            failed[str(trial)] = failures[key]
    return Results(study=study, results=tuple(results), failures=failed)


class _Run:
    """The computation of a study's trials."""

    def __init__(
        self, plan: StudyPlan, store: Store, progress: Show | None, stop_s: float | None
    ) -> None:
        self.failures: dict[str, str] = {}
        self._plan = plan
        self._store = store
        self._show = progress
        self._stop_s = math.inf if stop_s is None else stop_s
        self._start_s = time.monotonic()
        # Two trials may have one name, where two points have the same arguments.
        self._count = Counter(trial.key for trial in plan.trials)
        to_do = list(plan.to_do)
        if stop_s is not None:
            to_do.sort(key=lambda one: plan.study.priority(one.trial))
        self._waiting = {trial.key: trial for trial in to_do}
        # Work and time of the trials computed here, to estimate the time left.
        self._done_work = self._took_s = 0.0

    def go(self) -> None:
        self._report(None, None)
        # One of the processes that were killed together was the cause: alone, it shows.
        for trial in self._compute(list(self._waiting.values()), self._plan.jobs):
            for lost in self._compute([trial], 2 if self._plan.backend.is_local else 1):
                self._finish(lost.key, _KILLED)

    def _compute(self, trials: Sequence[ReadyTrial], jobs: int | None) -> list[ReadyTrial]:
        """Compute trials side by side, and keep the results; return trials of killed processes."""
        if time.monotonic() >= self._stop_s:
            return []
        parent = os.getpid() if self._plan.backend.is_local and jobs != 1 else None
        orders = [order_of(one.key, one.settings, Path.cwd(), parent) for one in trials]
        lost: list[ReadyTrial] = []
        # Closing the generator early stops the processes that still compute.
        with closing(answers(self._plan.backend, run_trial, orders, jobs)) as found:
            for text in found:
                if isinstance(text, Lost):
                    lost.append(self._waiting[json.loads(text.order)["key"]])
                else:
                    self._keep(json.loads(text))
                if time.monotonic() >= self._stop_s:
                    break
        return lost

    def _keep(self, answer: Mapping[str, Any]) -> None:
        key = answer["key"]
        if record := answer.get("record"):
            self._store.put(key, record)
            self._took_s += record["wall_s"]
            self._done_work += self._waiting[key].work
        self._finish(key, answer.get("failure"))

    def _finish(self, key: str, why: str | None) -> None:
        if why is not None:
            self.failures[key] = why
        self._report(self._waiting.pop(key).trial, why)

    def _report(self, trial: Trial | None, why: str | None) -> None:
        if self._show is None:
            return
        trials, finished, jobs = len(self._plan.trials), self._plan.finished, self._plan.jobs
        failed = sum(self._count[key] for key in self.failures)
        waiting = sum(self._count[key] for key in self._waiting)
        wall_s, left_s = time.monotonic() - self._start_s, None
        if self._done_work:
            left = sum(trial.work for trial in self._waiting.values())
            # From the times of trials: starting processes takes long, but happens only once.
            left_s = (wall_s if jobs is None else self._took_s / jobs) * left / self._done_work
        self._show(
            StudyProgress(
                trials=trials,
                finished=finished,
                done=trials - finished - failed - waiting,
                failed=failed,
                wall_s=wall_s,
                left_s=left_s,
                trial=trial,
                failure=why,
            )
        )
