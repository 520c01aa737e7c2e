"""``rumor audit``: whether all weight of a run was signed for, and by whom it was made up."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...gossip.errors import ConfigError, TransportError
from ...gossip.receipts.audit import Row, Verdict
from ...gossip.types import PeerId
from ...gossip.weight import founders, in_units
from ..errors import FAILED
from ..reports.console import print_json
from ..settings.options import Json, options_of

__all__ = ["audit"]

_LOOKS: Final = 5
_BETWEEN_S: Final = 1.0
"""Before books that do not add up are asked for once more: gossip is on its way."""


@options_of()
def audit(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DIR|HOST:PORT",
            help="Folder of a run with --receipts, or of a peer; or any member of a swarm that "
            "runs.",
            show_default=False,
        ),
    ],
    roster: Annotated[
        Path,
        typer.Option(
            "--roster",
            metavar="FILE",
            help="The swarm's roster: who may found, and with which keys peers sign.",
        ),
    ],
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="This machine's key, which a swarm that runs lets in; a folder needs none.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="S", help="How long a swarm may take to tell its books."),
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Check the receipts of a run: all signatures, and that nobody gave more than it had.

    Of a folder it needs no secret: anybody who has the roster can make an audit. Of a swarm that
    runs, all members are asked for their books, and nobody becomes a member for that.

    Exit status: 0 if all weight is accounted for; 1 if somebody signed what cannot be true, gave
    what it did not have, or forged a statement, or if there are no receipts, or nobody answered; 2
    for wrong arguments.
    """
    folder, silent = Path(place), list[str]()
    if _is_address(place) and not folder.exists():
        if key is None:
            raise ConfigError(f"{place} is a swarm, and one with receipts has keys: give --key")
        if not 0 < timeout <= 3600:
            raise ConfigError(f"--timeout is {timeout:g}: it must be above 0 and at most 3600")
        verdict, silent = _audit_swarm(place, key, roster, timeout)
    else:
        from ...gossip.transport.keys.receipts import audit_folder

        if key is not None:
            raise ConfigError("--key is for a swarm that runs: a folder needs none")
        verdict = audit_folder(folder, roster)
    if as_json:
        print_json(_as_json(verdict) | {"silent": silent})
    else:
        print("\n".join([*map(_line, verdict.rows), _in_words(verdict)]))
        if silent:
            print(f"not asked: {', '.join(silent)} did not tell their books", file=sys.stderr)
    if not verdict.is_sound:
        raise typer.Exit(FAILED)


def _is_address(place: str) -> bool:
    from ...gossip.transport.addresses import parse_address

    try:
        parse_address(place)
    except ConfigError:
        return False
    return True


def _audit_swarm(
    address: str, key: Path, roster: Path, timeout_s: float
) -> tuple[Verdict, list[PeerId]]:
    """Check the books of all members that tell them, and name those that do not."""
    from ...gossip.transport.addresses import allow_more_files
    from ...gossip.transport.keys.keyring import Keyring
    from ...gossip.transport.keys.receipts import Kept, audit_books
    from ...train.observe.auditor import Auditor

    allow_more_files()
    keyring = Keyring.read(key, roster)
    try:
        auditor = Auditor(address, keyring=keyring)
    except TransportError as error:
        raise TransportError(f"{error}; `rumor doctor {address}` says more") from None
    with auditor:
        for again in range(_LOOKS):
            if again:
                time.sleep(_BETWEEN_S)
            auditor.ask(timeout_s)
            told = auditor.answered
            shards = told[0].shards
            kept = [Kept(auditor.swarm, shards, b.statements, b.proofs) for b in told]
            verdict = audit_books(kept, roster)
            # What a peer lacks, others may not have been told yet: that is no lie.
            if verdict.is_sound or verdict.forged or any(row.convicted for row in verdict.rows):
                break
        return verdict, auditor.silent


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
