"""Run the tests on each mutant, and record the test that killed it.

``python -m rumor.tests.mutation.run results.json`` takes code and tests of today's commit; with
``--code`` and ``--tests`` either comes from another one, so that old and new tests can be
compared on the same mutants. All runs happen in copies of the tree; existing results are kept.

Only the tests that cover a mutant's lines are run, the fastest first.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from coverage import CoverageData

from .draw import COUNT, PACKAGES, SEED, draw_from
from .mutate import Mutant, apply

__all__ = ["Result", "Tests", "judge", "main"]

COVERED = ("tests/gossip", "tests/topology")
"""Tests whose coverage is measured."""

_FIRST = 25
_MARKS = "not live and not extended and not slow"
_PYTEST = ("-q", "-p", "no:cacheprovider", "-m", _MARKS)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome of one mutant."""

    mutant: int
    place: str
    outcome: str
    by: str = ""
    tests: int = 0


@dataclass(frozen=True, slots=True)
class Tests:
    """Which tests ran which lines of the core, and how many CPU seconds each took."""

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    @classmethod
    def read(cls, data: Path, times: Path) -> "Tests":
        """Read the records of `covering`, by module."""
        coverage = CoverageData(str(data))
        coverage.read()
        files = {_module(name): name for name in coverage.measured_files()}
        lines = {module: coverage.contexts_by_lineno(name) for module, name in files.items()}
        return cls(lines, dict(json.loads(line) for line in times.read_text().splitlines()))

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that ran a mutant's lines, the fastest first.

        A line that runs only at import, such as a default, is covered by all tests of the module.
        """
        of_module = self.lines[mutant.module]
        count = len(mutant.original.splitlines())
        here = range(mutant.line, mutant.line + count)
        found = self._known(test for line in here for test in of_module.get(line, ()))
        found = found or self._known(test for tests in of_module.values() for test in tests)
        return sorted(found, key=lambda test: (self.seconds[test], test))

    def _known(self, tests: Iterable[str]) -> set[str]:
        return {test for test in tests if test in self.seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="Run the tests on mutants of the core.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--code", default="HEAD", help="commit that the code comes from")
    parser.add_argument("--tests", default="HEAD", help="commit that the tests come from")
    parser.add_argument("--count", type=int, default=COUNT, help="number of mutants")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the draw")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=60.0, help="for the tests of a mutant")
    parser.add_argument("--work", type=Path, default=Path("runs/mutants"), help="scratch folder")
    options = parser.parse_args(arguments)
    trees = [
        _checkout(options.work.absolute() / f"tree-{k}", options.code, options.tests)
        for k in range(options.processes)
    ]
    tests = _cover(trees[0], options.work.absolute())
    mutants = draw_from(options.code, options.count, options.seed)
    results = _run(mutants, options.results, trees, tests, options.limit_s)
    noticed = sum(each.outcome != "survived" for each in results)
    print(f"{noticed} of {len(results)} mutants were noticed")


def _checkout(tree: Path, code: str, tests: str) -> Path:
    """Lay out the code of one commit and the tests of another, as an import package."""
    shutil.rmtree(tree, ignore_errors=True)
    (tree / ".types").mkdir(parents=True)
    (tree / ".types" / "rumor").symlink_to("..")
    git = ["git", "-C", str(_REPOSITORY), "archive"]
    for archive in ([*git, code, ".", ":!tests"], [*git, tests, "tests"]):
        packed = subprocess.run(archive, check=True, capture_output=True)
        subprocess.run(["tar", "x", "-C", str(tree)], check=True, input=packed.stdout)
    return tree


def _cover(tree: Path, work: Path) -> Tests:
    """Run the tests once without a fault, if that has not been done in this folder."""
    data, times, settings = work / "coverage.data", work / "times.jsonl", work / "coverage.rc"
    if not times.exists():
        packages = ", ".join(f"rumor.{package}" for package in PACKAGES)
        settings.write_text(f"[run]\nsource_pkgs = {packages}\ndata_file = {data}\n")
        plugin = ("-p", "rumor.tests.mutation.covering", "--times", str(times))
        front = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
        command = [*front, *_PYTEST, *plugin, *COVERED]
        subprocess.run(command, check=True, cwd=tree, env=_environment(tree))
    return Tests.read(data, times)


def _run(
    mutants: Sequence[Mutant], results: Path, trees: Sequence[Path], tests: Tests, limit_s: float
) -> list[Result]:
    """Judge mutants in parallel, one in each tree, and write each verdict at once."""
    lock = Lock()
    free: SimpleQueue[Path] = SimpleQueue()
    for tree in trees:
        free.put(tree)
    known = json.loads(results.read_text()) if results.exists() else []
    done = {each["mutant"]: Result(**each) for each in known}

    def one(number: int) -> None:
        tree = free.get()
        try:
            found = judge(number, mutants[number], tree, tests, limit_s)
        finally:
            free.put(tree)
        with lock:
            done[number] = found
            rows = [json.dumps(asdict(done[each])) for each in sorted(done)]
            results.write_text("[\n " + ",\n ".join(rows) + "\n]\n")
            print(found, flush=True)

    with ThreadPoolExecutor(len(trees)) as pool:
        list(pool.map(one, [number for number in range(len(mutants)) if number not in done]))
    return list(done.values())


def judge(number: int, mutant: Mutant, tree: Path, tests: Tests, limit_s: float) -> Result:
    """Run the tests that cover a mutant, planted in *tree*, until one fails.

    Both the fastest tests and the rest may take *limit_s* seconds plus five times their usual time.
    """
    place = f"{mutant.module}:{mutant.line} {mutant.operator}"
    covering = tests.of(mutant)
    result = Result(mutant=number, place=place, outcome="survived", tests=len(covering))
    for part in (covering[:_FIRST], covering[_FIRST:]):
        usual_s = sum(tests.seconds[test] for test in part)
        if part and result.outcome == "survived":
            outcome, by = _attempt(mutant, tree, part, limit_s + 5 * usual_s)
            result = replace(result, outcome=outcome, by=by)
    return result


def _attempt(mutant: Mutant, tree: Path, tests: Sequence[str], limit_s: float) -> tuple[str, str]:
    """Plant a fault and run some tests; return the outcome and the test that failed."""
    path = tree / f"{mutant.module}.py"
    source, written_ns = path.read_text(), path.stat().st_mtime_ns
    path.write_text(apply(mutant, source))
    # Bytecode is matched by size and second: without this, that of another mutant might be run.
    os.utime(path, ns=(0, written_ns - (1 + mutant.line) * 10**9))
    pytest = [sys.executable, "-m", "pytest", *_PYTEST, "-x", "-rfE", "--tb=no", *tests]
    env = _environment(tree)
    try:
        ran = subprocess.run(
            pytest, cwd=tree, env=env, timeout=limit_s, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return "timed out", ""
    finally:
        path.write_text(source)
        os.utime(path, ns=(0, written_ns))
    if ran.returncode == 0:
        return "survived", ""
    failed = _FAILED.search(ran.stdout)
    return "killed", failed[1] if failed else ran.stdout[-200:]


def _module(file: str) -> str:
    """Name of a file of the core as mutants have it, such as ``gossip/exchange/incoming``."""
    _, package, rest = re.split(rf"/({'|'.join(PACKAGES)})/", file, maxsplit=1)
    return f"{package}/{rest}".removesuffix(".py")


def _environment(tree: Path) -> dict[str, str]:
    ours = {"PYTHONPATH": str(tree / ".types"), "PYTHONDONTWRITEBYTECODE": ""}
    return os.environ | ours | {"OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main()
