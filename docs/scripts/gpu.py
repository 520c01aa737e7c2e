"""Test and measure on a GPU, and write `PAGE`, beside performance.md: ``make gpu``.

From the root of the repository; it takes about half an hour. Each part runs in a process of its
own, so that one that fails leaves the others their device; the page is written after each.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from rumor.benchmarks import Result, Row
from rumor.benchmarks.gpu import AIMS, PARTS, Aim
from rumor.benchmarks.results import machine

__all__ = ["PAGE", "Failure", "main", "measure", "page", "read", "test", "write"]

PAGE = Path("docs/explanation") / "performance-gpu.md"

TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A part that was not measured."""

    name: str
    why: str


def main(arguments: Sequence[str] = ()) -> None:
    """Run everything on a GPU; with the name of a part and a device, print that part as JSON.

    Raises:
        SystemExit: With 2 where there is no GPU, with 1 where something failed.
    """
    if arguments:
        name, device = arguments
        print(json.dumps(PARTS[name](device).as_json()))
        return
    if not torch.cuda.is_available():
        print(
            f"make gpu needs a CUDA device: torch {torch.__version__} finds none", file=sys.stderr
        )
        raise SystemExit(2)
    device = torch.cuda.get_device_properties(0)
    card = f"{device.name}, {device.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"
    if not write(PAGE, card, test, {name: partial(measure, name, "cuda") for name in PARTS}):
        raise SystemExit(1)


def write(
    path: Path,
    card: str,
    tests: Callable[[], tuple[bool, str]],
    parts: Mapping[str, Callable[[], Result | Failure]],
) -> bool:
    """Run tests and parts one after another, and write the page after each.

    Args:
        path: Where the page goes.
        card: What is measured.
        tests: Runs the tests; whether they have passed, and a summary.
        parts: What to measure, by name.

    Returns:
        Whether all of it went well.
    """
    print("testing", file=sys.stderr)
    passed, summary = tests()
    found: list[Result | Failure] = []
    for name, take in parts.items():
        print(f"measuring {name}", file=sys.stderr)
        found.append(take())
        if isinstance(found[-1], Failure):
            print(f"{name}: {found[-1].why}", file=sys.stderr)
        path.write_text(page(card, summary, found))
    return passed and not any(isinstance(each, Failure) for each in found)


def test() -> tuple[bool, str]:
    """Run all tests that need a CUDA device; whether they have passed, and pytest's last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "tests"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, file=sys.stderr)
    return done.returncode == 0, last_line(done.stdout)


def measure(name: str, device: str) -> Result | Failure:
    """Measure a part in a process of its own."""
    command = [sys.executable, __file__, name, device]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Failure(name=name, why=f"it was not over after {TIMEOUT_S} s")
    if done.returncode:
        return Failure(name=name, why=last_line(done.stderr) or f"status {done.returncode}")
    return read(done.stdout)


def read(text: str) -> Result:
    """What `main` has printed of a part."""
    fields = json.loads(last_line(text))
    for row in fields["rows"]:
        del row["ratio"]
    rows = tuple(Row(**row) for row in fields.pop("rows"))
    return Result(rows=rows, columns=tuple(fields.pop("columns")), **fields)


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def page(card: str, tests: str, found: Sequence[Result | Failure]) -> str:
    """The page, as far as it is known.

    Args:
        card: What was measured.
        tests: What pytest said in the end.
        found: Parts, in their order.
    """
    results = {each.name: each for each in found if isinstance(each, Result)}
    lines = [
        "# Performance on a GPU",
        "",
        "What `make gpu` measured, and wrote here: each figure beside a limit, or a plainer way, "
        "of the same run. Aims are for an NVIDIA H100.",
        "",
        f"- GPU: {card}.",
        f"- Machine: {machine()}.",
        f"- Date: {datetime.now(UTC).date().isoformat()}.",
        f"- Tests that need a GPU: {tests}",
        "",
        "## Aims",
        "",
        "| what | aim | measured | |",
        "|---|---:|---:|---|",
        *(_aim(aim, results.get(aim.result)) for aim in AIMS),
    ]
    for each in found:
        lines += ["", *(_table(each) if isinstance(each, Result) else _failed(each))]
    return "\n".join(lines) + "\n"


def _aim(aim: Aim, result: Result | None) -> str:
    row = next((row for row in result.rows if row.name == aim.row), None) if result else None
    head = f"| {aim.result}: {aim.row} | {aim.least:g} {aim.unit or 'of the reference'} "
    if row is None:
        return head + "| | not measured |"
    found = aim.of(row)
    return head + f"| {found:.3g} | {'reached' if found >= aim.least else 'not reached'} |"


def _table(result: Result) -> list[str]:
    return [
        f"## {result.name}",
        "",
        f"{result.title}.",
        "",
        "| " + " | ".join(result.columns) + " |",
        "|---|---:|---:|---:|---|---|",
        *(_row(row) for row in result.rows),
    ]


def _row(row: Row) -> str:
    figures = f"{row.ours:.4g} | {row.reference:.4g} | {row.ratio:.3f}"
    return f"| {row.name} | {figures} | {row.unit} | {row.note} |"


def _failed(failure: Failure) -> list[str]:
    return [f"## {failure.name}", "", f"Not measured: `{failure.why}`"]


if __name__ == "__main__":
    main(sys.argv[1:])
