"""What a benchmark found: figures of ours beside a limit, or a plainer way, of the same run."""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import torch
import zmq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..train.storage.environment import processor

__all__ = [
    "Result",
    "Row",
    "Vitals",
    "alternate",
    "machine",
    "medians",
    "percentile",
    "print_drawn",
    "print_result",
    "rate_gb_s",
    "timed",
    "vitals",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison."""

    name: str
    ours: float
    """Our figure, in `unit`."""
    reference: float
    """The figure that ours is held against, in `unit`."""
    unit: str
    note: str = ""
    """What the reference is where the column does not say, and what else was counted."""

    @property
    def ratio(self) -> float:
        """Ours over the reference; 0 where the reference is 0."""
        return self.ours / self.reference if self.reference else 0.0

    def as_json(self) -> dict[str, Any]:
        """The row under the names of its fields, and its ``ratio``."""
        return asdict(self) | {"ratio": self.ratio}


def machine() -> str:
    """One line: CPU model, cores and versions."""
    return (
        f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, pyzmq {zmq.__version__} (libzmq {zmq.zmq_version()})"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All comparisons of one benchmark."""

    name: str
    title: str
    """One line: what was measured, and which way is better."""
    rows: tuple[Row, ...]
    columns: tuple[str, str, str, str, str, str] = (
        *("what", "rumor", "reference", "ratio", "unit"),
        "reference and notes",
    )
    """Headings of the six fields of a row."""
    machine: str = field(default_factory=machine)
    """CPU, cores, versions."""
    wall_s: float = 0.0
    """How long measuring took, seconds; set by whoever asked for it, as is the date."""
    date: str = ""
    """In ISO's form."""

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain lists, numbers and texts."""
        return asdict(self) | {"rows": [row.as_json() for row in self.rows]}


def print_drawn(result: Result, picture: Path | str) -> None:
    """Print a result and where it was drawn."""
    print_result(result, Console())
    print(f"\n{result.machine}; drawn in {picture}")


# Columns of a terminal beyond which a note fits beside its figures.
_WIDE: Final = 120


def print_result(result: Result, console: Console) -> None:
    """Print a result as a table.

    Args:
        result: What was found.
        console: Where to.
    """
    console.print()
    console.print(Text(f"{result.name}: {result.title}"), soft_wrap=True)
    if console.width >= _WIDE:
        console.print(_table(result, notes=True))
        return
    console.print(_table(result, notes=False))
    for note in dict.fromkeys(row.note for row in result.rows):
        names = ", ".join(row.name for row in result.rows if row.note == note)
        console.print(Text(f"{names}: {note}", style="dim"))


def _table(result: Result, *, notes: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    what, ours, reference, ratio, unit, note = result.columns
    table.add_column(what, no_wrap=True)
    for heading in (ours, reference, ratio):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(unit, no_wrap=True)
    if notes:
        table.add_column(note)
    for row in result.rows:
        figures = (_number(row.ours), _number(row.reference), f"{row.ratio:.3f}")
        cells = (row.name, *figures, row.unit, *([row.note] if notes else []))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _number(value: float) -> str:
    """Three digits that count, and thousands apart.

    >>> _number(104776.4), _number(0.4731), _number(12.34)
    ('104,776', '0.473', '12.3')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


_T = TypeVar("_T")


def alternate(ways: Mapping[str, Callable[[], Sequence[_T]]], rounds: int) -> dict[str, list[_T]]:
    """Measure several ways in turn, so that a slow minute of the machine falls on all of them.

    Args:
        ways: Each takes some measurements when called. The first call is not counted: it fills
            caches and buffers.
        rounds: Calls of each that count.

    Returns:
        All measurements of each way, in the order taken.
    """
    for way in ways.values():
        way()
    found: dict[str, list[_T]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].extend(way())
    return found


def medians(ways: Mapping[str, Callable[[], Sequence[float]]], rounds: int) -> dict[str, float]:
    """Measure as `alternate` does, and return the median of each way."""
    return {name: median(found) for name, found in alternate(ways, rounds).items()}


def timed(action: Callable[[], object], times: int) -> list[float]:
    """Do something several times and return how long each took, seconds."""
    taken_s = []
    for _ in range(times):
        start_s = time.perf_counter()
        action()
        taken_s.append(time.perf_counter() - start_s)
    return taken_s


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of *values* that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def rate_gb_s(size_bytes: int, taken_s: Sequence[float]) -> float:
    """The median rate of moving *size_bytes*, in GB/s (10**9 bytes)."""
    return size_bytes / median(taken_s) / 1e9


@dataclass(frozen=True, slots=True)
class Vitals:
    """One look at a process."""

    rss_bytes: int
    """Resident memory, with what it shares with others."""
    pss_bytes: int
    """The same, with its part only of what is shared."""
    threads: int
    files: int
    """Open file descriptors."""


def vitals(pid: int) -> Vitals:
    """Look at a process.

    Args:
        pid: Its number at the system.

    Raises:
        OSError: There is none, or it is not ours to look at.
    """
    process = Path(f"/proc/{pid}")
    memory = _kilobytes(process / "smaps_rollup")
    status = dict(
        line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line
    )
    return Vitals(
        rss_bytes=memory["Rss"] * 1024,
        pss_bytes=memory["Pss"] * 1024,
        threads=int(status["Threads"]),
        files=len(os.listdir(process / "fd")),
    )


def _kilobytes(path: Path) -> dict[str, int]:
    """Lines such as ``Pss:  1234 kB``."""
    words = (line.split() for line in path.read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in words if line[-1] == "kB"}
