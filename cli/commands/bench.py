"""``rumor bench`` and ``rumor reproduce``: figures beside those of a limit, a rival or a paper."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...gossip.errors import ConfigError
from ..reports.console import print_json
from ..settings.options import Json, Source, option, options_of

if TYPE_CHECKING:
    from ...benchmarks import Result

__all__ = ["BenchConfig", "bench", "reproduce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """What some benchmarks let one choose; each goes with one that is named."""

    minutes: float | None = None
    """How long soak or storm lasts; ten unless given."""

    peers: int | None = None
    """How many processes soak, storm, straggler, memory or membership has; its own unless given."""

    task: str | None = None
    """What storm or netcheck trains; code-3.3m or mnist unless given."""

    seed: int | None = None
    """Of everything random in storm; 0 unless given."""

    out: Path | None = None
    """Where storm keeps its runs, its faults and its prediction; nowhere unless given."""

    picture: Path | None = None
    """Draw what was seen into this PNG file: joining or soak."""


@options_of(
    Source(
        BenchConfig, "Of one benchmark", metavars={"task": "NAME", "out": "DIR", "picture": "FILE"}
    )
)
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Benchmarks to run, all unless given."),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Measure speed: each figure beside a limit, or a plainer way, of the same run.

    Set OMP_NUM_THREADS=1, and run nothing else meanwhile: both sides of a comparison suffer alike,
    but figures scatter.
    """
    from ...benchmarks import BENCHMARKS

    for name in names or ():
        if name not in BENCHMARKS:
            raise ConfigError(f"unknown benchmark {name!r}. Valid names: {', '.join(BENCHMARKS)}")
    chosen = _chosen(BenchConfig(**settings), names or ())
    _say_progress()
    today = datetime.now(UTC).date().isoformat()
    results = []
    for name in names or BENCHMARKS:
        start_s = time.perf_counter()
        result = BENCHMARKS[name](**chosen)
        results.append(replace(result, date=today, wall_s=time.perf_counter() - start_s))
    if as_json:
        print_json({"benchmarks": [result.as_json() for result in results]})
    else:
        _print(results)


@options_of()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Tables to make again, all unless given."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A bounded share of each, in seconds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make published tables again: each figure beside the one that was published.

    relaysgd: rounds of four rules on random quadratics, with the search for the learning rate.
    moshpit: rounds of averaging in groups and in a grid, of whom some fail. noise: GoSGD's
    consensus under noise. base-k: exact averages on base-(k+1) graphs. equitopo: how its error
    shrinks as graphs grow. theano-mpi: seconds of communication, twelve predicted from three.
    theano-mpi-rules: its four rules on the same links. s-caffe: steps of 32 and of 160 workers.
    shmcaffe: its equation of an iteration, timed on segments that processes of this machine share.
    """
    from ...benchmarks.published.registry import REPRODUCTIONS

    for name in names or ():
        if name not in REPRODUCTIONS:
            raise ConfigError(f"unknown table {name!r}. Valid names: {', '.join(REPRODUCTIONS)}")
    today = datetime.now(UTC).date().isoformat()
    results = []
    for name in names or REPRODUCTIONS:
        start_s = time.perf_counter()
        result = REPRODUCTIONS[name](quick=quick)
        results.append(replace(result, date=today, wall_s=time.perf_counter() - start_s))
    if as_json:
        print_json({"reproductions": [result.as_json() for result in results]})
    else:
        _print(results)


def _chosen(config: BenchConfig, names: Sequence[str]) -> dict[str, Any]:
    """What was given for the one benchmark that takes it."""
    from ...benchmarks import BENCHMARKS

    given = {each.name: getattr(config, each.name) for each in fields(config)}
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in chosen:
        takes = [one for one, run in BENCHMARKS.items() if _takes(run, name)]
        if len(names) != 1 or names[0] not in takes:
            which = " or ".join(takes)
            raise ConfigError(f"{option(name)} goes with one benchmark that takes it: {which}")
    if config.picture is not None and not config.picture.parent.is_dir():
        path = config.picture
        raise ConfigError(f"--picture is {path}: there is no folder {path.parent}")
    return chosen


def _takes(run: Callable[..., Any], name: str) -> bool:
    """Whether a benchmark has an argument of that name for one such value, and not several."""
    found = signature(run).parameters.get(name)
    if found is None:
        return False
    return not isinstance(found.default, tuple | list)


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
