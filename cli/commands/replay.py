"""``rumor replay``: live runs repeated from their journals, compared bit for bit."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import FAILED, WRONG_ARGUMENTS, fail, reporting_errors
from ..options import Debug, Json

if TYPE_CHECKING:
    from ...sim.replay.result import PeerVerdict, Replay

__all__ = ["replay"]

SAY_EVERY_S = 5.0


def replay(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="The folder of a run that was started with --journal, or of single peers of one.",
        ),
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Repeat a live run from its journals, and compare it with what it left, bit for bit.

    Every peer is trained again, decides again and mixes again what it received; the journals have
    no values in them. The first thing that differs is named. A task MODULE:FUNCTION must be found
    from here, as it was then.

    Exit status: 0 if nothing differs; 1 if something does; 2 if there is no journal, or one
    cannot be read or lacks another that it depends on.
    """
    with reporting_errors(debug=debug):
        # torch takes a second to import.
        from ...sim.replay.replay import replay as run_again

        found = run_again(*folders, tell=_Teller())
    for warning in found.warnings:
        print(f"warning: bits may differ: {warning}", file=sys.stderr)
    if as_json:
        print(json.dumps(found.as_json(), allow_nan=False))
    else:
        _show(found)
    if found.difference is not None:
        fail(f"the replay differs from the live run: {found.difference}", FAILED)
    if not found.identical:
        stopped = next(peer for peer in found.peers if peer.why)
        fail(f"{stopped.id} cannot be replayed to its end: {stopped.why}", WRONG_ARGUMENTS)


class _Teller:
    """Says on stderr how far a replay is, every few seconds."""

    def __init__(self) -> None:
        self._due_s = time.monotonic() + SAY_EVERY_S

    def __call__(self, part: float, steps: int) -> None:
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + SAY_EVERY_S
            print(f"{part:.0%} of the journals, {steps:,} steps taken", file=sys.stderr, flush=True)


def _show(found: "Replay") -> None:
    from rich.console import Console

    from ..console import plain_table

    table = plain_table()
    table.add_column("peer", no_wrap=True)
    for name in ("records", "steps", "shares mixed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    for peer in found.peers:
        numbers = (f"{number:,}" for number in (peer.records, peer.steps, peer.mixed))
        table.add_row(peer.id, *numbers, _verdict(peer))
    console = Console()
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
