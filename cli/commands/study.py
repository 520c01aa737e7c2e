"""``rumor study``: a grid of simulations, in one command and one page."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError, RumorError
from ...gossip.specs.parameter import setting
from ..errors import FAILED, STOPPED, fail, not_written, sigterm_as_interrupt
from ..reports.console import counted, plain_table, print_path, progress_on
from ..reports.simulation import time_left
from ..settings.exchange import OutSettings
from ..settings.options import Source, config_of, options_of

if TYPE_CHECKING:
    from ...sim.study import Results, StudyPlan, StudyProgress
    from ...sim.study.analysis.ranking import Comparison

__all__ = [
    *("StudyConfig", "compute", "display_on", "outline", "print_comparison", "study"),
]

PLACES_MAX = 3
"""Maximum rankings, one for each place of the further axes; the report has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig(OutSettings):
    """Actions on a study, and its computation."""

    resume: bool = setting(
        False,
        "Continue in the folder of an earlier run: trials of the same arguments, files and code "
        "are not computed again. The grid may have changed.",
        brief="Continue in the folder.",
    )

    dry_run: bool = setting(False, "Check all trials, and compute none.")

    hours: float | None = setting(
        None,
        "Stop after this many hours, and write what is finished; --resume computes the rest. All "
        "trials of the first seed come first.",
        brief="Hours until it stops.",
        above=0,
        otherwise="no limit",
    )

    list_all: bool = setting(False, "List built-in studies.", flags=("--list",))

    copy: Path | None = setting(
        None,
        "Write a copy of the study's file for you to change, and compute nothing.",
        brief="Write a copy of the study's file.",
        metavar="FILE.toml",
    )

    backend: str = setting(
        "loky",
        "loky (processes of this machine), dask:tcp://HOST:PORT, ray (whatever Ray finds, or a "
        "new one on this machine) or ray:ADDRESS. The results are the same.",
        brief="loky, dask:ADDRESS or ray.",
    )

    jobs: int | None = setting(
        None,
        "Trials to compute in parallel.",
        low=1,
        otherwise="as many as cores and memory allow",
        flags=("--jobs", "-j"),
    )

    report: bool = setting(True, "Write report.html.")


@options_of(Source(StudyConfig))
def study(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY.toml|NAME",
            help="A file that ends in .toml, or a study that comes with rumor (--list names them).",
            show_default=False,
        ),
    ] = None,
    **settings: Any,
) -> None:
    """Compare topologies, rules, sizes or networks on one page.

    A study is a file that says what to vary: every combination is simulated with several seeds,
    side by side on all cores. Each finished simulation, a trial, is kept at once; whatever stops
    the study, --resume continues it and arrives at the same tables, to the bit. The results are
    report.html, which opens without a network, curves.csv and summary.csv.

    The best graph for 64 workers:

    `rumor study graphs`

    The first method to reach a loss when machines differ and fail, in a night:

    `rumor study proof --hours 6`

    Your own question, starting from a copy of a study's file:

    `rumor study graphs --copy mine.toml` and then `rumor study mine.toml`

    How to write a study and read its report: docs/how-to/studies.md.

    Exit status: 0 if it worked; 1 if trials failed or a file could not be written, and what was
    finished is kept; 2 for wrong arguments, and then every trial that cannot run is listed; 130 if
    it was stopped, which keeps what was finished.
    """
    config = config_of(StudyConfig, settings)
    if config.list_all:
        _list()
    elif name is None:
        raise ConfigError("say which study: a file that ends in .toml, or a name of --list")
    elif config.copy is not None:
        _copy(name, config.copy)
    else:
        with sigterm_as_interrupt():
            _study(name, config)


def _study(name: str, config: StudyConfig) -> None:
    from ...sim.study import find_study, plan_study
    from ...sim.study.execution.store import check_folder

    found = find_study(name)
    folder = config.out or Path("runs") / f"study-{found.name}"
    check_folder(folder, resume=config.resume or config.dry_run)
    try:
        with Console(stderr=True).status("looking through the trials"):
            plan = plan_study(found, folder, backend=config.backend, jobs=config.jobs)
    except KeyboardInterrupt:
        fail("stopped before anything was computed", STOPPED)
    plan.require_runnable()
    print(outline(plan), file=sys.stderr, flush=True)
    if config.dry_run:
        return
    results = compute(plan, folder, config)
    report = folder / "report.html" if config.report else None
    _print_results(results, folder, Console(), report)
    if failed := len(results.failures):
        fail(f"{counted(failed, 'trial')} failed; --resume tries them again", FAILED)


def _list() -> None:
    from ...sim.study.study_file import built_in_studies, time_told

    console = Console()
    table = plain_table("name", ">trials", "takes", "title")
    table.columns[0].style, table.columns[2].no_wrap = "bold", True
    for found in built_in_studies():
        trials = sum(1 for _ in found.trials())
        table.add_row(*map(Text, (found.name, f"{trials:,}", time_told(found.name), found.title)))
    console.print(table)
    console.print(
        "\nrumor study NAME runs one, rumor study NAME --copy FILE.toml gives you its file"
    )


def _copy(name: str, path: Path) -> None:
    from ...sim.study.study_file import study_path

    source = study_path(name)
    if path.suffix != ".toml":
        raise ConfigError(f"{path} must end in .toml, for rumor study to take it for a file")
    try:
        content = source.read_bytes()
        with open(path, "xb") as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror or error}") from None
    print(path)


