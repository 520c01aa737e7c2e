"""Make published tables again, and write them to docs/reproductions.md.

``make reproductions``, from the root of the repository; it takes some ten minutes. What stands
above the marker on the page is written by hand, and kept.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rumor.benchmarks import Result
from rumor.benchmarks.published.registry import REPRODUCTIONS

__all__ = ["MARKER", "PAGE", "main", "table"]

PAGE = Path("docs/reproductions.md")
MARKER = (
    "<!-- Below, all is written by docs/scripts/reproductions.py: run `make reproductions`, do not "
    "edit. -->"
)


def table(result: Result, command: str, taken_s: float) -> Iterator[str]:
    """The section of one table, line by line."""
    what, ours, reference, ratio, _, note = result.columns
    yield f"## {result.name}"
    yield ""
    yield f"{result.title}. `{command}`, {taken_s:.0f} s."
    yield ""
    yield f"| {what} | {reference} | {ours} | {ratio} | {note} |"
    yield "|---|---|---|---|---|"
    for row in result.rows:
        published = _figure(row.reference) if row.reference else "-"
        ratio = f"{row.ratio:.2f}" if row.reference else "-"
        yield f"| {row.name} | {published} | {_figure(row.ours)} | {ratio} | {row.note} |"
    yield ""


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:.3g}"


def main() -> None:
    """Write the page."""
    head = PAGE.read_text().partition(MARKER)[0]
    lines = [MARKER, ""]
    for name, reproduce in REPRODUCTIONS.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        start_s = time.perf_counter()
        result = reproduce()
        lines += table(result, f"rumor reproduce {name}", time.perf_counter() - start_s)
    lines.append(result.machine)
    PAGE.write_text(head + "\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
