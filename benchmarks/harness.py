"""Benchmark results: our figures next to a limit, or a plainer way, from the same run."""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    *("Result", "Row", "alternate", "as_markdown", "machine", "medians"),
    *("print_result", "rate_gb_s", "timed"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison; both figures are in `unit`."""

    name: str
    ours: float
    reference: float
    unit: str
    note: str = ""
    """The reference, and further counts."""

    @property
    def ratio(self) -> float:
        """Ours over the reference; 0 where the reference is 0."""
        return self.ours / self.reference if self.reference else 0.0

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a table row."""
        figures = (_number(self.ours), _number(self.reference), f"{self.ratio:.3f}")
        return (self.name, *figures, self.unit, self.note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All comparisons of one benchmark."""

    name: str
    title: str
    """One line that says what was measured."""
    rows: tuple[Row, ...]
    ours: str = "rumor"
    """Heading of our figures."""
    reference: str = "reference"
    wall_s: float = 0.0
    """Duration of the measurement, seconds."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of a row's cells."""
        return ("what", self.ours, self.reference, "ratio", "unit", "reference and notes")


def machine() -> str:
    """Return CPU model, cores and versions, in one line."""
    # Imported here because it loads torch, which `topology` must not.
    from rumor.train.storage.environment import processor

    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "pyzmq"))
    python = platform.python_version()
    return f"{processor()}, {os.cpu_count()} cores, Python {python}, {versions}"


def print_result(result: Result, console: Console) -> None:
    """Print a result as a table, with its notes below."""
    console.print()
    console.print(Text(f"{result.name}: {result.title} ({result.wall_s:.0f} s)"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, heading in enumerate(result.columns[:5]):
        table.add_column(heading, justify="right" if 1 <= index <= 3 else "left", no_wrap=index > 0)
    for row in result.rows:
        table.add_row(*map(Text, row.cells[:5]))
    console.print(table)
    for note in dict.fromkeys(row.note for row in result.rows if row.note):
        names = ", ".join(row.name for row in result.rows if row.note == note)
        console.print(Text(f"{names}: {note}", style="dim"))


def as_markdown(result: Result) -> str:
    """Return a Markdown section with the result's table."""
    lines = [result.columns, ("---", "---:", "---:", "---:", "---", "---")]
    table = [f"| {' | '.join(cells)} |" for cells in (*lines, *(row.cells for row in result.rows))]
    title = f"{result.title}; it took {result.wall_s:.0f} s."
    return "\n".join([f"## {result.name}", "", title, "", *table])


def _number(value: float) -> str:
    """Format with three significant digits and thousands separators."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


_T = TypeVar("_T")
_Key = TypeVar("_Key")


def alternate(ways: Mapping[_Key, Callable[[], Sequence[_T]]], rounds: int) -> dict[_Key, list[_T]]:
    """Return the measurements of several ways, each called once in each of some rounds."""
    # In turn, so that a slow minute falls on all; the first calls fill caches and buffers.
    for way in ways.values():
        way()
    found: dict[_Key, list[_T]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].extend(way())
    return found


def medians(ways: Mapping[str, Callable[[], Sequence[float]]], rounds: int) -> dict[str, float]:
    """Measure as `alternate` does, and return the median of each way."""
    return {name: median(found) for name, found in alternate(ways, rounds).items()}


def timed(action: Callable[[], object], times: int = 1) -> list[float]:
    """Call *action* several times and return how long each call took, seconds."""
    taken_s = []
    for _ in range(times):
        start_s = time.perf_counter()
        action()
        taken_s.append(time.perf_counter() - start_s)
    return taken_s


def rate_gb_s(size_bytes: int, taken_s: Sequence[float]) -> float:
    """Return the median rate of moving *size_bytes*, in GB/s (10**9 bytes)."""
    return size_bytes / median(taken_s) / 1e9
