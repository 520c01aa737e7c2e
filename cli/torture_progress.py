"""How a campaign of faults goes, on stderr: a bar with an estimate, or now and then a line.

A seed that fails is told at once: a long campaign need not end before somebody looks at it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from ..sim.torture import Progress, Trial

__all__ = ["display_on", "words"]

LINE_EVERY_S = 5.0
BAR_EVERY_S = 0.1

WORTH_ESTIMATING_S = 2.0
"""Time on the wall before which the estimate of the rest would be a guess."""


@contextmanager
def display_on(stream: TextIO, seeds: int) -> Iterator[Progress]:
    """Show a campaign on *stream*, in the way that it can.

    Args:
        stream: Usually stderr.
        seeds: How many there are.
    """
    console, began_s = Console(file=stream), time.monotonic()
    if not console.is_terminal:
        yield _lines(stream, seeds, began_s)
        return
    columns = BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("seeds{task.fields[words]}")
    with Bar(*columns, console=console, auto_refresh=False, transient=True) as bar:
        yield _bar(bar, seeds, began_s)


def words(done: int, seeds: int, failed: int, wall_s: float) -> str:
    """What is known of how it goes and when it ends, beside the number of seeds.

    >>> words(100, 400, 0, 10.0)
    ', none failed, about 30 s left'
    """
    parts = [f"{failed} failed" if failed else "none failed"]
    if wall_s >= WORTH_ESTIMATING_S and done:
        left_s = wall_s * (seeds - done) / done
        minutes = round(left_s / 60)
        parts.append(f"about {minutes} min left" if left_s >= 100 else f"about {left_s:.0f} s left")
    return "".join(f", {part}" for part in parts)


def _lines(stream: TextIO, seeds: int, began_s: float) -> Progress:
    """Plain lines: one every few seconds, if it takes so long."""
    next_s, told_of = LINE_EVERY_S, 0

    def show(done: int, failed: Sequence[Trial]) -> None:
        nonlocal next_s, told_of
        wall_s = time.monotonic() - began_s
        for trial in failed[told_of:]:
            print(_broke(trial), file=stream, flush=True)
        told_of = len(failed)
        if wall_s >= next_s:
            next_s = wall_s + LINE_EVERY_S
            told = words(done, seeds, len(failed), wall_s)
            print(f"{wall_s:.0f} s: {done:,} of {seeds:,} seeds{told}", file=stream, flush=True)

    return show


def _bar(bar: Bar, seeds: int, began_s: float) -> Progress:
    task = bar.add_task("", total=seeds, words="")
    next_s, told_of = 0.0, 0

    def show(done: int, failed: Sequence[Trial]) -> None:
        nonlocal next_s, told_of
        wall_s = time.monotonic() - began_s
        for trial in failed[told_of:]:
            bar.console.print(Text(_broke(trial), style="red"), soft_wrap=True)
        told_of = len(failed)
        if wall_s >= next_s:
            next_s = wall_s + BAR_EVERY_S
            told = words(done, seeds, len(failed), wall_s)
            bar.update(task, completed=done, words=told, refresh=True)

    return show


def _broke(trial: Trial) -> str:
    failure = trial.failure
    assert failure is not None
    return f"seed {trial.seed} broke {failure.invariant} at {failure.at_s:.3f} s: {failure.what}"
