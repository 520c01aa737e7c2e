"""A table of a paper made again: printed, or with ``--write`` put into README.md in its place."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["show"]

PAGE = Path(__file__).with_name("README.md")
START_S = time.perf_counter()


def show(
    name: str,
    title: str,
    head: tuple[str, str, str],
    rows: Iterable[tuple[str, float, float, str]],
) -> None:
    """Print a table, or write it.

    Args:
        name: Its heading.
        title: One line above it.
        head: What a row is, whose the reference is, and whose the other figure.
        rows: Name, reference (0 where there is none), measured figure and note of each.
    """
    lines = [f"| {' | '.join(head)} | ratio | note |", "|---|---:|---:|---:|---|"]
    for what, reference, measured, note in rows:
        of = (_figure(reference), f"{measured / reference:.2f}") if reference else ("-", "-")
        lines.append(f"| {what} | {of[0]} | {_figure(measured)} | {of[1]} | {note} |")
    took = f"{time.perf_counter() - START_S:.0f} s"
    script = Path(sys.argv[0]).name
    section = "\n".join([f"{title}. `python docs/reproductions/{script}`, {took}.", "", *lines])
    if "--write" not in sys.argv:
        print(f"\n{name}: {section}")
        return
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"## {name}\n")
    after = "".join(rest.partition("\n## ")[1:])
    PAGE.write_text(f"{before}## {name}\n\n{section}\n{after}", encoding="utf-8")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:.3g}"
