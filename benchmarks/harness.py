"""Benchmark results: our figures next to a limit, or a plainer way, from the same run."""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import TypeVar

from rumor.train.storage.environment import processor

__all__ = [
    *("Result", "Row", "alternate", "as_markdown", "machine", "medians"),
    *("rate_gb_s", "timed"),
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
    def cells(self) -> tuple[str, ...]:
        """The cells of a table row, with the ratio of ours to the reference."""
        ratio = f"{self.ours / self.reference:.3f}" if self.reference else "-"
        return (self.name, _number(self.ours), _number(self.reference), ratio, self.unit, self.note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All comparisons of one benchmark."""

    name: str
    title: str
    """One line that says what was measured."""
    rows: tuple[Row, ...]
    wall_s: float = 0.0
    """Duration of the measurement, seconds."""


def machine() -> str:
    """Return CPU model, cores and versions, in one line."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "pyzmq"))
    python = platform.python_version()
    return f"{processor()}, {os.cpu_count()} cores, Python {python}, {versions}"


def as_markdown(result: Result) -> str:
    """Return a Markdown section with the result's table."""
    columns = ("what", "rumor", "reference", "ratio", "unit", "reference and notes")
    lines = [columns, ("---", "---:", "---:", "---:", "---", "---")]
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
