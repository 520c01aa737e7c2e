"""How a study goes, on stderr: a bar with an estimate, or now and then a line."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

if TYPE_CHECKING:
    from ..sim.study import StudyProgress

__all__ = ["Show", "display_on", "duration", "words"]

LINE_EVERY_S = 5.0

Show = Callable[["StudyProgress"], None]


@contextmanager
def display_on(stream: TextIO) -> Iterator[Show]:
    """Show a study on *stream*, in the way that it can.

    Args:
        stream: Usually stderr.
    """
    console = Console(file=stream)
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("trials"), _Words()
    with Bar(*columns, console=console, refresh_per_second=4, transient=True) as bar:
        yield _bar(bar)


def words(progress: "StudyProgress", since_s: float = 0.0) -> str:
    """What is known of how it goes and when it ends, beside the number of trials.

    Args:
        progress: As it was told last.
        since_s: How long ago that was, seconds.
    """
    parts = [f"{progress.failed} failed"] if progress.failed else []
    if progress.left_s is not None and progress.to_do:
        # A trial that takes longer than it was thought to is not over yet.
        parts.append(f"about {duration(max(1.0, progress.left_s - since_s))} left")
    if progress.trial is not None:
        parts.append(f"last {progress.trial}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Say how long something takes, roughly.

    >>> duration(42.3), duration(400.0), duration(9000.0)
    ('42 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.2g} h"


def _lines(console: Console) -> Show:
    """Plain lines: one every few seconds at most, and one for the first failure."""
    next_s = LINE_EVERY_S
    failures = 0

    def show(progress: "StudyProgress") -> None:
        nonlocal next_s, failures
        if progress.failure is not None and not failures:
            failures += 1
            _tell(console, progress)
        if progress.wall_s >= next_s:
            next_s = progress.wall_s + LINE_EVERY_S
            done = f"{progress.trials - progress.to_do:,} of {progress.trials:,} trials"
            line = ", ".join(filter(None, [done, words(progress)]))
            print(f"{progress.wall_s:.0f} s: {line}", file=console.file, flush=True)

    return show


def _bar(bar: Bar) -> Show:
    task = bar.add_task("", total=None, shown=None, at_s=0.0)
    failures = 0

    def show(progress: "StudyProgress") -> None:
        nonlocal failures
        if progress.failure is not None and not failures:
            failures += 1
            _tell(bar.console, progress)
        done = progress.trials - progress.to_do
        bar.update(
            task, total=progress.trials, completed=done, shown=progress, at_s=time.monotonic()
        )

    return show


def _tell(console: Console, progress: "StudyProgress") -> None:
    """The first failure at once: whoever watches may want to stop; the others at the end."""
    console.print(Text(f"{progress.trial} failed: {progress.failure}"), soft_wrap=True)


class _Words(TextColumn):
    """What there is room for, the time left as it runs down."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        progress: StudyProgress | None = task.fields["shown"]
        if progress is None:
            return Text("")
        told = words(progress, time.monotonic() - task.fields["at_s"])
        return Text(told, no_wrap=True, overflow="ellipsis")
