"""Write the outputs that pages print below the commands of their examples.

``make outputs``, from the root of the repository. Only outputs that depend on no machine are here:
a command of `EXAMPLES` stands after ``$`` in a fenced block of its page, and its output extends to
the next command, or to the end of the block.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["EXAMPLES", "ROOT", "Example", "main", "printed", "rewritten", "stated"]

ROOT = Path(__file__).parents[2]

CHURN = """[
  {"at_s": 5, "kind": "crash", "peer": 1},
  {"at_s": 8, "kind": "join", "count": 2},
  {"at_s": 15, "kind": "leave", "peer": 2}
]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One command of a page."""

    page: str
    """Path below docs/."""
    command: str
    """Beginning of its line, after ``$``; the page has one such line."""
    rows: Sequence[str] = ()
    """Names of the rows of a table that the page shows, in order; all of the output if empty."""
    blocks: Mapping[str, str] = field(default_factory=dict)
    """Files that the command reads, and the beginnings of the fenced blocks that contain them."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Other files that it reads."""
    is_quick: bool = False
    """True if it takes at most some seconds."""


EXAMPLES = (
    Example(page="explanation/algorithm.md", command="python examples/academic.py", is_quick=True),
    Example(
        page="how-to/simulate.md",
        command="rumor simulate mymodel.py:make ",
        rows=("accuracy", "loss", "consensus distance", "weight", "virtual time", "engine"),
        blocks={"mymodel.py": "import torch\nfrom sklearn"},
    ),
    Example(
        page="how-to/simulate.md",
        command="rumor simulate -n 256 ",
        rows=(
            *("accuracy", "consensus distance", "weight", "virtual time", "reached after"),
            *("messages", "idle"),
        ),
    ),
    Example(
        page="how-to/extend/rule.md",
        command="rumor simulate -n 16 ",
        rows=("accuracy", "weight"),
        blocks={"every_nth.py": "from typing import Annotated"},
    ),
    Example(
        page="explanation/experiments.md",
        command="rumor simulate -n 16 ",
        rows=("accuracy", "healed after", "before healing"),
    ),
)


def stated(example: Example) -> str:
    """Return the output that the page shows."""
    return _found(example, (ROOT / "docs" / example.page).read_text(encoding="utf-8"))[3]


def printed(example: Example) -> str:
    """Return the current output."""
    page = (ROOT / "docs" / example.page).read_text(encoding="utf-8")
    command = _found(example, page)[1]
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        for file, begin in example.blocks.items():
            (block,) = re.findall(rf"^```\w*\n({re.escape(begin)}.*?)^```$", page, re.M | re.S)
            (folder / file).write_text(block, encoding="utf-8")
        for file, text in example.files.items():
            (folder / file).write_text(text, encoding="utf-8")
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=os.environ
            | {
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                # A row of a table on a line of its own; words as on a terminal.
                "COLUMNS": "1000" if example.rows else "80",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    if example.rows:
        return _table(done.stdout, example.rows)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.strip().splitlines())


def rewritten(example: Example, page: str, output: str) -> str:
    """Return a page with an example's current output."""
    above, command, end, _, below = _found(example, page)
    return f"{above}$ {command}{end}{output}{below}"


def main() -> None:
    """Write the pages."""
    for example in EXAMPLES:
        output = printed(example)
        path = ROOT / "docs" / example.page
        path.write_text(rewritten(example, path.read_text(encoding="utf-8"), output), "utf-8")
        print(f"{example.page}: {example.command}\n{output}")


def _found(example: Example, page: str) -> tuple[str, str, str, str, str]:
    """Split a page in five: up to the command, the command, its end, its output, the rest."""
    pattern = rf"^\$ ({re.escape(example.command)}[^\n]*)(\n)(.*?)(?=^(?:\$ |```$))"
    (match,) = re.finditer(pattern, page, re.M | re.S)
    return (page[: match.start()], *match.groups(), page[match.end() :])


def _table(output: str, names: Sequence[str]) -> str:
    """Return some rows of a table, whose columns are separated by two or more spaces."""
    rows = [re.split(r" {2,}", line.strip(), maxsplit=2) for line in output.splitlines()]
    known = {row[0]: row for row in rows if len(row) == 3}
    chosen = [known[name] for name in names]
    first, second = (max(len(row[column]) for row in chosen) for column in (0, 1))
    return "".join(f"{a:{first}}  {b:{second}}  {c}\n" for a, b, c in chosen)


if __name__ == "__main__":
    main()
