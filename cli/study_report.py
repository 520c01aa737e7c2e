"""What a study came to, as a person reads it in a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .study_progress import duration

if TYPE_CHECKING:
    from ..sim.study import Results, Study, StudyPlan
    from ..sim.study.comparison import Comparison, Row

__all__ = ["as_json", "outline", "print_plan", "print_results", "print_studies"]

ROWS_MAX = 12
"""Of one ranking; the report has them all."""

TIED = "tied"

PLACES_MAX = 3
"""Rankings, one for each place of the further axes; the report has them all."""


def outline(plan: "StudyPlan") -> str:
    """Say in a line what is to be computed, and what that takes."""
    cells = len(plan.cells) + len(plan.bad)
    parts = [f"{cells:,} cell{'s' * (cells != 1)} ({plan.shape})"]
    if plan.finished:
        parts.append(f"{plan.finished:,} finished before")
    if not plan.to_do:
        return f"{', '.join(parts)}: nothing is left to compute"
    side_by_side = "" if plan.jobs is None else f" on {_processes(plan.jobs)}"
    if plan.wall_s is not None:
        parts.append(f"about {duration(plan.wall_s)}{side_by_side}")
    elif plan.seconds is not None:
        parts.append(f"about {duration(sum(plan.seconds))} of one core")
    else:
        parts.append(f"{len(plan.to_do):,} to compute{side_by_side}")
    return ", ".join([*parts, f"{plan.memory_gib:.1f} GiB each"])


def print_plan(plan: "StudyPlan", console: Console) -> None:
    """List all cells: which are finished, and what the others take."""
    took = dict(zip([c.key for c in plan.to_do], plan.seconds or (), strict=False))
    to_do = {cell.key for cell in plan.to_do}
    table = _table()
    for axis in plan.study.axes:
        table.add_column(axis.name)
    table.add_column("seed", justify="right")
    table.add_column("", justify="right")
    for cell in plan.cells:
        is_done = cell.key not in to_do
        state = "finished" if is_done else f"{duration(took[cell.key])}" if took else "to do"
        table.add_row(*map(Text, (*cell.cell.group, str(cell.cell.seed), state)))
    console.print(table)


def print_results(results: "Results", folder: Path, console: Console, report: Path | None) -> None:
    """Print what came out: findings, who is first, and where all is."""
    from ..sim.study.comparison import comparisons
    from ..sim.study.findings import findings

    console.print()
    console.print(Text(results.study.title, style="bold"), soft_wrap=True)
    for sentence in findings(results):
        console.print(Text(f"- {sentence}"))
    found = comparisons(results)
    for comparison in found[:PLACES_MAX]:
        _print_comparison(comparison, console)
    if len(found) > PLACES_MAX:
        console.print(f"\nand {len(found) - PLACES_MAX} more such rankings", highlight=False)
    console.print()
    _print_failures(results.failures, console)
    where = {"Report": report, "Folder": folder}
    for what, path in where.items():
        if path is not None:
            # A path that is folded cannot be copied.
            console.print(f"{what}: {path}", highlight=False, markup=False, soft_wrap=True)


def print_studies(studies: Sequence[tuple["Study", str]], console: Console) -> None:
    """List studies by name: title, cells, and how long they take where that is known."""
    table = _table()
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("cells", justify="right")
    table.add_column("takes", no_wrap=True)
    table.add_column("title")
    for study, takes in studies:
        cells = sum(1 for _ in study.cells())
        table.add_row(*map(Text, (study.name, f"{cells:,}", takes, study.title)))
    console.print(table)
    console.print(
        "\nrumor study NAME runs one, rumor study NAME --copy FILE.toml gives you its file"
    )


def as_json(results: "Results", folder: Path, report: Path | None) -> dict[str, Any]:
    """What ``--json`` prints."""
    from ..sim.study.comparison import comparisons
    from ..sim.study.findings import findings

    return {
        "study": results.study.name,
        "cells": sum(1 for _ in results.study.cells()),
        "finished": len(results.results),
        "failures": dict(results.failures),
        "target": results.study.target,
        "findings": list(findings(results)),
        "rankings": [
            {
                "at": dict(comparison.at),
                "by": comparison.measure.name,
                "order": [row.label for row in comparison.rows],
                "as_good_as_best": [r.label for r in comparison.rows if r.as_good_as_best],
            }
            for comparison in comparisons(results)
        ],
        "out": str(folder),
        "report": None if report is None else str(report),
    }


def _print_comparison(comparison: "Comparison", console: Console) -> None:
    at = ", ".join(f"{axis} {label}" for axis, label in comparison.at.items())
    table = _table(title=f"{comparison.axis} by {comparison.measure.words}{at and f', {at}'}")
    table.add_column(comparison.axis, style="bold", overflow="fold")
    for name in _columns(comparison):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in comparison.rows[:ROWS_MAX]:
        table.add_row(*map(Text, _cells(row, comparison)))
    console.print()
    console.print(table)
    if len(comparison.rows) > ROWS_MAX:
        console.print(f"and {len(comparison.rows) - ROWS_MAX} more", highlight=False)
    if comparison.tied:
        console.print(f"{TIED}: as good as the first, within the noise", style="dim")


def _columns(comparison: "Comparison") -> list[str]:
    """Names of what `_cells` says; short, because a terminal is narrow."""
    measure = comparison.measure
    names = ["time to it" if measure.name == "time_to_target_s" else measure.words]
    if comparison.has_target:
        names += [f"reached {comparison.target:g}", "bytes to it"]
        if measure.name != "accuracy":
            names.append("final accuracy")
    return names


def _cells(row: "Row", comparison: "Comparison") -> list[str]:
    from ..sim.study import words
    from ..sim.study.measures import MEASURES

    found = row.figures.get(comparison.measure.name)
    first = "-" if found is None else words.spread(found)
    cells = [row.label, f"{first} {comparison.measure.unit}".strip() if found else first]
    if comparison.has_target:
        sent = row.figures.get("bytes_to_target")
        accuracy = row.figures.get("accuracy")
        cells += [
            f"{row.reached} of {row.n}",
            "-" if sent is None else MEASURES["bytes_to_target"].shown(sent.mean),
        ]
        if comparison.measure.name != "accuracy":
            cells.append("-" if accuracy is None else words.spread(accuracy))
    is_best = comparison.best is not None and row.label == comparison.best.label
    tied = TIED if row.as_good_as_best and not is_best else ""
    return [*cells, tied]


def _print_failures(failures: Mapping[str, str], console: Console) -> None:
    """Every reason once, with the cells that it stopped."""
    cells: dict[str, list[str]] = {}
    for cell, why in failures.items():
        cells.setdefault(why, []).append(cell)
    for why, which in cells.items():
        console.print(Text(f"{len(which)} failed: {why}", style="bold red"), soft_wrap=True)
        for cell in which:
            console.print(Text(f"    {cell}"), soft_wrap=True)


def _processes(count: int) -> str:
    return f"{count} process{'es' * (count != 1)}"


def _table(title: str | None = None) -> Table:
    return Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        title=title,
        title_justify="left",
        header_style="dim",
    )
