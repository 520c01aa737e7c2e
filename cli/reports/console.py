"""Output on a terminal or in a log: progress, tables, figures with their meaning."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column, Table
from rich.text import Text

__all__ = [
    *("LINE_EVERY_S", "Progress", "counted", "plain_table", "print_json", "print_path"),
    *("print_rows", "progress_on"),
]

LINE_EVERY_S = 5.0
"""Seconds between two lines about the same, where a line cannot be redrawn in place."""

BAR_EVERY_S = 0.1


def plain_table(*columns: str, title: str | None = None, header: bool = True) -> Table:
    """Make a table without lines.

    Titles of columns of numbers begin with ``>``: these are aligned on the right, and never folded;
    nor is the first column.
    """
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        # Titles of studies and axes are users' words, not markup.
        title=None if title is None else Text(title),
        title_justify="left",
        show_header=header,
        header_style="dim",
    )
    for index, column in enumerate(columns):
        is_number = column.startswith(">")
        table.add_column(
            Text(column.removeprefix(">")),
            justify="right" if is_number else "left",
            no_wrap=is_number or index == 0,
        )
    return table


def print_rows(title: str, rows: Iterable[tuple[str, str, str]], console: Console) -> None:
    """Print figures with their meaning, below a title."""
    table = plain_table("", "", "", header=False)
    table.columns[0].style, table.columns[1].no_wrap = "dim", True
    for row in rows:
        table.add_row(*map(Text, row))
    console.print()
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def print_path(what: str, path: object, console: Console) -> None:
    """Print a path on one line: a path that is folded cannot be copied."""
    console.print(f"{what}: {path}", highlight=False, markup=False, soft_wrap=True)


def print_json(answer: Any) -> None:
    """Print the output of ``--json``: one line of valid JSON."""
    print(json.dumps(answer, allow_nan=False))


class Progress(Protocol):
    """Shows the progress of a computation."""

    def __call__(self, wall_s: float, done: float | None, line: str, *news: str | Text) -> None:
        """Show events at once, and the progress if it is time to.

        Args:
            wall_s: Time since its start, seconds.
            done: Finished part, in [0, 1]; None if unknown.
            line: What is done, most important first: a narrow terminal cuts off the rest.
            news: Sentences about events, in red unless they have a style.
        """


@contextmanager
def progress_on(stream: TextIO, title: str = "") -> Iterator[Progress]:
    """Show progress on *stream*, usually stderr: a bar on a terminal, else a line now and then.

    The title comes with the first report: before that, invalid settings may be refused.
    """
    console = Console(file=stream)
    every_s = BAR_EVERY_S if console.is_terminal else LINE_EVERY_S
    next_s = 0.0 if console.is_terminal else LINE_EVERY_S

    def show(wall_s: float, done: float | None, line: str, *news: str | Text) -> None:
        nonlocal next_s, title
        if title:
            console.print(Text(title, style="bold"), soft_wrap=True)
            title = ""
        for sentence in news:
            styled = sentence if isinstance(sentence, Text) else Text(sentence, style="red")
            console.print(styled, soft_wrap=True)
        if wall_s < next_s:
            return
        next_s = wall_s + every_s
        if bar is None:
            console.print(Text(f"{wall_s:.0f} s: {line}"), soft_wrap=True)
        else:
            # Without a known end, a bar moves to and fro.
            total = None if done is None else 1.0
            bar.update(task, total=total, completed=done, words=line, refresh=True)

    if not console.is_terminal:
        bar = None
        yield show
        return
    percent = TextColumn("{task.percentage:>3.0f}%")
    # Cut to the available room: a bar of two lines could not be drawn in place.
    cut = Column(no_wrap=True, overflow="ellipsis")
    words = TextColumn("{task.fields[words]}", markup=False, table_column=cut)
    with RichProgress(
        *(BarColumn(bar_width=16), percent, words),
        console=console,
        auto_refresh=False,
        transient=True,
    ) as bar:
        task = bar.add_task("", words="")
        yield show


def counted(count: int, name: str) -> str:
    """Format a number of things.

    >>> counted(1, "trial"), counted(4_000, "trial")
    ('1 trial', '4,000 trials')
    """
    return f"{count:,} {name}{'s' * (count != 1)}"
