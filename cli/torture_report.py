"""What a campaign of faults came to, as a person reads it."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["print_campaign", "share"]

TABLE_SEEDS_MIN = 10
"""Seeds below which shares of them say nothing."""

TRACE_LINES = 12
LINE_CHARACTERS = 160


def print_campaign(told: dict[str, Any], console: Console) -> None:
    """Print what was met, what took longest, and what broke.

    Args:
        told: What ``--json`` prints.
        console: Where to.
    """
    if told["seeds"] >= TABLE_SEEDS_MIN:
        console.print(_coverage(told["coverage"]))
        console.print()
        console.print(Text(f"Faults, by share of seeds: {_faults(told['coverage'])}", style="dim"))
    worst = told["worst"]
    console.print(
        Text(
            f"Seeds: {told['seeds']:,}, events: {told['events']:,}. Most events: seed "
            f"{worst['events']['seed']} with {worst['events']['events']:,}. Longest until all "
            f"agreed: seed {worst['agree_s']['seed']}, {worst['agree_s']['agree_s']:.0f} s after "
            "the last fault."
        )
    )
    for violation in told["violations"]:
        _print_violation(violation, told, console)
    if not told["violations"]:
        console.print(Text("Nothing broke.", style="green"))


def share(part: float) -> str:
    """A share of seeds; what is there never reads as nothing.

    >>> share(0.5), share(0.0004), share(0.0), share(1.0)
    ('50 %', '0.04 %', 'never', '100 %')
    """
    if part == 0:
        return "never"
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _coverage(coverage: Mapping[str, float]) -> Table:
    from ..sim.torture.rare import RARE

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("event", no_wrap=True)
    table.add_column("seeds", justify="right", no_wrap=True)
    table.add_column("what happened")
    for name, words in RARE.items():
        part = coverage.get(name, 0.0)
        table.add_row(name, Text(share(part), style="" if part else "yellow"), words)
    return table


def _faults(coverage: Mapping[str, float]) -> str:
    kinds = {k.removeprefix("fault: "): v for k, v in coverage.items() if k.startswith("fault: ")}
    return ", ".join(f"{kind} {share(part)}" for kind, part in kinds.items()) or "none"


def _print_violation(violation: dict[str, Any], told: dict[str, Any], console: Console) -> None:
    commit = f", commit {told['commit'][:12]}" if told["commit"] else ""
    console.print()
    console.print(
        Text(
            f"Seed {violation['seed']} broke {violation['invariant']} at "
            f"{violation['at_s']:.3f} s (version {told['version']}{commit}):",
            style="bold red",
        )
    )
    console.print(Text(violation["what"]), soft_wrap=True)
    if violation["trace"]:
        console.print(Text("The last events there:", style="dim"))
        for line in violation["trace"][-TRACE_LINES:]:
            short = line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]}..."
            console.print(Text(short, style="dim"), soft_wrap=True)
    left = "What is left of it" if violation["shrunk"] else "Not made smaller"
    faults, workers = len(violation["faults"]), violation["workers"]
    counted = "1 fault" if faults == 1 else f"{faults} faults"
    console.print(Text(f"{left}: {counted}, {workers} workers. Once more:"))
    # A command that is folded cannot be copied.
    console.print(Text(violation["command"], style="cyan"), soft_wrap=True)
