"""All families of topologies as a person reads them, and as a program does."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..topology import MIXINGS
from ..topology.families.family import Family, Parameter
from ..topology.families.registry import CATALOG

__all__ = ["about", "families_as_json", "print_families"]


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
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, family in CATALOG.items():
        table.add_row(Text(name, style="bold"), _described(family))
    console.print(table)
    console.print(Text("\nMixing weights, by --mixing (the family's own unless given):"))
    weights = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
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
