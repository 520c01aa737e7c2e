"""A result as a person reads it."""

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .result import Result

__all__ = ["print_result"]

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
