"""``rumor replay``: live runs repeated from their journals, compared bit for bit."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..errors import FAILED, WRONG_ARGUMENTS, fail, understanding
from ..reports.console import plain_table, print_json, progress_on
from ..run_folder import require_trust
from ..settings.options import Json, options_of

if TYPE_CHECKING:
    from ...sim.replay.result import PeerVerdict, Replay

__all__ = ["replay"]


@options_of()
def replay(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="The folder of a run that was started with --set journal, or of its peers.",
        ),
    ],
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Run the task, rule or partition of somebody's own (MODULE:NAME) that a journal "
            "names, even if the folder is another user's, or brings that code along.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Repeat a live run from its journals, bit for bit.

    Every peer is trained again, decides again and mixes again what it received; the journals have
    no values in them. The first thing that differs is named. A task MODULE:FUNCTION must be found
    from here, as it was then.

    Exit status: 0 if nothing differs; 1 if something does; 2 if there is no journal, or one
    cannot be read or lacks another that it depends on.
    """
    # torch takes a second to import.
    from ...sim.replay.replay import code_named
    from ...sim.replay.replay import replay as run_again

    named = ", ".join(map(str, folders))
    with understanding(named):
        for folder in () if trust else folders:
            require_trust(folder, code_named([folder]), (), trust=False)

    began_s = time.monotonic()
    with progress_on(sys.stderr) as display, understanding(named):

        def tell(part: float, steps: int) -> None:
            words = f"{part:.0%} of the journals, {steps:,} steps taken"
            display.show(time.monotonic() - began_s, part, words, words)

        found = run_again(*folders, tell=tell)
    for warning in found.warnings:
        print(f"warning: bits may differ: {warning}", file=sys.stderr)
    if as_json:
        print_json(found.as_json())
    else:
        _print(found, Console())
    if found.difference is not None:
        fail(f"the replay differs from the live run: {found.difference}", FAILED)
    if not found.identical:
        stopped = next(peer for peer in found.peers if peer.why)
        fail(f"{stopped.id} cannot be replayed to its end: {stopped.why}", WRONG_ARGUMENTS)


def _print(found: "Replay", console: Console) -> None:
    table = plain_table("peer", ">records", ">steps", ">shares mixed", "verdict")
    for peer in found.peers:
        numbers = (f"{number:,}" for number in (peer.records, peer.steps, peer.mixed))
        table.add_row(peer.id, *numbers, _verdict(peer))
    console.print(table)
    if found.identical:
        steps = sum(peer.steps for peer in found.peers)
        console.print(
            f"\nThe replay is the live run, bit for bit: {steps:,} steps in {found.wall_s:.1f} s.",
            highlight=False,
        )


def _verdict(peer: "PeerVerdict") -> str:
    colors = {"identical": "green", "differs": "bold red", "stopped": "yellow"}
    told = f"[{colors[peer.verdict]}]{peer.verdict}[/]"
    if peer.verdict != "identical":
        return told
    if not peer.closed:
        return f"{told} as far as it goes"
    return f"{told}, and so is its model" if peer.compared else f"{told}; it saved no model"
