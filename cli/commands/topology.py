"""``rumor topology``: who pushes to whom, and what follows from it."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import listed, setting
from ...topology import TopologyError, facts, parse
from ...topology.advise import Advice
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
    """The topology to show, or the request to list or rank all."""

    nodes: int | None = setting(
        None,
        "Number of nodes; optional if SPEC or its file gives it.",
        brief="Number of nodes.",
        low=1,
        flags=("--nodes", "-n"),
    )

    seed: int = setting(0, "Seeds random graphs and rounds.")

    gamma: float = setting(
        0.95,
        "Decay behind the effective number of neighbors, in [0, 1): the nearer to 1, the longer "
        "training remembers.",
        brief="Decay of effective neighbors.",
    )

    draw: Path | None = setting(None, "Draw a picture: a .png, .svg or .pdf file.")

    list_all: bool = setting(False, "Show all families and their parameters.", flags=("--list",))

    advise: bool = setting(
        False,
        "Rank families for N and a degree by synchronous averaging: all nodes average in rounds, "
        "as under dpsgd. For other rules, and for your machines, use `rumor advise`.",
        brief="Rank families by synchronous averaging.",
    )

    degree: int | None = setting(None, "Maximum pushes of a node in a round.", low=1, metavar="D")


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

    --list shows all topologies; --advise ranks them by how fast they average in synchronous
    rounds. `rumor advise` compares topologies under the rule and on the machines
    that you have.
    """
    config = TopologyConfig(**settings)
    if [spec is not None, config.list_all, config.advise].count(True) != 1:
        raise ConfigError("give a topology, or --list, or --advise, and only one of them")
    if spec is not None:
        _show_facts(spec, config, as_json=as_json)
    elif config.advise:
        _show_advice(config, as_json=as_json)
    elif as_json:
        print_json({"families": _families_as_json()})
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
    known = facts(built, gamma=config.gamma)
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


def _show_advice(config: TopologyConfig, *, as_json: bool) -> None:
    from ...topology.advise import advise

    n, degree = config.nodes, config.degree
    if n is None or degree is None:
        raise ConfigError("--advise needs -n, how many nodes, and --degree, pushes in a round")
    several = advise(n, degree, seed=config.seed)
    if as_json:
        advice = [
            asdict(each) | {"fits": each.fits, "facts": each.facts and each.facts.as_json()}
            for each in several
        ]
        print_json({"n": n, "degree": degree, "advice": advice})
    else:
        _print_advice(n, degree, several)


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


def _families_as_json() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "summary": family.summary,
            "source": family.source,
            "parameters": [parameter.as_json() for parameter in family.parameters],
            "layout": family.layout,
            "live": family.fallback,
        }
        for name, family in FAMILIES.items()
    ]


def _print_advice(n: int, degree: int, several: Sequence[Advice]) -> None:
    console = Console()
    fitting = [advice for advice in several if advice.facts is not None]
    console.print()
    title = f"n = {n}, at most {degree} pushes of a node in a round"
    console.print(Text(title, style="bold"))
    if fitting:
        legend = (
            "rounds of synchronous averaging until disagreement is down to a thousandth; messages "
            "of a node until then"
        )
        console.print(Text(legend, style="dim"))
        console.print(_ranked(fitting))
    if len(fitting) < len(several):
        console.print(Text("\nThese do not fit:", style="bold"))
        rest = plain_table("", "", header=False)
        for advice in several[len(fitting) :]:
            rest.add_row(Text(advice.spec), Text(advice.why))
        console.print(rest)
    hosts = f'rumor advise --hosts "{n}x machine" --rule gosgd'
    console.print(Text(f"\nFor a rule that does not average in rounds: {hosts}"))


def _ranked(fitting: Sequence[Advice]) -> Table:
    table = plain_table("topology", ">rounds", ">messages", "why")
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    for advice in fitting:
        assert advice.facts is not None
        rounds = advice.facts.rounds_to_1e_3
        each = advice.facts.messages_per_round / advice.facts.n
        cells = [
            advice.spec,
            "never" if rounds is None else f"{rounds:,}",
            "-" if rounds is None else f"{rounds * each:,.0f}",
            advice.why,
        ]
        table.add_row(*(Text(cell) for cell in cells))
    return table
