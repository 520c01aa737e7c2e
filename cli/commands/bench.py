"""``rumor bench``: what things cost on this machine, as ratios within one run."""

import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ...gossip.errors import ConfigError
from ..errors import reporting_errors
from ..options import Debug, Json

if TYPE_CHECKING:
    from ...benchmarks import Result

__all__ = ["bench", "measure"]


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Benchmarks to run, all unless given."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure speed: each figure beside a limit, or a plainer way, of the same run.

    Set OMP_NUM_THREADS=1, and run nothing else meanwhile: both sides of a comparison suffer alike,
    but figures scatter.
    """
    with reporting_errors(debug=debug):
        _say_progress()
        results = measure(names or ())
        if as_json:
            print(json.dumps({"benchmarks": [result.as_json() for result in results]}))
            return
        _print(results)


def measure(names: Sequence[str]) -> list["Result"]:
    """Run benchmarks, and stamp them with today's date and how long each took.

    Args:
        names: Which; none for all.

    Raises:
        ConfigError: There is none of that name; nothing was run.
    """
    from ...benchmarks import BENCHMARKS

    for name in names:
        if name not in BENCHMARKS:
            raise ConfigError(f"unknown benchmark {name!r}. Valid names: {', '.join(BENCHMARKS)}")
    today = datetime.now(UTC).date().isoformat()
    results = []
    for name in names or BENCHMARKS:
        start_s = time.perf_counter()
        result = BENCHMARKS[name]()
        results.append(replace(result, date=today, wall_s=time.perf_counter() - start_s))
    return results


def _print(results: Sequence["Result"]) -> None:
    from rich.console import Console

    from ...benchmarks.results import print_result

    console = Console()
    for result in results:
        print_result(result, console)
    console.print(f"\n{results[0].machine}, {results[0].date}", soft_wrap=True, highlight=False)


def _say_progress() -> None:
    log = logging.getLogger("rumor.benchmarks")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stderr))
    log.propagate = False
