"""What commands show on a terminal or in a log: progress, tables, figures with their meaning."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..sim.study import StudyProgress

__all__ = [
    "LINE_EVERY_S",
    "Progress",
    "Row",
    "duration",
    "plain_table",
    "print_rows",
    "progress_on",
    "study_progress_on",
    "study_words",
    "time_left",
]

LINE_EVERY_S = 5.0
"""Between two lines about the same, where nothing can be drawn in place."""

BAR_EVERY_S = 0.1


class Row(NamedTuple):
    """One figure, and what it means."""

    name: str
    value: str
    words: str


def plain_table(*columns: str, right: Iterable[str] = (), header: bool = True) -> Table:
    """Make a table without lines.

    Args:
        columns: Their titles.
        right: Those of numbers, which are aligned on the right and never folded.
        header: Whether the titles are shown.
    """
    table = Table(
        box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), show_header=header
    )
    numbers = set(right)
    for column in columns:
        is_number = column in numbers
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number)
    return table


def print_rows(
    title: str, rows: Iterable[Row], console: Console, header: tuple[str, str, str] | None = None
) -> None:
    """Print figures with their meaning, below a title.

    Args:
        title: One line about what they are of.
        rows: In the order in which they are shown.
        console: Where to.
        header: Titles of the three columns; none are shown unless given.
    """
    table = plain_table(*(header or Row("name", "value", "words")), header=header is not None)
    table.columns[0].no_wrap = True
    if header is None:
        table.columns[0].style, table.columns[1].no_wrap = "dim", True
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print()
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


class Progress(Protocol):
    """Shows how a computation goes."""

    def is_due(self, wall_s: float) -> bool:
        """Whether it is time to show something again, so long after the start."""

    def show(self, done: float | None, words: str, line: str) -> None:
        """Show how far it is.

        Args:
            done: Of the total; None where nobody knows.
            words: Beside a bar, what matters most first: a narrow terminal cuts off the rest.
            line: The same where there is no bar.
        """

    def tell(self, sentence: str) -> None:
        """Say at once what has happened."""


@contextmanager
def progress_on(
    stream: TextIO, title: str = "", *, total: int | None = None, unit: str = ""
) -> Iterator[Progress]:
    """Show progress on *stream*: a bar on a terminal, now and then a line elsewhere.

    Args:
        stream: Usually stderr.
        title: One line about what runs; none is written unless given.
        total: How many there are of what is counted; unless given, progress is a part of 1.
        unit: What is counted.
    """
    console = Console(file=stream)
    if not console.is_terminal:
        yield _Lines(stream, title)
        return
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    with RichProgress(
        *_columns(total, unit), console=console, auto_refresh=False, transient=True
    ) as bar:
        yield _Bar(bar, total)


def time_left(done: float | None, wall_s: float, since_s: float) -> list[str]:
    """Estimate how long a computation still takes, in words; nothing where that is a guess.

    Args:
        done: Part that is done, in [0, 1].
        wall_s: Time that this took.
        since_s: Time before which an estimate would be a guess.

    >>> time_left(0.25, 10.0, 2.0)
    ['about 30 s left']
    """
    if not done or wall_s < since_s:
        return []
    left_s = wall_s * (1 - done) / done
    return [
        f"about {round(left_s / 60)} min left" if left_s >= 100 else f"about {left_s:.0f} s left"
    ]


def _columns(total: int | None, unit: str) -> list[ProgressColumn]:
    if total is None:
        return [BarColumn(bar_width=16), TextColumn("{task.percentage:>3.0f}%"), _Words()]
    return [BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn(unit), _Words()]


class _Lines:
    """Plain lines: the title at the start, one every few seconds, one for each piece of news."""

    def __init__(self, stream: TextIO, title: str) -> None:
        self._stream = stream
        self._next_s = LINE_EVERY_S
        if title:
            self.tell(title)

    def is_due(self, wall_s: float) -> bool:
        if wall_s < self._next_s:
            return False
        self._next_s = wall_s + LINE_EVERY_S
        return True

    def show(self, done: float | None, words: str, line: str) -> None:
        self.tell(line)

    def tell(self, sentence: str) -> None:
        print(sentence, file=self._stream, flush=True)


class _Bar:
    """A bar that is drawn in place, with news above it."""

    def __init__(self, bar: RichProgress, total: int | None) -> None:
        self._bar = bar
        self._total = 1.0 if total is None else total
        # Without a known end, a bar moves to and fro.
        self._task = bar.add_task("", total=total, words="")
        self._next_s = 0.0

    def is_due(self, wall_s: float) -> bool:
        if wall_s < self._next_s:
            return False
        self._next_s = wall_s + BAR_EVERY_S
        return True

    def show(self, done: float | None, words: str, line: str) -> None:
        if done is not None:
            self._bar.update(self._task, total=self._total, completed=done)
        self._bar.update(self._task, words=words, refresh=True)

    def tell(self, sentence: str) -> None:
        self._bar.console.print(Text(sentence, style="red"), soft_wrap=True)


class _Words(TextColumn):
    """What there is room for; a bar of two lines could not be drawn in place."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        return Text(task.fields["words"], no_wrap=True, overflow="ellipsis")


ShowStudy = Callable[["StudyProgress"], None]


@contextmanager
def study_progress_on(stream: TextIO) -> Iterator[ShowStudy]:
    """Show a study on *stream*, in the way that it can.

    Args:
        stream: Usually stderr.
    """
    console = Console(file=stream)
    if not console.is_terminal:
        yield _study_lines(console)
        return
    columns = BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("trials"), _StudyWords()
    with RichProgress(*columns, console=console, refresh_per_second=4, transient=True) as bar:
        yield _study_bar(bar)


def study_words(progress: "StudyProgress", since_s: float = 0.0) -> str:
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


def _study_lines(console: Console) -> ShowStudy:
    """Plain lines: one every few seconds at most, and one for the first failure."""
    next_s = LINE_EVERY_S
    failures = 0

    def show(progress: "StudyProgress") -> None:
        nonlocal next_s, failures
        if progress.failure is not None and not failures:
            failures += 1
            _tell_failure(console, progress)
        if progress.wall_s >= next_s:
            next_s = progress.wall_s + LINE_EVERY_S
            done = f"{progress.trials - progress.to_do:,} of {progress.trials:,} trials"
            line = ", ".join(filter(None, [done, study_words(progress)]))
            print(f"{progress.wall_s:.0f} s: {line}", file=console.file, flush=True)

    return show


def _study_bar(bar: RichProgress) -> ShowStudy:
    task = bar.add_task("", total=None, shown=None, at_s=0.0)
    failures = 0

    def show(progress: "StudyProgress") -> None:
        nonlocal failures
        if progress.failure is not None and not failures:
            failures += 1
            _tell_failure(bar.console, progress)
        done = progress.trials - progress.to_do
        bar.update(
            task, total=progress.trials, completed=done, shown=progress, at_s=time.monotonic()
        )

    return show


def _tell_failure(console: Console, progress: "StudyProgress") -> None:
    """The first failure at once: whoever watches may want to stop; the others at the end."""
    console.print(Text(f"{progress.trial} failed: {progress.failure}"), soft_wrap=True)


class _StudyWords(TextColumn):
    """What there is room for, the time left as it runs down."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        progress: StudyProgress | None = task.fields["shown"]
        if progress is None:
            return Text("")
        told = study_words(progress, time.monotonic() - task.fields["at_s"])
        return Text(told, no_wrap=True, overflow="ellipsis")
