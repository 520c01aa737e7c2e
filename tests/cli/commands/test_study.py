"""``rumor study``: its errors, output and files, and how it ends."""

import errno
import io
import json
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import rumor.sim.study
from rumor.cli.commands.study import display_on
from rumor.gossip.errors import TransportError
from rumor.sim.study import StudyProgress
from rumor.sim.study.execution.store import Store

from ...forked import forked
from ...sim.study.small import OWN_STUDY, TOML, own_task, small_study, tables_of
from ..called import called


@pytest.fixture(autouse=True)
def in_a_folder_with_a_study(in_empty_folder: Path) -> None:
    Path("mine.toml").write_text(TOML)


def study(*arguments: str) -> Any:
    return called("study", *arguments)


def run(*arguments: str) -> Any:
    return study("mine.toml", "--jobs", "1", "--no-report", *arguments)


def test_a_study_writes_tables_and_prints_a_ranking() -> None:
    done = run()
    assert done.exit_code == 0, done.output
    folder = Path("runs/study-mine")
    assert all(tables_of(folder))
    assert "4 trials, 4 to compute" in done.stderr
    assert "A small one" in done.stdout and f"Folder: {folder}" in done.stdout
    assert "topology by" in done.stdout and "complete" in done.stdout


@pytest.mark.extended
def test_a_report_is_written_unless_switched_off() -> None:
    done = study("mine.toml", "--jobs", "1", "--out", "a")
    assert done.exit_code == 0, done.output
    assert "<html" in Path("a/report.html").read_text(encoding="utf-8")
    assert "Report: a/report.html" in done.stdout
    assert run("--out", "b").exit_code == 0
    assert not Path("b/report.html").exists()


def test_a_dry_run_counts_the_trials_and_writes_nothing() -> None:
    done = run("--dry-run")
    assert done.exit_code == 0, done.output
    assert "4 trials, 4 to compute" in done.stderr
    assert not Path("runs").exists()
    run()
    assert "4 finished before" in run("--dry-run").stderr
    # A folder that holds a study is refused without --resume.
    assert run().exit_code == 2
    again = run("--resume")
    assert again.exit_code == 0
    assert "4 finished before: nothing is left to compute" in again.stderr


def test_built_in_studies_are_listed_and_can_be_copied() -> None:
    done = study("--list")
    assert done.exit_code == 0
    assert {"graphs", "scale"} <= {line.split()[0] for line in done.stdout.splitlines()[1:] if line}
    assert study("graphs", "--copy", "own.toml").exit_code == 0
    own, original = rumor.sim.study.find_study("own.toml"), rumor.sim.study.find_study("graphs")
    assert list(own.trials()) == list(original.trials())


@pytest.mark.extended
def test_failed_trials_are_listed_by_reason_and_the_others_kept() -> None:
    Path("mine.toml").write_text(
        'seeds = 2\n[settings]\ntask = "quadratic"\nworkers = 2\nsteps = 200\n'
        "[grid]\nlr = [0.01, 1e6]\n"
    )
    done = run()
    assert done.exit_code == 1
    assert "diverged" in done.stdout and "1000000.0, seed 1 failed: " in done.stdout
    assert "2 trials failed; --resume tries them again" in done.stderr
    assert set(json.loads(Path("runs/study-mine/failures.json").read_text())) == {
        "1000000.0, seed 0",
        "1000000.0, seed 1",
    }
    assert len(list(Path("runs/study-mine/trials").iterdir())) == 2


def act_at(patch: pytest.MonkeyPatch, trial: int, act: Callable[[], object]) -> None:
    """Call *act* when a trial is put into the store."""
    original, numbers = Store.put, count(1)

    def put(store: Store, key: str, record: Any) -> None:
        if next(numbers) == trial:
            act()
        original(store, key, record)

    patch.setattr(Store, "put", put)


