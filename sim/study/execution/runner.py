"""`run_study`: computes a study from its grid to its results.

`plan_study` checks the trials of the grid; those whose `trial_key` is in the `Store` are finished.
The others go as orders, in JSON, to processes of joblib, Dask or Ray, where `run_trial` calls
`simulate`. Each record is on the disk at once; `load_results` reads them back for tables, verdicts
and the report. Trials of a killed process run again, one at a time.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ....gossip.errors import ConfigError
from ....train.storage.files import remove_drafts
from ..results import Result, Results
from ..study import Study, Trial
from .backends import answers
from .plan import ReadyTrial, StudyPlan, plan_study
from .store import Store, check_folder, locked, read_folder, write_folder
from .trial import order_of, run_trial

__all__ = ["StudyProgress", "load_results", "run_study"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """Progress of a study."""

    trials: int
    """Number of trials in all."""
    done: int
    """Number of trials with a result, also from before this start or resumption."""
    failed: int
    """Number of trials that failed since."""
    part: float
    """Part of this start's work that is behind, in [0, 1]."""
    wall_s: float
    """Time since it was started or resumed, seconds."""
    trial: Trial | None = None
    """The latest trial that finished or failed."""
    failure: str | None = None
    """Why that trial failed, if it did."""


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
        run = _Run(plan, store, progress)
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

    def __init__(self, plan: StudyPlan, store: Store, progress: Show | None) -> None:
        self.failures: dict[str, str] = {}
        self._plan = plan
        self._store = store
        self._progress = progress
        self._start_s = time.monotonic()
        self._waiting = {trial.key: trial for trial in plan.to_do}

    def go(self) -> None:
        self._report(None, None)
        # One of the processes that were killed together was the cause: alone, it shows.
        for trial in self._compute(list(self._waiting.values()), self._plan.jobs):
            for killed in self._compute([trial], 2 if self._plan.backend.is_local else 1):
                self._finish(killed, _KILLED)

    def _compute(self, trials: Sequence[ReadyTrial], jobs: int | None) -> list[ReadyTrial]:
        """Compute trials side by side, and keep the results; return trials of killed processes."""
        parent = os.getpid() if self._plan.backend.is_local and jobs != 1 else None
        orders = {order_of(one.key, one.settings, Path.cwd(), parent): one for one in trials}
        killed: list[ReadyTrial] = []
        # Closing the generator early stops the processes that still compute.
        with closing(answers(self._plan.backend, run_trial, list(orders), jobs)) as found:
            for order, text in found:
                trial = orders[order]
                if text is None:
                    killed.append(trial)
                    continue
                answer = json.loads(text)
                if record := answer.get("record"):
                    self._store.put(trial.key, record)
                self._finish(trial, answer.get("failure"))
        return killed

    def _finish(self, trial: ReadyTrial, why: str | None) -> None:
        if why is not None:
            self.failures[trial.key] = why
        del self._waiting[trial.key]
        self._report(trial.trial, why)

    def _report(self, trial: Trial | None, why: str | None) -> None:
        if self._progress is None:
            return
        # Two trials may have one key, where two points have the same arguments.
        keys = [one.key for one in self._plan.trials]
        failed = sum(key in self.failures for key in keys)
        whole = sum(one.work for one in self._plan.to_do)
        left = sum(one.work for one in self._waiting.values())
        self._progress(
            StudyProgress(
                trials=len(keys),
                done=len(keys) - failed - sum(key in self._waiting for key in keys),
                failed=failed,
                part=1 - left / whole if whole else 1.0,
                wall_s=time.monotonic() - self._start_s,
                trial=trial,
                failure=why,
            )
        )