def outline(plan: "StudyPlan") -> str:
    """Say in a line what will be computed, and the time and memory it needs."""
    parts = [counted(len(plan.trials) + len(plan.bad), "trial")]
    if plan.finished:
        parts.append(f"{plan.finished:,} finished before")
    if not plan.to_do:
        return f"{', '.join(parts)}: nothing is left to compute"
    parts.append(f"{len(plan.to_do):,} to compute, {plan.memory_gib:.1f} GiB each")
    return ", ".join(parts)


class _OutOfTime(Exception):
    """The hours of a study are over."""


def compute(plan: "StudyPlan", folder: Path, config: StudyConfig) -> "Results":
    """Compute a study, report progress on stderr, and write the results, also when stopped."""
    from ...sim.study import load_results, run_study, write_tables

    done, stop_s = 0, time.monotonic() + 3600 * (config.hours or math.inf)

    def finish(results: "Results") -> None:
        write_tables(results, folder)
        if config.report:
            from ...sim.study.report import write_report

            write_report(results, folder)

    def kept() -> str:
        return (
            f"{done:,} of {len(plan.trials):,} trials are kept in {folder}: continue with --resume"
        )

    try:
        with display_on(sys.stderr) as show:

            def take(progress: "StudyProgress") -> None:
                nonlocal done
                done = progress.done
                show(progress)
                if time.monotonic() >= stop_s:
                    raise _OutOfTime

            return run_study(
                plan.study, folder, resume=config.resume, plan=plan, progress=take, finish=finish
            )
    except _OutOfTime:
        print(f"the time is over; {kept()}", file=sys.stderr, flush=True)
        results = load_results(folder)
        finish(results)
        return results
    except KeyboardInterrupt:
        with suppress(RumorError, OSError):
            finish(load_results(folder))
        fail(f"stopped; {kept()}", STOPPED)
    except ConfigError:
        raise
    except RumorError as error:
        error.add_note(kept())
        raise
    except OSError as error:
        raise RumorError(f"{not_written(folder, error)}; {kept()}") from error


@contextmanager
def display_on(stream: TextIO) -> Iterator[Callable[["StudyProgress"], None]]:
    """Show the progress of a study on *stream*."""
    with progress_on(stream) as display:
        has_failed = False

        def show(progress: "StudyProgress") -> None:
            nonlocal has_failed
            news = []
            # The first failure at once: a user may want to stop. The others at the end.
            if progress.failure is not None and not has_failed:
                has_failed = True
                news = [f"{progress.trial} failed: {progress.failure}"]
            parts = [f"{progress.done + progress.failed:,} of {progress.trials:,} trials"]
            parts += [f"{progress.failed} failed"] if progress.failed else []
            parts += time_left(progress.part, progress.wall_s)
            parts += [] if progress.trial is None else [f"last {progress.trial}"]
            display(progress.wall_s, progress.part, ", ".join(parts), *news)

        yield show


def _print_results(results: "Results", folder: Path, console: Console, report: Path | None) -> None:
    from ...sim.study.analysis.ranking import comparisons
    from ...sim.study.analysis.search import searched

    results, search = searched(results)
    console.print()
    console.print(Text(results.study.title, style="bold"), soft_wrap=True)
    if search is not None:
        console.print(Text(f"- {search.words}"))
    found = comparisons(results)
    if not found:
        console.print("no trial has a result")
    for comparison in found[:PLACES_MAX]:
        print_comparison(comparison, console)
    if len(found) > PLACES_MAX:
        console.print(f"\nand {len(found) - PLACES_MAX} more such rankings", highlight=False)
    console.print()
    for trial, why in results.failures.items():
        console.print(Text(f"{trial} failed: {why}", style="bold red"), soft_wrap=True)
    for what, path in (("Report", report), ("Folder", folder)):
        if path is not None:
            print_path(what, path, console)


def print_comparison(
    comparison: "Comparison", console: Console, whys: Mapping[str, str] | None = None
) -> None:
    """Print a ranking with its verdicts; *whys* says by label why points have no result."""
    from ...sim.study.analysis.verdicts import verdict_words
    from ...sim.study.format import spread
    from ...sim.study.metrics import METRICS

    at = ", ".join(f"{axis} {label}" for axis, label in comparison.at.items())
    metric = comparison.metric
    others = [METRICS[name] for name in comparison.study.metrics if name != metric.name]
    title = f"{comparison.axis} by {metric.words}{at and f', {at}'}"
    heads = [f">{fill(each.words, 14)}" for each in (metric, *others)]
    table = plain_table(comparison.axis, *heads, "", title=title)
    table.columns[0].style, table.columns[0].no_wrap = "bold", False
    table.columns[0].overflow = "fold"
    for row in comparison.rows:
        figures = [spread(row.figures.get(each.name), each.unit) for each in (metric, *others)]
        table.add_row(*map(Text, (row.label, *figures, verdict_words(row, comparison))))
    for label in comparison.missing:
        why = f"failed: {whys[label]}" if whys and label in whys else "no result"
        table.add_row(*map(Text, (label, *["–"] * len(heads), why)))
    console.print()
    console.print(table)
