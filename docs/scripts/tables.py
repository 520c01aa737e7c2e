"""Put tables of benchmarks into docs/explanation/performance.md, from what ``--json`` printed:

    rumor bench storm --json > storm.json
    python docs/scripts/tables.py storm.json

Each table stands between ``<!-- NAME: a table -->`` and ``<!-- end of NAME -->``. Paths are
relative to the root of the repository.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "main", "put", "table"]

PAGE = Path("docs/explanation/performance.md")


def table(benchmark: Mapping[str, Any]) -> str:
    """One benchmark's result as it stands in the page: its conditions, and its rows."""
    lines = [
        f"{benchmark['title']}; {benchmark['date']}, {benchmark['wall_s'] / 60:.0f} min in all, "
        f"{benchmark['machine']}:",
        "",
        f"| {' | '.join(benchmark['columns'])} |",
        "|---|---:|---:|---:|---|---|",
    ]
    for row in benchmark["rows"]:
        figures = [f"{row['ours']:.4g}", f"{row['reference']:.4g}", f"{row['ratio']:.3g}"]
        cells = [row["name"], *figures, row["unit"], row["note"]]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def put(page: str, benchmark: Mapping[str, Any]) -> str:
    """The page with a benchmark's table in place of the one before.

    Raises:
        SystemExit: The page has no place for it.
    """
    name = benchmark["name"]
    begin, end = f"<!-- {name}: a table -->\n", f"<!-- end of {name} -->"
    head, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{PAGE} has no place for {name}")
    return f"{head}{begin}{table(benchmark)}\n{end}{rest.partition(end)[2]}"


def main(files: Sequence[str]) -> None:
    """Put the tables of all these files into the page."""
    page = PAGE.read_text()
    for file in files:
        for benchmark in json.loads(Path(file).read_text().splitlines()[-1])["benchmarks"]:
            page = put(page, benchmark)
    PAGE.write_text(page)


if __name__ == "__main__":
    main(sys.argv[1:])
