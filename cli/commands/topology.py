"""``rumor topology``: who pushes to whom, and what follows from it."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...gossip.errors import ConfigError, RumorError
from ...topology import MIXINGS, Facts, Topology, TopologyError, facts, parse
from ...topology.advise import Advice
from ...topology.families.family import Family, Parameter
from ...topology.families.registry import CATALOG
from ...topology.spec import read
from ..console import plain_table
from ..errors import reporting_errors
from ..options import OUTPUT, Debug, Json

__all__ = [
    "about",
    "advice_as_json",
    "check_path",
    "families_as_json",
    "print_advice",
    "print_families",
    "topology",
]

ADVICE = "Advice"

# Nodes from which a computation takes long enough to say so.
LONG_FACTS, LONG_ADVICE = 20_000, 500

N_MAX = 10_000_000
PAIRS_MAX = 50_000_000
"""Pairs of nodes inside hosts, and of hosts that are all linked."""

SHARE_MB_MAX = 1e12

FLAGS = {
    "n": "-n",
    "seed": "--seed",
    "mixing": "--mixing",
    "gamma": "--gamma",
    "share_mb": "--share-mb",
    "draw": "--draw",
    "degree": "--degree",
    "weights": "--weights",
}

TAKEN = {
    "a topology": ("n", "seed", "mixing", "gamma", "share_mb", "draw"),
    "--advise": ("n", "seed", "share_mb", "degree", "weights"),
    "--list": (),
}
"""What each of three questions takes, beside --json and --debug."""


def topology(
    context: typer.Context,
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
    with reporting_errors(debug=debug):
        if [spec is not None, show_list, show_advice].count(True) != 1:
            raise ConfigError("give a topology, or --list, or --advise, and only one of them")
        _check_given(
            context, "--advise" if show_advice else "--list" if show_list else "a topology"
        )
        if not 0 <= share_mb <= SHARE_MB_MAX:
            raise ConfigError(f"--share-mb is {share_mb:g}: it must be in [0, {SHARE_MB_MAX:g}]")
        share_bytes = round(share_mb * 1e6)
        if spec is not None:
            _show_facts(_built(spec, n, seed, mixing, draw), gamma, share_bytes, draw, as_json)
        elif show_list:
            _show_list(as_json)
        else:
            _show_advice(n, degree, seed, weights, share_bytes, as_json)


def _check_given(context: typer.Context, asked: str) -> None:
    """Refuse what would change nothing.

    Raises:
        ConfigError: Such an option is given.
    """
    for name, flag in FLAGS.items():
        source = context.get_parameter_source(name)
        if name not in TAKEN[asked] and source is not None and source.name == "COMMANDLINE":
            takers = " or ".join(question for question, taken in TAKEN.items() if name in taken)
            raise ConfigError(f"{flag} goes with {takers}, not with {asked}")


def _check_size(spec: str, n: int | None) -> None:
    """Refuse what no machine holds, before anything is built.

    Raises:
        ConfigError: Too many nodes, or too many of them in one host.
        TopologyError: The spec is not well formed.
    """
    asked = read(spec)
    if n is None:
        # What is wrong with a file is better said by who builds it.
        with suppress(TopologyError):
            n = asked.size
    if n is not None and n > N_MAX:
        raise ConfigError(f"{spec} with {n:,} nodes is too large: at most {N_MAX:,}")
    if asked.pairs > PAIRS_MAX:
        raise ConfigError(
            f"{spec} is too large: {asked.pairs:,} pairs of nodes are linked, at most {PAIRS_MAX:,}"
        )


def _built(
    spec: str, n: int | None, seed: int, mixing: str | None, picture: Path | None
) -> Topology:
    """Everything that can be wrong is found before anything takes long."""
    if picture is not None:
        check_path(picture)
    _check_size(spec, n)
    _say(f"building {spec}", n or 0, LONG_FACTS)
    built = parse(spec, n, seed=seed, mixing=mixing)
    if picture is not None:
        from ...topology.drawing import check_size

        check_size(built)
    return built


def check_path(path: Path) -> None:
    """See whether a picture can be written there, before anything long is computed.

    Raises:
        ConfigError: It is a folder, in a folder that does not exist, or of an unknown format.
    """
    from ...topology.drawing import FORMATS

    ends = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    if not path.name:
        raise ConfigError(f"--draw needs the name of a file that ends in {ends}")
    if path.is_dir():
        raise ConfigError(f"--draw {path}: it is a folder, name a file that ends in {ends}")
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--draw {path}: it must end in {ends}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--draw {path}: name a file in a folder that exists")


def _show_facts(
    built: Topology, gamma: float, share_bytes: int, picture: Path | None, as_json: bool
) -> None:
    _say(f"computing the facts of {built.n:,} nodes", built.n, LONG_FACTS)
    known = facts(built, gamma=gamma, share_bytes=share_bytes)
    if as_json:
        _print_json(known.as_json())
    else:
        from ..topology_report import print_facts

        print_facts(built, known, Console())
    # Last, so that no picture that fails takes the facts with it.
    if picture is not None:
        _draw(built, known, picture)
        if not as_json:
            print(f"\nPicture: {picture}")


def _draw(built: Topology, known: Facts, picture: Path) -> None:
    from ...topology.drawing import draw

    sys.stdout.flush()
    try:
        draw([(built, known)], picture)
    except OSError as error:
        why = error.strerror or error
        raise RumorError(f"--draw {picture}: it cannot be written ({why})") from error


def _show_list(as_json: bool) -> None:
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
    from ...topology.advise import advise, check_asked
    from ...topology.families.files import read_graph

    if degree is None:
        raise ConfigError("--advise needs --degree: how many pushes of a node in a round")
    bandwidth = None
    if weights is not None:
        try:
            file = read_graph(weights, "bandwidth")
        except TopologyError as error:
            why = str(error).removeprefix(f"path={weights}: ")
            raise ConfigError(f"--weights {weights}: {why}") from error
        bandwidth, size = file.bandwidth, len(file.names)
        n = size if n is None else n
        if n != size:
            raise ConfigError(f"--weights {weights}: it has {size} nodes, not {n}")
    if n is None:
        raise ConfigError("--advise needs -n: how many nodes")
    check_asked(n, degree, bandwidth)
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


def print_families(console: Console) -> None:
    """Print each family with its parameters and its paper, then the mixing weights."""
    console.print()
    console.print(
        Text(
            "A topology is written as name or name:key=value,key=value, "
            "as in torus:rows=4,cols=8 or base-k:k=2."
        )
    )
    console.print()
    table = plain_table(header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, family in CATALOG.items():
        table.add_row(Text(name, style="bold"), _described(family))
    console.print(table)
    console.print(Text("\nMixing weights, by --mixing (the family's own unless given):"))
    weights = plain_table(header=False)
    weights.add_column(no_wrap=True, min_width=max(map(len, CATALOG)))
    weights.add_column()
    for name, line in MIXINGS.items():
        weights.add_row(Text(name, style="bold"), Text(line))
    console.print(weights)


def families_as_json() -> dict[str, Any]:
    """The same as a dictionary that JSON can hold."""
    families = [
        {
            "name": name,
            "summary": family.summary,
            "source": family.source,
            "parameters": [_parameter_as_json(parameter) for parameter in family.parameters],
            "layout": family.layout,
            "live": family.fallback,
        }
        for name, family in CATALOG.items()
    ]
    return {"families": families, "mixings": dict(MIXINGS)}


def about(parameter: Parameter) -> str:
    """What a parameter may be, and what it is unless given.

    >>> about(CATALOG["base-k"].parameters[0])
    'a whole number of at least 1; 1 unless given'
    """
    default = parameter.default_text
    if parameter.default is not None:
        default = str(parameter.default)
    return f"{parameter.allowed}; {f'{default} unless given' if default else 'must be given'}"


def _described(family: Family) -> Text:
    text = Text(family.summary)
    for parameter in family.parameters:
        text.append(f"\n{parameter.name}=", style="cyan")
        text.append(f" {about(parameter)}")
    text.append(f"\n{family.source}", style="dim")
    return text


def _parameter_as_json(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "allowed": parameter.allowed,
        "default": parameter.default,
        "default_in_words": parameter.default_text or None,
        "required": parameter.is_required,
    }


# Columns of a terminal beyond which a long spec fits beside its reason.
WIDE = 110
SPEC_WIDTH = 28


def print_advice(title: str, several: Sequence[Advice], console: Console) -> None:
    """Print what fits, best first, then what does not.

    Args:
        title: One line about what was asked.
        several: In order.
        console: Where to.
    """
    fitting = [advice for advice in several if advice.facts is not None]
    console.print()
    console.print(Text(title, style="bold"))
    if fitting:
        console.print(Text(_legend(fitting), style="dim"))
        console.print(_ranked(fitting, console.width))
    if len(fitting) == len(several):
        return
    console.print(Text("\nThese do not fit:", style="bold"))
    rest = plain_table(header=False)
    rest.add_column(no_wrap=True)
    rest.add_column()
    for advice in several[len(fitting) :]:
        rest.add_row(Text(advice.spec), Text(advice.why))
    console.print(rest)


def advice_as_json(n: int, degree: int, several: Sequence[Advice]) -> dict[str, Any]:
    """The same as a dictionary that JSON can hold."""
    return {
        "n": n,
        "degree": degree,
        "advice": [
            {
                "family": advice.family,
                "spec": advice.spec,
                "fits": advice.fits,
                "why": advice.why,
                "seconds_to_1e-3": advice.seconds,
                "facts": None if advice.facts is None else advice.facts.as_json(),
            }
            for advice in several
        ],
    }


def _legend(fitting: Sequence[Advice]) -> str:
    time = "seconds and rounds" if _timed(fitting) else "rounds"
    return f"{time} until any disagreement is down to a thousandth; messages of a node until then"


def _timed(fitting: Sequence[Advice]) -> bool:
    return any(advice.seconds is not None for advice in fitting)


def _ranked(fitting: Sequence[Advice], width: int) -> Table:
    table = plain_table()
    table.add_column("topology", max_width=None if width >= WIDE else SPEC_WIDTH, overflow="fold")
    if _timed(fitting):
        table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("rounds", justify="right", no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("why")
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
        if _timed(fitting):
            cells.insert(1, "-" if advice.seconds is None else f"{advice.seconds:,.3g}")
        table.add_row(*(Text(cell) for cell in cells))
    return table
