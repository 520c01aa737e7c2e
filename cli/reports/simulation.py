"""A simulation in the terminal: its progress, and its results."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.text import Text

from ...sim.results.figures import describe, describe_cost, describe_run, duration
from .console import plain_table, print_path, print_rows, progress_on

if TYPE_CHECKING:
    from ...sim.batched.schedule import Progress
    from ...sim.results.compare import SideBySide

__all__ = ["display_on", "part", "print_comparison", "print_run", "reached", "time_left"]

ESTIMATE_AFTER_S = 2.0
"""Wall-clock time before which an estimate of the rest would be a guess."""


@contextmanager
def display_on(
    stream: TextIO, title: str, time_s: float | None = None
) -> Iterator[Callable[["Progress"], None]]:
    """Show the progress of a simulation on *stream*."""
    with progress_on(stream, title) as display:

        def show(progress: "Progress") -> None:
            done = part(progress, time_s)
            left = time_left(done, progress.wall_s)
            notes = [] if progress.cost is None else [Text(describe_cost(progress.cost))]
            if progress.compiles and not notes:
                notes = [Text("compiling once for later runs, then trying a few steps")]
            display(progress.wall_s, done, reached(progress, left), *notes)

        yield show


def time_left(done: float | None, wall_s: float) -> list[str]:
    """Estimate the remaining time, in words; empty where that is a guess."""
    if not done or done >= 1 or wall_s < ESTIMATE_AFTER_S:
        return []
    return [f"about {duration(wall_s * (1 - done) / done)} left"]


def part(progress: "Progress", time_s: float | None = None) -> float | None:
    """Return the finished part of a run, in [0, 1]; None if its end is unknown."""
    ends = (progress.time_s, time_s), (progress.steps, progress.steps_total)
    # If both may end a run, the first to come does.
    parts = [reached / end for reached, end in ends if end]
    return min(1.0, max(parts)) if parts else None


def reached(progress: "Progress", left: Sequence[str] = ()) -> str:
    """Describe how far a run is, with the time that is left, if that is known."""
    steps_total = progress.steps_total
    if not progress.steps:
        return "starting"
    total = "" if steps_total is None else f" of {steps_total:,}"
    if steps_total is not None and progress.steps > steps_total:
        # No worker counts the steps of all: workers learn late that these are enough, and steps
        # lost in a crash are repeated.
        total = f" ({steps_total:,} planned)"
    measured = {"loss": progress.loss, "accuracy": progress.accuracy}
    known = [f"{name} {value:.3f}" for name, value in measured.items() if value is not None]
    place = [f"step {progress.steps:,}{total}", f"virtual time {progress.time_s:.4g} s"]
    return ", ".join([*place, *left, *known])


def print_run(summary: dict[str, Any], console: Console) -> None:
    """Print the results of a simulation."""
    print_rows(describe(summary), describe_run(summary), console)
    if summary["out"] is not None:
        console.print()
        print_path("Folder", summary["out"], console)


def print_comparison(found: "SideBySide", console: Console) -> None:
    """Print all figures of both, and the verdict."""
    percent = f"{100 * found.tolerance:g} %"
    console.print()
    table = plain_table("", ">live", ">simulated", ">ratio", f"within {percent}")
    for figure in found.figures:
        ratio = "-" if figure.ratio is None else f"{figure.ratio:.3f}"
        both = (_with_unit(value, figure.unit) for value in (figure.live, figure.simulated))
        agrees = figure.agrees(found.tolerance)
        verdict = "" if agrees is None else "yes" if agrees else "NO"
        table.add_row(Text(figure.name), *both, ratio, verdict)
    console.print(table)
    console.print()
    console.print(f"Rates are of the first {found.seconds:.4g} s, in which all trained.")
    for difference in found.differences:
        console.print(Text(f"note: {difference}"), soft_wrap=True)
    bad = [f.name for f in found.figures if f.agrees(found.tolerance) is False]
    words = f"Not within {percent}: {', '.join(bad)}." if bad else f"All within {percent}."
    console.print(Text(words, style="bold"))


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "never" if unit == "s" else "-"
    if unit == "B/s":
        return f"{value / 1e3:,.4g} kB/s"
    return f"{value:.4g}{' s' if unit == 's' else ''}"
