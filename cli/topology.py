"""``rumor topology``: who pushes to whom, and what follows from it."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..gossip.errors import ConfigError
from ..topology import Topology, facts, parse
from .edge import edge
from .options import OUTPUT, Debug, Json

__all__ = ["topology"]

ADVICE = "Advice"

# Nodes from which a computation takes long enough to say so.
LONG_FACTS, LONG_ADVICE = 20_000, 500


def topology(
    spec: Annotated[
        str | None,
        typer.Argument(metavar="SPEC", help="As in ring, torus:rows=4,cols=8 or base-k:k=2."),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            "-n",
            metavar="N",
            help="How many nodes. May be left out where SPEC or a file says it.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of random graphs and rounds.")] = 0,
    mixing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Mixing weights: metropolis, uniform, lazy or fastest.",
            show_default="the family's own",
        ),
    ] = None,
    gamma: Annotated[
        float,
        typer.Option(
            help="Decay behind the effective number of neighbors, in [0, 1): the nearer to 1, "
            "the longer training remembers.",
        ),
    ] = 0.95,
    share_mb: Annotated[
        float, typer.Option(metavar="MB", help="Size of one push, in millions of bytes.")
    ] = 4.0,
    draw: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw a picture there, as .png, .svg or .pdf.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Show all families and their parameters.")
    ] = False,
    show_advice: Annotated[
        bool,
        typer.Option("--advise", help="Rank families for N and a degree.", rich_help_panel=ADVICE),
    ] = False,
    degree: Annotated[
        int | None,
        typer.Option(
            metavar="D", help="Pushes of a node in a round, at most.", rich_help_panel=ADVICE
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A graph whose edge weights are bandwidths in Mbit/s: rank by seconds.",
            rich_help_panel=ADVICE,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say who pushes to whom in a topology, how fast that mixes, and what may break it.

    With --list, show which topologies there are; with --advise, which one to take.
    """
    with edge(debug=debug):
        if [spec is not None, show_list, show_advice].count(True) != 1:
            raise ConfigError("give a topology, or --list, or --advise, and only one of them")
        if not show_advice and (degree, weights) != (None, None):
            raise ConfigError("--degree and --weights go with --advise")
        if spec is None and draw is not None:
            raise ConfigError("--draw goes with a topology")
        if not 0 <= share_mb < float("inf"):
            raise ConfigError(f"--share-mb is {share_mb:g}: it must be at least 0")
        share_bytes = round(share_mb * 1e6)
        if spec is not None:
            _show_facts(_built(spec, n, seed, mixing, draw), gamma, share_bytes, draw, as_json)
        elif show_list:
            _show_list(as_json)
        else:
            _show_advice(n, degree, seed, weights, share_bytes, as_json)


def _built(
    spec: str, n: int | None, seed: int, mixing: str | None, picture: Path | None
) -> Topology:
    """Everything that can be wrong is found before anything takes long."""
    if picture is not None:
        from .graph_picture import check_path

        check_path(picture)
    _say(f"building {spec}", n or 0, LONG_FACTS)
    built = parse(spec, n, seed=seed, mixing=mixing)
    if picture is not None:
        from .graph_picture import check_size

        check_size(built)
    return built


def _show_facts(
    built: Topology, gamma: float, share_bytes: int, picture: Path | None, as_json: bool
) -> None:
    _say(f"computing the facts of {built.n:,} nodes", built.n, LONG_FACTS)
    known = facts(built, gamma=gamma, share_bytes=share_bytes)
    if picture is not None:
        from .graph_picture import draw

        draw(built, known, picture)
    if as_json:
        _print_json(known.as_json())
        return
    from rich.console import Console

    from .facts_table import print_facts

    print_facts(built, known, Console())
    if picture is not None:
        print(f"\nPicture: {picture}")


def _show_list(as_json: bool) -> None:
    from rich.console import Console

    from .family_table import families_as_json, print_families

    if as_json:
        _print_json(families_as_json())
    else:
        print_families(Console())


def _show_advice(
    n: int | None,
    degree: int | None,
    seed: int,
    weights: Path | None,
    share_bytes: int,
    as_json: bool,
) -> None:
    from rich.console import Console

    from ..topology.advise import advise
    from ..topology.files import read_graph
    from .advice_table import advice_as_json, print_advice

    if degree is None:
        raise ConfigError("--advise needs --degree: how many pushes of a node in a round")
    file = None if weights is None else read_graph(weights, "bandwidth")
    if file is not None:
        n = n or len(file.names)
        if n != len(file.names):
            raise ConfigError(f"{weights} has {len(file.names)} nodes, not {n}")
    if n is None:
        raise ConfigError("--advise needs -n: how many nodes")
    bandwidth = None if file is None else file.bandwidth
    _say("looking at all families", n, LONG_ADVICE)
    several = advise(n, degree, seed=seed, bandwidth=bandwidth, share_bytes=share_bytes)
    if as_json:
        _print_json(advice_as_json(n, degree, several))
        return
    pushes = "push" if degree == 1 else "pushes"
    over = "" if weights is None else f", over the links of {weights.name}"
    title = f"n = {n}, at most {degree} {pushes} of a node in a round{over}"
    print_advice(title, several, Console())


def _print_json(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, allow_nan=False))


def _say(what: str, n: int, limit: int) -> None:
    """Say on stderr what goes on, where it may take a while."""
    if n > limit:
        print(f"{what} ...", file=sys.stderr, flush=True)
