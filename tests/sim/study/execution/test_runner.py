"""`run_study` loses and repeats no finished trial, and uses no stale one."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rumor.sim.study.execution.runner as module
import rumor.sim.study.execution.trial as compute
from rumor.gossip import ConfigError
from rumor.sim.study import (
    Results,
    StudyProgress,
    load_results,
    plan_study,
    read_study,
    run_study,
    write_tables,
)
from rumor.sim.study.execution.backends import Backend
from rumor.sim.study.execution.store import locked
from rumor.sim.study.execution.trial import run_trial

from ....forked import forked
from ....waiting import LIMIT_S
from ..small import TOML, grid_of, own_task, small_study, tables_of

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Orders that have been carried out so far."""
    found: list[str] = []

    def noted(order: str) -> str:
        found.append(order)
        return run_trial(order)

    monkeypatch.setattr(module, "run_trial", noted)
    return found


def run(folder: Path, **changes: Any) -> Any:
    study = changes.pop("study", None) or small_study()
    results = run_study(study, folder, jobs=1, **changes)
    write_tables(results, folder)
    return results


def test_every_trial_has_a_result_in_the_order_of_the_study(tmp_path: Path) -> None:
    study = small_study()
    reports: list[StudyProgress] = []
    results = run(tmp_path / "a", study=study, progress=reports.append)
    assert [result.trial for result in results.results] == list(study.trials())
    assert results.failures == {}
    result = results.results[0]
    assert result.summary["topology"] == "ring" and result.facts["diameter"] == 4
    assert len(result.series["time_s"]) == 21 and result.series["disagreement"][0] > 1
    assert not {"wall_s", "peak_rss_mib", "steps_per_s"} & set(result.summary)
    assert result.summary["engine"] == "vectors"
    assert [(p.done, p.failed, p.part) for p in reports] == [(n, 0, n / 4) for n in range(5)]
    in_order = sorted(study.trials(), key=lambda trial: trial.seed)
    assert [str(p.trial) for p in reports[1:]] == [str(trial) for trial in in_order]
    again = load_results(tmp_path / "a")
    assert [r.key for r in again.results] == [r.key for r in results.results]


def test_a_resumed_study_has_the_tables_of_an_uninterrupted_one(
    tmp_path: Path, computed: list[str]
) -> None:
    run(tmp_path / "whole")
    assert len(computed) == 4

    def stop(progress: StudyProgress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "halved", progress=stop)
    partial = load_results(tmp_path / "halved")
    assert len(partial.results) == 2 and partial.failures == {}
    run(tmp_path / "halved", resume=True)
    assert len(computed) == 4 + 2 + 2
    assert tables_of(tmp_path / "halved") == tables_of(tmp_path / "whole")


@pytest.mark.extended
def test_a_changed_grid_runs_only_new_trials(tmp_path: Path, computed: list[str]) -> None:
    run(tmp_path / "a")
    more = small_study(topology=("complete", "star", "ring"), seeds=3)
    run(tmp_path / "a", study=more, resume=True)
    assert len(computed) == 4 + 5
    run(tmp_path / "b", study=more)
    assert tables_of(tmp_path / "a") == tables_of(tmp_path / "b")


