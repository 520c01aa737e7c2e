"""``rumor bench`` and ``rumor reproduce``: figures beside those of a limit, a rival or a paper."""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...gossip.errors import ConfigError
from ..reports.console import print_json
from ..settings.options import Json, options_of

if TYPE_CHECKING:
    from ...benchmarks import Result

__all__ = ["bench", "reproduce"]


@options_of()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Benchmarks to run, all unless given."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw what was seen into this PNG file: one benchmark, joining or soak."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure speed: each figure beside a limit, or a plainer way, of the same run.

    Set OMP_NUM_THREADS=1, and run nothing else meanwhile: both sides of a comparison suffer alike,
    but figures scatter.
    """
    from ...benchmarks import BENCHMARKS

    for name in names or ():
        if name not in BENCHMARKS:
            raise ConfigError(f"unknown benchmark {name!r}. Valid names: {', '.join(BENCHMARKS)}")
    drawing: dict[str, Any] = {}
    if picture is not None:
        drawing["picture"] = _checked(picture, names or ())
    _say_progress()
    today = datetime.now(UTC).date().isoformat()
    results = []
    for name in names or BENCHMARKS:
        start_s = time.perf_counter()
        result = BENCHMARKS[name](**drawing)
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


def _checked(picture: Path, names: Sequence[str]) -> Path:
    """Where to draw, if that can be done."""
    from ...benchmarks import BENCHMARKS

    drawn = [name for name, run in BENCHMARKS.items() if "picture" in signature(run).parameters]
    if len(names) != 1 or names[0] not in drawn:
        raise ConfigError(f"--picture goes with one benchmark that draws: {' or '.join(drawn)}")
    if not picture.parent.is_dir():
        raise ConfigError(f"--picture is {picture}: there is no folder {picture.parent}")
    return picture


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
