"""``rumor rules``: when peers push and how they mix, rule by rule."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import RULES, find_rule, read_rule
from ...gossip.specs.parameter import Parameter, parameters_of
from ..reports.console import plain_table, print_json
from ..settings.options import Json, options_of

__all__ = ["rules"]


@options_of()
def rules(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RULE",
            show_default=False,
            help="A name, or MODULE:CLASS of your own; default: list all.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """List the rules by which peers exchange, or explain one.

    A rule decides when a peer pushes, to which peers, and how it mixes what arrives:

    `rumor rules gosgd`

    `rumor simulate -n 16 --rule gosgd:p=0.5,emission=per-second`

    The formulas of each, and which one to choose: docs/reference/rules.md.

    Exit status: 0; 2 for an unknown rule.
    """
    console = Console()
    if not name:
        told = [_facts(each) for each in RULES]
        print_json(told) if as_json else _print_all(told, console)
        return
    facts, parameters = _facts(name), parameters_of(find_rule(name))
    if as_json:
        print_json(facts | {"parameters": [each.as_json() for each in parameters]})
    else:
        _print_one(facts, parameters, console)


def _facts(name: str) -> dict[str, Any]:
    rule = find_rule(name)
    text, _, source = (inspect.getdoc(rule) or "").partition("Source: ")
    facts = {
        "name": name,
        "summary": getattr(rule, "summary", ""),
        "does": text.partition("\n")[0].replace("``", ""),
        "source": " ".join(source.split()),
    }
    if name in RULES:
        requirements = requirements_of(read_rule(name).make())
        facts |= {"waits": requirements.waits, "fixed_members": requirements.fixed_members}
    return facts


def _print_all(several: Iterable[Mapping[str, Any]], console: Console) -> None:
    table = plain_table("rule", "what peers do", "waits", "members")
    for facts in several:
        waits, members = _in_words(facts)
        does = Text(facts["summary"])
        does.append(f"\n{facts['source']}", style="dim")
        table.add_row(Text(facts["name"], style="bold"), does, waits, members)
    console.print(table)
    notes = (
        "waits: whether a slow peer holds up others.",
        "members: open, peers may come and go; fixed, the founders stay to the end.",
        "rumor rules NAME says more of one.",
    )
    console.print(Text("\n" + "\n".join(notes), style="dim"))


def _in_words(facts: Mapping[str, Any]) -> tuple[str, str]:
    return "yes" if facts["waits"] else "no", "fixed" if facts["fixed_members"] else "open"


def _print_one(facts: Mapping[str, Any], parameters: Iterable[Parameter], console: Console) -> None:
    title = ": ".join(filter(None, (facts["name"], facts["summary"])))
    for line, style in ((title, "bold"), (facts["does"], "")):
        console.print(Text(line, style=style))
    if "waits" in facts:
        waits, members = _in_words(facts)
        console.print(Text(f"waits: {waits}; members: {members}"))
    if facts["source"]:
        console.print(Text(facts["source"], style="dim"))
    console.print()
    table = plain_table("", "", header=False)
    for each in parameters:
        about = Text(each.about)
        about.append(f"\n{each.help}", style="dim")
        table.add_row(Text(f"{each.name}=", style="cyan"), about)
    console.print(table if table.rows else Text("It takes no parameters."))
