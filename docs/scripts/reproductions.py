"""Make published tables again, and write them to docs/reproductions.md.

``make reproductions``, from the root of the repository; it takes some twenty minutes. Names behind
``python docs/scripts/reproductions.py`` choose the tables that are made again; the others stay.
What stands above the marker on the page is written by hand, and kept.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rumor.benchmarks import Result
from rumor.benchmarks.published.registry import REPRODUCTIONS

__all__ = ["MARKER", "PAGE", "main", "sections", "table"]

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


def sections(text: str) -> dict[str, str]:
    """Tables of a page, by name, each with its heading."""
    found = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    pairs = zip(found[::2], found[1::2], strict=True)
    return {name: f"## {name}{below.rstrip()}\n" for name, below in pairs}


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *REPRODUCTIONS], help="all unless given")
    made: dict[str, str] = {}
    for name in parser.parse_args().names or list(REPRODUCTIONS):
        print(f"{name} ...", file=sys.stderr, flush=True)
        start_s = time.perf_counter()
        result = REPRODUCTIONS[name]()
        lines = table(result, f"rumor reproduce {name}", time.perf_counter() - start_s)
        made[name] = "\n".join([*lines, result.machine]) + "\n"
    # Only now: somebody may have written on the page meanwhile.
    head, _, below = PAGE.read_text(encoding="utf-8").partition(MARKER)
    kept = sections(below) | made
    shown = [kept[name] for name in REPRODUCTIONS if name in kept]
    PAGE.write_text("\n".join([f"{head}{MARKER}\n", *shown]), encoding="utf-8")


if __name__ == "__main__":
    main()
