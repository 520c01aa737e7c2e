"""Advice on topologies as a person reads it, and as a program does."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..topology.advise import Advice

__all__ = ["advice_as_json", "print_advice"]

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
    rest = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
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
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
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
