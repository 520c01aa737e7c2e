"""``rumor topology``: who pushes to whom, and what follows from it."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import listed, setting
from ...topology import TopologyError, facts, parse
from ...topology.families.registry import FAMILIES
from ...topology.spec import read
from ..errors import not_written
from ..reports.console import plain_table, print_json
from ..run_folder import check_output
from ..settings.options import Json, Source, options_of

__all__ = ["TopologyConfig", "topology"]

N_MAX = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConfig:
    """The topology to show, or the request to list all."""

    nodes: int | None = setting(
        None,
        "Number of nodes; optional if SPEC or its file gives it.",
        brief="Number of nodes.",
        low=1,
        flags=("--nodes", "-n"),
    )

    seed: int = setting(0, "Seeds random graphs and rounds.")

    draw: Path | None = setting(None, "Draw a picture: a .png, .svg or .pdf file.")

    list_all: bool = setting(False, "Show all families and their parameters.", flags=("--list",))


@options_of(Source(TopologyConfig))
def topology(
    spec: Annotated[
        str | None,
        typer.Argument(metavar="SPEC", help="Such as ring, torus:rows=4,cols=8 or base-k:k=2."),
    ] = None,
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show who pushes to whom in a topology, and how fast it mixes.

    --list shows all topologies. `rumor advise` compares them under the rule and on the machines
    that you have.
    """
    config = TopologyConfig(**settings)
    if (spec is not None) == config.list_all:
        raise ConfigError("give a topology or --list, and only one of them")
    if spec is not None:
        _show_facts(spec, config, as_json=as_json)
    elif as_json:
        told = {name: [e.as_json() for e in each.parameters] for name, each in FAMILIES.items()}
        print_json({"families": told})
    else:
        _print_families(Console())


def _show_facts(spec: str, config: TopologyConfig, *, as_json: bool) -> None:
    # All errors are found before anything takes long.
    if config.draw is not None:
        from ...topology.drawing import FORMATS, check_size, draw

        if config.draw.suffix.lower() not in FORMATS:
            raise ConfigError(f"--draw is {str(config.draw)!r}: it must end in {listed(FORMATS)}")
        check_output(config.draw)
    n = config.nodes
    if n is None:
        # `parse` has better messages for errors in a file.
        with suppress(TopologyError):
            n = read(spec).size
    if n is not None and n > N_MAX:
        raise ConfigError(f"{spec} with {n:,} nodes is too large: at most {N_MAX:,}")
    built = parse(spec, config.nodes, seed=config.seed)
    if config.draw is not None:
        check_size(built)
    known = facts(built)
    if as_json:
        print_json(known.as_json())
    else:
        from ..reports.topology import print_facts

        print_facts(built, known, Console())
    # Last, so that a picture that fails does not hide the facts.
    if config.draw is not None:
        sys.stdout.flush()
        try:
            draw([(built, known)], config.draw)
        except OSError as error:
            raise OSError(not_written(config.draw, error)) from error
        if not as_json:
            print(f"\nPicture: {config.draw}")


def _print_families(console: Console) -> None:
    form = "name or name:key=value,key=value, as in torus:rows=4,cols=8 or base-k:k=2"
    console.print(Text(f"\nA topology is written as {form}.\n"))
    table = plain_table("", "", header=False)
    for name, family in FAMILIES.items():
        text = Text(family.summary)
        for parameter in family.parameters:
            text.append(f"\n{parameter.name}=", style="cyan").append(f" {parameter.about}")
        text.append(f"\n{family.source}", style="dim")
        table.add_row(Text(name, style="bold"), text)
    console.print(table)
