"""How a simulation goes, on stderr: a bar with an estimate, or now and then a line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

if TYPE_CHECKING:
    from ..sim.progress import Progress

__all__ = ["Show", "display_on", "left_s", "part", "reached"]

LINE_EVERY_S = 5.0
BAR_EVERY_S = 0.1

WORTH_ESTIMATING_S = 1.0
"""Time on the wall before which the estimate of the rest would be a guess."""

Show = Callable[["Progress"], None]


@contextmanager
def display_on(stream: TextIO, title: str, time_s: float | None = None) -> Iterator[Show]:
    """Show a simulation on *stream*, in the way that it can.

    Args:
        stream: Usually stderr.
        title: One line about what runs.
        time_s: Virtual time that ends the run, seconds; None where steps end it.
    """
    console = Console(file=stream)
    if not console.is_terminal:
        yield _lines(stream, title, time_s)
        return
    console.print(Text(title, style="bold"), soft_wrap=True)
    columns = BarColumn(bar_width=16), TextColumn("{task.percentage:>3.0f}%"), _Words()
    with Bar(*columns, console=console, auto_refresh=False, transient=True) as bar:
        yield _bar(bar, time_s)


def part(progress: "Progress", time_s: float | None = None) -> float | None:
    """Say how much of a run is done, in [0, 1]; None where nothing says when it ends.

    Args:
        progress: Of the run.
        time_s: Virtual time that ends it, seconds.
    """
    parts = []
    if time_s:
        parts.append(progress.time_s / time_s)
    if progress.steps_total:
        parts.append(progress.steps / progress.steps_total)
    # Where both may end a run, what comes first does.
    return min(1.0, max(parts)) if parts else None


def left_s(progress: "Progress", time_s: float | None = None) -> float | None:
    """Estimate how long a run takes from here, seconds on the wall; None where that is a guess."""
    done = part(progress, time_s)
    if not done or progress.wall_s < WORTH_ESTIMATING_S:
        return None
    return progress.wall_s * (1 - done) / done


def reached(progress: "Progress") -> str:
    """Say how far a run has come."""
    return ", ".join([*_place(progress), *_quality(progress)])


def _lines(stream: TextIO, title: str, time_s: float | None) -> Show:
    """Plain lines: one at the start, one every few seconds."""
    print(title, file=stream, flush=True)
    next_s = LINE_EVERY_S

    def show(progress: "Progress") -> None:
        nonlocal next_s
        if progress.wall_s >= next_s:
            next_s = progress.wall_s + LINE_EVERY_S
            words = [reached(progress), *_estimate(progress, time_s)]
            print(f"{progress.wall_s:.0f} s: {', '.join(words)}", file=stream, flush=True)

    return show


def _bar(bar: Bar, time_s: float | None) -> Show:
    task = bar.add_task("", total=None, words="")
    next_s = 0.0

    def show(progress: "Progress") -> None:
        nonlocal next_s
        if progress.wall_s < next_s:
            return
        next_s = progress.wall_s + BAR_EVERY_S
        done = part(progress, time_s)
        # What tells most comes first: a narrow terminal cuts off the rest.
        words = [*_estimate(progress, time_s), *reversed(_quality(progress)), *_place(progress)]
        if done is not None:
            bar.update(task, total=1.0, completed=done)
        bar.update(task, words=", ".join(words), refresh=True)

    return show


class _Words(TextColumn):
    """What there is room for; a bar of two lines would not be drawn in place."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        return Text(task.fields["words"], no_wrap=True, overflow="ellipsis")


def _place(progress: "Progress") -> list[str]:
    total = "" if progress.steps_total is None else f" of {progress.steps_total:,}"
    return [f"step {progress.steps:,}{total}", f"virtual time {progress.time_s:.4g} s"]


def _quality(progress: "Progress") -> list[str]:
    known = {"loss": progress.loss, "accuracy": progress.accuracy}
    return [f"{name} {value:.3f}" for name, value in known.items() if value is not None]


def _estimate(progress: "Progress", time_s: float | None) -> list[str]:
    seconds = left_s(progress, time_s)
    if seconds is None:
        return []
    minutes = round(seconds / 60)
    return [f"about {minutes} min left" if seconds >= 100 else f"about {seconds:.0f} s left"]
