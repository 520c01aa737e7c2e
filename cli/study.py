"""``rumor study``: a grid of simulations, in one command and one page."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..gossip.errors import ConfigError, RumorError
from .errors import FAILED, STOPPED, edge, fail
from .options import Debug, Json
from .study_options import (
    BackendName,
    Copy,
    DryRun,
    Jobs,
    ListAll,
    NoReport,
    Resume,
    StudyFolder,
    StudyName,
    Target,
)

if TYPE_CHECKING:
    from ..sim.study import Results, Study, StudyPlan, StudyProgress

__all__ = ["study"]


def study(
    name: StudyName = None,
    resume: Resume = False,
    target: Target = None,
    dry_run: DryRun = False,
    list_all: ListAll = False,
    copy: Copy = None,
    backend: BackendName = "loky",
    jobs: Jobs = None,
    out: StudyFolder = None,
    no_report: NoReport = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare topologies, rules, sizes, machines or networks, and see the answer on one page.

    A study is a file that says what to vary: every combination is simulated with several seeds,
    side by side on all cores. Each finished simulation, a cell, is kept at once; whatever stops the
    study, --resume goes on with it, and comes to the same tables, to the bit. What comes of it is
    report.html, which opens without a network, results.parquet with all curves and summary.csv.

    Which graph should 64 workers use, and what tells so before:

    `rumor study graphs`

    A question of your own, from a file to change:

    `rumor study graphs --copy mine.toml` and then `rumor study mine.toml`

    How to ask one, and how to read the report: docs/study.md.

    Exit status: 0 if it worked; 1 if cells failed or a file could not be written, and what was
    finished is kept; 2 for wrong arguments, and then every cell that cannot run is listed; 130 if
    it was stopped, which keeps what was finished.
    """
    with edge(debug=debug):
        if as_json and (list_all or dry_run or copy is not None):
            raise ConfigError("--json is for what a study came to: leave it out here")
        if list_all:
            _list()
            return
        if name is None:
            raise ConfigError("say which study: a file that ends in .toml, or a name of --list")
        if copy is not None:
            _copy(name, copy)
            return
        _require_libraries(with_report=not no_report)
        from ..sim.study import find_study

        found = find_study(name)
        found = found if target is None else replace(found, target=target)
        folder = out or Path("runs") / f"study-{found.name}"
        _check(folder, resume=resume or dry_run)
        plan = _plan(found, folder, backend, jobs)
        plan.require_runnable()
        _announce(plan)
        if dry_run:
            _list_cells(plan)
            return
        ending = _Ending(folder, with_report=not no_report)
        results = _run(plan, folder, ending, resume=resume, debug=debug)
        _show(results, folder, ending.report, as_json=as_json)
        if results.failures:
            failed = len(results.failures)
            cells = "1 cell" if failed == 1 else f"{failed:,} cells"
            fail(f"{cells} failed; --resume tries them again", FAILED)


def _list() -> None:
    from ..sim.study.built_in_studies import built_in_studies, time_told
    from .study_report import print_studies

    print_studies([(study, time_told(study.name)) for study in built_in_studies()], Console())


def _copy(name: str, path: Path) -> None:
    from ..sim.study.built_in_studies import built_in_path

    source = Path(name) if name.endswith(".toml") else built_in_path(name)
    if path.suffix != ".toml":
        raise ConfigError(f"{path} must end in .toml, for rumor study to take it for a file")
    try:
        content = source.read_bytes()
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror or error}") from None
    try:
        with open(path, "xb") as file:
            file.write(content)
    except FileExistsError:
        raise ConfigError(f"{path} is there already: name a new file") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
    print(path)


def _require_libraries(*, with_report: bool) -> None:
    """See that what is written at the end can be written, before hours go into it."""
    wanted = {"joblib": True, "pyarrow": True, "plotly": with_report}
    missing = [name for name, needed in wanted.items() if needed and find_spec(name) is None]
    if missing:
        without = "; --no-report does without plotly" if missing == ["plotly"] else ""
        raise ConfigError(
            f"rumor study needs {' and '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: "
            f"pip install 'rumor[study]'{without}"
        )


def _check(folder: Path, *, resume: bool) -> None:
    from ..sim.study.folder import check_folder

    check_folder(folder, resume=resume)


def _plan(study: "Study", folder: Path, backend: str, jobs: int | None) -> "StudyPlan":
    """Look it through; a terminal shows that something happens meanwhile."""
    from ..sim.study import plan_study

    try:
        with Console(stderr=True).status("looking through the cells"):
            return plan_study(study, folder, backend=backend, jobs=jobs)
    except KeyboardInterrupt:
        fail("stopped before anything was computed", STOPPED)


def _announce(plan: "StudyPlan") -> None:
    from .study_report import outline

    for path in plan.torn:
        print(f"{path} is no whole cell: it is computed again", file=sys.stderr)
    print(outline(plan), file=sys.stderr, flush=True)
    if plan.others and not plan.finished:
        print(
            f"none of the {plan.others:,} finished cells in the folder can be used: they have "
            "other arguments, files, or were computed by another version of the code or libraries, "
            "or on a processor of another kind",
            file=sys.stderr,
        )


def _list_cells(plan: "StudyPlan") -> None:
    from .study_report import print_plan

    print_plan(plan, Console())


class _Ending:
    """What is written once all cells are there."""

    def __init__(self, folder: Path, *, with_report: bool) -> None:
        self.has_begun = False
        self.report: Path | None = None
        self._folder = folder
        self._with_report = with_report

    def write(self, results: "Results") -> None:
        from ..sim.study import write_tables

        self.has_begun = True
        write_tables(results, self._folder)
        if self._with_report:
            from ..sim.study.report import write_report

            self.report = write_report(results, self._folder)


def _run(
    plan: "StudyPlan", folder: Path, ending: _Ending, *, resume: bool, debug: bool
) -> "Results":
    """Compute it, tell stderr how it goes, and write what came of it."""
    from ..sim.study import run_study
    from .study_progress import display_on

    last: StudyProgress | None = None
    try:
        with display_on(sys.stderr) as show:

            def take(progress: "StudyProgress") -> None:
                nonlocal last
                last = progress
                show(progress)

            return run_study(
                plan.study, folder, resume=resume, plan=plan, progress=take, finish=ending.write
            )
    except KeyboardInterrupt:
        fail(f"stopped; {_kept(last, folder, ending)}", STOPPED)
    except ConfigError:
        raise
    except (OSError, RumorError) as error:
        if debug:
            raise
        what = str(error)
        if isinstance(error, OSError):
            what = f"{folder} cannot be written: {error.strerror or error}"
        fail(f"{what}; {_kept(last, folder, ending)}", FAILED)


def _kept(last: "StudyProgress | None", folder: Path, ending: _Ending) -> str:
    if ending.has_begun:
        return "all cells are kept: --resume writes the tables and the report"
    kept = 0 if last is None else last.finished + last.done
    if last is None or not kept:
        return "nothing was finished"
    return f"{kept:,} of {last.cells:,} cells are kept in {folder}: go on by --resume"


def _show(results: "Results", folder: Path, report: Path | None, *, as_json: bool) -> None:
    from .study_report import as_json as told
    from .study_report import print_results

    print_results(results, folder, Console(stderr=as_json), report)
    if as_json:
        print(json.dumps(told(results, folder, report), allow_nan=False))