def failing(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("trial", "act", "status", "message"),
    [
        (3, failing(KeyboardInterrupt()), 130, "stopped"),
        (3, failing(TransportError("Dask failed: it is gone")), 1, "Dask failed: it is gone"),
        (3, failing(OSError(errno.ENOSPC, "No space left")), 1, "No space left"),
        (1, terminate, 130, "error: stopped; "),
        (2, terminate, 130, "error: stopped; "),
    ],
)
def test_finished_trials_are_kept_however_a_study_ends(
    trial: int, act: Callable[[], object], status: int, message: str
) -> None:
    # If the command does not handle the signal, it must not end the test.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.MonkeyPatch.context() as patch:
            act_at(patch, trial, act)
            done = run()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done.exit_code == status and message in done.stderr.splitlines()[-1]
    kept = f"{trial - 1} of 4 trials are kept in runs/study-mine: continue with --resume"
    assert kept in done.stderr
    if status == 130:
        assert Path("runs/study-mine/summary.csv").read_text().count("\n") == trial
    again = run("--resume")
    assert again.exit_code == 0 and (trial == 1 or f"{trial - 1} finished before" in again.stderr)


# The first trial ends the study.
ENDS_THE_STUDY = "seed or os.kill(os.getppid(), signal.SIGTERM) or time.sleep(600)"


@pytest.mark.extended
@pytest.mark.live
def test_sigterm_leaves_no_process_and_no_library_warning() -> None:
    Path("own.py").write_text(own_task(ENDS_THE_STUDY))
    Path("mine.toml").write_text(OWN_STUDY)
    log = Path("log.txt")
    status = forked(log, "rumor", "study", "mine.toml", "--jobs", "2", "--no-report").wait()
    output = log.read_text()
    assert status == 130, output
    assert "error: stopped; " in output and "leaked" not in output and "Traceback" not in output


def test_unwritable_tables_lose_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(rumor.sim.study, "write_tables", full)
        done = run()
    assert done.exit_code == 1
    assert "No space left on device; 4 of 4 trials are kept in runs/study-mine" in done.stderr
    assert run("--resume").exit_code == 0


def progress(**changes: Any) -> StudyProgress:
    usual = {"trials": 40, "done": 14, "failed": 0, "part": 0.25, "wall_s": 100.0}
    return StudyProgress(**usual | changes)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"failed": 2, "part": 0.0}, "16 of 40 trials, 2 failed"),
        ({}, "14 of 40 trials, about 5 min left"),
        ({"done": 40, "part": 1.0}, "40 of 40 trials"),
    ],
)
def test_progress_shows_failures_and_the_remaining_time(changes: Any, line: str) -> None:
    stream = io.StringIO()
    with display_on(stream) as show:
        show(progress(**changes))
    assert stream.getvalue() == f"100 s: {line}\n"


def test_without_a_terminal_progress_is_printed_in_occasional_lines() -> None:
    stream = io.StringIO()
    (trial, *_) = small_study().trials()
    with display_on(stream) as show:
        for wall_s in (0.0, 1.0, 6.0, 7.0, 12.0):
            show(progress(wall_s=wall_s))
        show(progress(wall_s=12.5, failed=1, trial=trial, failure="it diverged"))
        show(progress(wall_s=12.6, failed=2, trial=trial, failure="it diverged again"))
    lines = stream.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["6 s", "12 s"]
    assert lines[0] == "6 s: 14 of 40 trials, about 18 s left"
    assert lines[2:] == ["ring, seed 0 failed: it diverged"]


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with display_on(stream) as show:
        show(progress())
    assert "14 of 40" in stream.getvalue() and "min left" in stream.getvalue()


def test_trials_beyond_the_time_limit_have_no_rows() -> None:
    done = run("--hours", "1e-9")
    assert done.exit_code == 0, done.output
    assert Path("runs/study-mine/summary.csv").read_text().count("\n") == 1
    assert "no trial has a result" in done.stdout
    assert "the time is over; 0 of " in done.stderr and "--resume" in done.stderr
