"""``rumor reproduce``: figures that others have published, made again by this code."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from ...gossip.errors import ConfigError
from ..console import print_json
from ..options import Json, options_of
from .bench import print_results

__all__ = ["reproduce"]


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
    moshpit: rounds of averaging in groups, of whom some fail. noise: GoSGD's consensus under noise.
    base-k: exact averages on base-(k+1) graphs. equitopo: how its error shrinks as graphs grow.
    """
    from ...benchmarks.published import REPRODUCTIONS

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
        print_results(results)
