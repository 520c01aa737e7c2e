"""A simulation in the terminal: its progress, and its results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from ...sim.results.figures import describe, describe_run
from .console import print_path, print_rows, progress_on, time_left

if TYPE_CHECKING:
    from ...sim.batched.schedule import Progress

__all__ = ["display_on", "part", "print_run", "reached"]


@contextmanager
def display_on(
    stream: TextIO, title: str, time_s: float | None = None
) -> Iterator[Callable[["Progress"], None]]:
    """Show the progress of a simulation on *stream*."""
    with progress_on(stream, title) as display:

        def show(progress: "Progress") -> None:
            done = part(progress, time_s)
            left = time_left(done, progress.wall_s)
            words = ", ".join([*left, *reversed(_measured(progress)), *_place(progress)])
            display.show(progress.wall_s, done, words, ", ".join([reached(progress), *left]))

        yield show


def part(progress: "Progress", time_s: float | None = None) -> float | None:
    """Return the finished part of a run, in [0, 1]; None if its end is unknown."""
    parts = []
    if time_s:
        parts.append(progress.time_s / time_s)
    if progress.steps_total:
        parts.append(progress.steps / progress.steps_total)
    # If both may end a run, the first to come does.
    return min(1.0, max(parts)) if parts else None


def reached(progress: "Progress") -> str:
    """Describe how far a run is."""
    return ", ".join([*_place(progress), *_measured(progress)])


def _place(progress: "Progress") -> list[str]:
    steps_total = progress.steps_total
    if not progress.steps:
        return ["compiling once for later runs" if progress.compiles else "starting"]
    total = "" if steps_total is None else f" of {steps_total:,}"
    if steps_total is not None and progress.steps > steps_total:
        # No worker counts the steps of all: workers learn late that these are enough, and steps
        # lost in a crash are repeated.
        total = f" ({steps_total:,} planned)"
    return [f"step {progress.steps:,}{total}", f"virtual time {progress.time_s:.4g} s"]


def _measured(progress: "Progress") -> list[str]:
    known = {"loss": progress.loss, "accuracy": progress.accuracy}
    return [f"{name} {value:.3f}" for name, value in known.items() if value is not None]


def print_run(summary: dict[str, Any], console: Console) -> None:
    """Print the results of a simulation."""
    print_rows(describe(summary), describe_run(summary), console)
    if summary["out"] is not None:
        console.print()
        print_path("Folder", summary["out"], console)
