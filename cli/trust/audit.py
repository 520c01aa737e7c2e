"""``rumor audit``: whether all weight of a run was signed for, and by whom it was made up."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ...gossip.receipts.audit import Row, Verdict
from ...gossip.weight import founders, in_units
from ..reports.console import print_json
from ..settings.options import Json, options_of

__all__ = ["audit"]


@options_of()
def audit(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a run with --receipts, or of a peer.")
    ],
    roster: Annotated[
        Path,
        typer.Option(
            "--roster",
            metavar="FILE",
            help="The swarm's roster: who may found, and with which keys peers sign.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Check the receipts of a run: all signatures, and that nobody gave more than it had.

    It needs no secret: anybody who has the roster can make an audit.

    Exit status: 0 if all weight is accounted for; 1 if somebody signed what cannot be true, gave
    what it did not have, or forged a statement, or if there are no receipts; 2 for wrong arguments.
    """
    from ...gossip.transport.keys.receipts import audit_folder

    verdict = audit_folder(folder, roster)
    if as_json:
        print_json(_as_json(verdict))
    else:
        print("\n".join([*map(_line, verdict.rows), _in_words(verdict)]))
    if not verdict.is_sound:
        raise typer.Exit(1)


def _line(row: Row) -> str:
    line = (
        f"{row.peer}: founded {founders(row.granted):g}, got {founders(row.got):.6g}, gave "
        f"{founders(row.given):.6g}, is worth {founders(row.worth):.6g} founders"
    )
    if row.cut:
        line += f"; {founders(row.cut):.6g} of that was made up by its senders"
    if row.lacking:
        line += f"; GAVE {founders(row.lacking):.6g} MORE THAN IT HAD"
    return f"{line}; CONVICTED: it {row.convicted}" if row.convicted else line


def _in_words(verdict: Verdict) -> str:
    bad = sum([bool(row.convicted or row.lacking) for row in verdict.rows])
    forged = f", and {verdict.forged} forged" if verdict.forged else ""
    told = f"{verdict.statements} statements{forged}"
    if verdict.is_sound:
        whole = founders(verdict.endowment)
        return f"sound: {told}; all weight is of the {whole:g} founders that the roster names"
    return f"NOT sound: {told}; {bad} of {len(verdict.rows)} peers lied"


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "sound": verdict.is_sound,
        "statements": verdict.statements,
        "forged": verdict.forged,
        "endowment_units": in_units(verdict.endowment),
        "peers": [
            {
                "peer": row.peer,
                "granted_units": in_units(row.granted),
                "got_units": in_units(row.got),
                "given_units": in_units(row.given),
                "cut_units": in_units(row.cut),
                "worth_units": in_units(row.worth),
                "lacking_units": in_units(row.lacking),
                "convicted": row.convicted,
            }
            for row in verdict.rows
        ],
    }