@pytest.mark.extended
def test_other_code_reuses_no_finished_trial(
    tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a")
    monkeypatch.setattr("rumor.sim.study.execution.trial.code_version", lambda: "other")
    plan = plan_study(small_study(), tmp_path / "a", jobs=1)
    assert (plan.finished, len(plan.to_do)) == (0, 4)
    run(tmp_path / "a", resume=True)
    assert len(computed) == 8


def test_a_file_that_changes_while_its_trial_is_computed_gives_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("net.json").write_text('{"loss": 0.0}')
    original = compute.compute

    def changing(config: Any) -> Any:
        found = original(config)
        Path("net.json").write_text('{"loss": 0.25}')
        return found

    monkeypatch.setattr(compute, "compute", changing)
    results = run(tmp_path / "a", study=small_study(network="net.json"))
    assert results.results == ()
    assert all("a file that this trial names" in why for why in results.failures.values())


def test_a_process_with_other_code_gives_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_elsewhere(order: str) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("rumor.sim.study.execution.trial.code_version", lambda: "other")
            return run_trial(order)

    monkeypatch.setattr(module, "run_trial", run_elsewhere)
    results = run(tmp_path / "a")
    assert results.results == () and len(results.failures) == 4
    assert all("the code, a library or the processor" in why for why in results.failures.values())


def test_a_truncated_trial_is_computed_again(tmp_path: Path, computed: list[str]) -> None:
    before = run(tmp_path / "a")
    tables = tables_of(tmp_path / "a")
    path = tmp_path / "a" / "trials" / f"{before.results[1].key}.json"
    path.write_text(path.read_text()[:100])
    plan = plan_study(small_study(), tmp_path / "a", jobs=1)
    assert len(plan.to_do) == 1
    run(tmp_path / "a", resume=True)
    assert len(computed) == 5 and tables_of(tmp_path / "a") == tables


def test_points_with_equal_settings_are_computed_once(tmp_path: Path, computed: list[str]) -> None:
    settings = {"task": "consensus", "workers": 8, "steps": 20, "p": None}
    study = grid_of({"p": {"usual": {"rule": "gosgd"}, "none": {}}}, settings=settings)
    reports: list[StudyProgress] = []
    results = run(tmp_path / "a", study=study, progress=reports.append)
    assert len(computed) == 2 and len(results.results) == 4
    assert [p.done for p in reports] == [0, 2, 4]


FAILS_ONCE = """if seed == 1 and not os.path.exists("mended"):
            raise ValueError("a bug of the user")"""


def test_a_failed_trial_stops_no_other_trial_and_is_retried(
    tmp_path: Path, computed: list[str]
) -> None:
    Path("failing_task.py").write_text(own_task(FAILS_ONCE))
    study = small_study(task="failing_task:make", workers=2, steps=3, topology=("ring",))
    results = run(tmp_path / "a", study=study)
    assert [result.trial.seed for result in results.results] == [0]
    ((trial, why),) = results.failures.items()
    assert trial == "ring, seed 1"
    assert "ValueError: a bug of the user" in why and "failing_task.py:8" in why
    Path("mended").touch()
    mended = run(tmp_path / "a", study=study, resume=True)
    assert len(computed) == 3 and mended.failures == {} and len(mended.results) == 2


def test_a_study_that_cannot_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    empty = replace(small_study(), skip=({"topology": [*small_study().axes[0].labels]},))
    for study, message in (
        (small_study(topology=("ring", "nowhere")), "2 of 4 trials cannot run"),
        (empty, r"has no trials: its .*skip.* leaves out all of them"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(tmp_path / "a", study=study)
    assert not (tmp_path / "a").exists()
    run(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"another run \(study\.json\): resume it with --resume"):
        run(tmp_path / "a")


def test_a_folder_without_a_study_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the folder of a study"):
        load_results(tmp_path)
    (tmp_path / "study.json").write_text('{"format": 1}')
    with pytest.raises(ConfigError, match="is not what a study writes"):
        load_results(tmp_path)


def test_the_folder_is_locked_until_the_results_are_written(tmp_path: Path) -> None:
    written: list[Any] = []

    def write(results: Results) -> None:
        written.append(results)
        with pytest.raises(ConfigError, match="is in use"), locked(tmp_path / "a"):
            pass

    assert written == [run(tmp_path / "a", finish=write)]
    with locked(tmp_path / "a"):
        pass


class Deadly:
    """Stands in for processes: seed 1 dies, and seed 5 dies with it unless it runs alone."""

    def __init__(self) -> None:
        self.alone: list[int] = []

    def answers(
        self, backend: Backend, run: Callable[[str], str], orders: Sequence[str], jobs: int | None
    ) -> Generator[tuple[str, str | None]]:
        assert jobs != 1 or not backend.is_local
        for order in orders:
            content = json.loads(order)
            seed = content["settings"]["seed"]
            self.alone += [seed] if len(orders) == 1 else []
            # Without a parent: a worker ends with its parent, and here that would be this process.
            text = json.dumps(content | {"parent": None})
            is_killed = seed == 1 or (seed == 5 and len(orders) > 1)
            yield order, None if is_killed else run(text)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("backend", "jobs"),
    [(Backend(kind="loky"), 2), (Backend(kind="dask", address="somewhere"), None)],
)
def test_a_killed_trial_is_retried_alone_before_it_counts_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend, jobs: int | None
) -> None:
    deadly = Deadly()
    monkeypatch.setattr(module, "answers", deadly.answers)
    plan = plan_study(small_study(topology=("ring",), seeds=6), tmp_path / "a")
    plan = replace(plan, backend=backend, jobs=jobs)
    results = run_study(plan.study, tmp_path / "a", plan=plan)
    assert [result.trial.seed for result in results.results] == [0, 2, 3, 4, 5]
    assert results.failures == {
        "ring, seed 1": "its process was killed; perhaps it took too much memory"
    }
    assert deadly.alone == [1, 5]


KILLS_ITSELF = """
import os, sys
from pathlib import Path
from rumor.sim.study import read_study, run_study

def die_in_the_middle(progress):
    if progress.done == 5:
        os.kill(os.getpid(), 9)

if __name__ == "__main__":
    run_study(read_study(Path("mine.toml")), Path("a"), jobs=2, progress=die_in_the_middle)
"""


@pytest.mark.extended
@pytest.mark.live
def test_a_single_trial_for_several_processes_does_not_end_its_caller(
    tmp_path: Path,
) -> None:
    Path("mine.toml").write_text(
        TOML.replace("seeds = 2", "seeds = 1").replace(', "complete"', "").replace("20", "2_000")
    )
    log = tmp_path / "log.txt"
    status = forked(log, "rumor", "study", "mine.toml", "--jobs", "2", "--no-report").wait()
    assert status == 0, log.read_text()


@pytest.mark.extended
@pytest.mark.live
def test_sigkill_loses_only_unfinished_trials(tmp_path: Path) -> None:
    Path("mine.toml").write_text(TOML.replace("seeds = 2", "seeds = 10"))
    process = subprocess.Popen(
        [sys.executable, "-c", KILLS_ITSELF],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Its worker processes hold the pipe open, so this returns only once they have ended, too.
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == -signal.SIGKILL
    study = read_study(Path("mine.toml"))
    assert len(load_results(Path("a")).results) == 5
    run(Path("a"), study=study, resume=True)
    run(Path("b"), study=study)
    assert tables_of(Path("a")) == tables_of(Path("b"))
