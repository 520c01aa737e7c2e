"""`run_study`: computes a study from its grid to its results.

A trial, step by step:

1. `plan_study` makes the trials of the grid, checks that each can run, and estimates their work.
2. `trial_key` hashes the settings, the files that they name and the code. Trials whose key is in
   the `Store` are finished, whichever study computed them.
3. `_Run._compute` sends the others as orders, in JSON, to processes of joblib, Dask or Ray.
4. There, `run_trial` calls `simulate`, and returns a record of figures and curves, or a failure.
5. `_Run._keep` writes the record to the disk at once. A killed process is reported as `Lost`, and
   its trials run again, one at a time.
6. `load_results` reads the records back for tables, verdicts and the report.
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
    """Why that trial failed; None if it did not."""

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
    """Compute all unfinished trials of a study, side by side.

    Each trial is on the disk as soon as it is finished. These are kept however a study ends, and
    it can be resumed; the results are the same to the bit.

    Args:
        resume: Allow a folder with a study: finished trials of the same arguments, files and code
            are taken from it, even if computed for another study.
        backend: The processes to use, as in `plan_study`.
        jobs: Number of processes; default: as many as cores and memory allow.
        plan: The result of `plan_study`, if called before.
        finish: Called with the results at the end, to write reports: no other process computes into
            the folder before it returns.
        stop_s: When to start no further trials, by `time.monotonic`: the most important trials, by
            `Study.priority`, then run first, and the results lack the rest. Default: compute all.

    Returns:
        The results of the trials; failed trials are among its failures.

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
    found = [(trial, key, store.get(key)) for trial, key in zip(trials, keys, strict=True)]
    return Results(
        study=study,
        results=tuple(_result(trial, key, record) for trial, key, record in found if record),
        failures={
            str(trial): failures[key]
            for trial, key, record in found
            if record is None and key in failures
        },
    )


class _Run:
    """The computation of a study's trials."""

    def __init__(
        self, plan: StudyPlan, store: Store, progress: Show | None, stop_s: float | None
    ) -> None:
        self.failures: dict[str, str] = {}
        """Reasons of failed trials, by key."""
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
        # Of the trials computed here, to estimate the time left.
        self._done_work = self._took_s = 0.0

    def go(self) -> None:
        """Compute all unfinished trials."""
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
        trials, finished = len(self._plan.trials), self._plan.finished
        failed = sum(self._count[key] for key in self.failures)
        waiting = sum(self._count[key] for key in self._waiting)
        wall_s = time.monotonic() - self._start_s
        self._show(
            StudyProgress(
                trials=trials,
                finished=finished,
                done=trials - finished - failed - waiting,
                failed=failed,
                wall_s=wall_s,
                left_s=self._left_s(wall_s),
                trial=trial,
                failure=why,
            )
        )

    def _left_s(self, wall_s: float) -> float | None:
        if not self._done_work:
            return None
        left, jobs = sum(trial.work for trial in self._waiting.values()), self._plan.jobs
        # From the times of trials: starting processes takes long, but happens only once.
        took_s = wall_s if jobs is None else self._took_s / jobs
        return took_s * left / self._done_work


def _result(trial: Trial, key: str, record: Mapping[str, Any]) -> Result:
    series = {name: tuple(values) for name, values in record["series"].items()}
    return Result(trial=trial, key=key, **{**record, "series": series})
